// Package service runs the real walstream binary as a child process, for tests,
// the demo and the benchmarks: what they see is what a user sees.
package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// EnvBinary names a binary to be used instead of a freshly built one.
const EnvBinary = "WALSTREAM_BIN"

// Build compiles the binary into dir, or takes the one that WALSTREAM_BIN names.
func Build(ctx context.Context, dir string) (path string, err error) {
	if path := os.Getenv(EnvBinary); path != "" {
		return path, nil
	}
	path = filepath.Join(dir, "walstream")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/walstream/walstream/cmd/walstream").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build walstream: %w\n%s", err, out)
	}
	return path, nil
}

// Options of a child.
type Options struct {
	Binary string
	Args   []string // beside --http-listen, which Start chooses
	Env    []string // added to ours
	Log    io.Writer
}

// Service is a running walstream.
type Service struct {
	Addr string // of its HTTP server
	cmd  *exec.Cmd
	log  *logTail
	done chan struct{}
	err  error
}

// Start runs the binary. It does not wait for it to stream.
func Start(o Options) (*Service, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &Service{Addr: addr, log: &logTail{out: o.Log}, done: make(chan struct{})}
	s.cmd = exec.Command(o.Binary, append(o.Args, "--http-listen", addr)...)
	// Ours but for what walstream would refuse as a setting it does not know.
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, EnvBinary+"=") })
	s.cmd.Env = append(s.cmd.Env, o.Env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	endWithParent(s.cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent-death signal follows the thread that forked
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.err = s.cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start walstream: %w", err)
	}
	return s, nil
}

// CommandLine is what was started, for people to read.
func (s *Service) CommandLine() string {
	return "walstream " + strings.Join(s.cmd.Args[1:], " ")
}

// PID of the process.
func (s *Service) PID() int { return s.cmd.Process.Pid }

// Done is closed when the process has ended.
func (s *Service) Done() <-chan struct{} { return s.done }

// Usage of a process that has ended.
func (s *Service) Usage() *os.ProcessState { return s.cmd.ProcessState }

// ExitCode of a process that has ended; -1 after a signal.
func (s *Service) ExitCode() int { return s.cmd.ProcessState.ExitCode() }

// Log returns the last lines it wrote.
func (s *Service) Log() string { return s.log.String() }

// Signal sends one.
func (s *Service) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill is kill -9.
func (s *Service) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	<-s.done
}

// Stop is SIGTERM, and waits.
func (s *Service) Stop(wait time.Duration) error {
	if err := s.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.done:
	case <-time.After(wait):
		return fmt.Errorf("walstream still runs %s after SIGTERM\n%s", wait, s.Log())
	}
	if s.err != nil {
		return fmt.Errorf("walstream ended with %w\n%s", s.err, s.Log())
	}
	return nil
}

// Status is what /status says, as far as tests ask.
type Status struct {
	State          string              `json:"state"`
	Reason         string              `json:"reason"`
	Healthy        bool                `json:"healthy"`
	Positions      map[string]string   `json:"positions"`
	LagBytes       map[string]*int64   `json:"lag_bytes"`
	LagSeconds     map[string]*float64 `json:"lag_seconds"`
	InFlightEvents int                 `json:"in_flight_events"`
	Events         uint64              `json:"events"`
	Restarts       map[string]uint64   `json:"restarts"`
	Snapshot       *struct {
		Rows uint64 `json:"rows"`
	} `json:"snapshot"`
}

// Status asks for it.
func (s *Service) Status(ctx context.Context) (Status, error) {
	var status Status
	_, body, err := s.Get(ctx, "/status")
	if err == nil {
		err = json.Unmarshal(body, &status)
	}
	return status, err
}

// Get asks the HTTP server.
func (s *Service) Get(ctx context.Context, path string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// WaitFor asks for the status until it fits; a process that ends is an error.
func (s *Service) WaitFor(ctx context.Context, what string, fits func(Status) bool) (Status, error) {
	var last Status
	for {
		status, err := s.Status(ctx)
		if err == nil {
			if last = status; fits(status) {
				return status, nil
			}
		}
		select {
		case <-s.done:
			return last, fmt.Errorf("walstream ended (%v) while waiting for it to be %s\n%s", s.cmd.ProcessState, what, s.Log())
		case <-ctx.Done():
			return last, fmt.Errorf("walstream is not %s: %w; last status %+v\n%s", what, ctx.Err(), last, s.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WaitStreaming waits until it streams.
func (s *Service) WaitStreaming(ctx context.Context) error {
	_, err := s.WaitFor(ctx, "streaming", func(st Status) bool { return st.State == "streaming" })
	return err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// logTail keeps the end of what was written, and passes everything on.
type logTail struct {
	mu   sync.Mutex
	kept []byte
	out  io.Writer
}

const logKept = 64 << 10

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept = append(l.kept, p...); len(l.kept) > 2*logKept {
		l.kept = append(l.kept[:0], l.kept[len(l.kept)-logKept:]...)
	}
	if l.out != nil {
		return l.out.Write(p)
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.kept))
}
