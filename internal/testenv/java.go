package testenv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// JavaOptions say which program a Java server is.
type JavaOptions struct {
	Name string   // of its directory, for people
	Jars string   // directory, as Jars returns it
	Main string   // class; its one argument is the file with Properties
	JVM  []string // in front of the class path
	// Properties, given the port that is the server's own.
	Properties func(port int) map[string]string
}

// Java is a server in Java that is a child process of ours: it has a directory
// and a port of its own, which it keeps when it is started again.
type Java struct {
	URL string // http, on loopback

	options JavaOptions
	java    string
	temp    *tempDir
	claimed *ports
	child   *child
}

// NewJava prepares a server; Start starts it.
func NewJava(ctx context.Context, o JavaOptions) (*Java, error) {
	java, _, err := findJava()
	if err != nil {
		return nil, &UnavailableError{What: o.Name, Reasons: []string{err.Error()}}
	}
	j := &Java{options: o, java: java}
	if j.temp, err = newTempDir(ctx, o.Name, nil); err != nil {
		return nil, err
	}
	if j.claimed, err = claimPorts(1); err != nil {
		j.Close()
		return nil, err
	}
	port := j.claimed.numbers[0]
	j.URL = "http://" + address(port)
	properties := o.Properties(port)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, strings.ReplaceAll(properties[name], `\`, `\\`))
	}
	if err := os.WriteFile(j.propertiesPath(), []byte(text.String()), 0o600); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

func (j *Java) propertiesPath() string { return filepath.Join(j.temp.path, "server.properties") }
func (j *Java) logPath() string        { return filepath.Join(j.temp.path, serverLog) }

// Start starts the process. It does not wait for it to answer.
func (j *Java) Start() error {
	if j.Running() {
		return nil
	}
	log, err := os.OpenFile(j.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(j.java, append(slices.Clone(j.options.JVM),
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(j.options.Jars, "*"), j.options.Main, j.propertiesPath())...)
	cmd.Dir = j.temp.path
	cmd.Stdout, cmd.Stderr = log, log
	confine(cmd, nil, syscall.SIGKILL)
	j.child, err = startChild(cmd)
	return err
}

// Running reports whether the process is there.
func (j *Java) Running() bool { return j.child != nil && j.child.running() }

// Pid of the process that runs, or ran last.
func (j *Java) Pid() int { return j.child.pid() }

// Usage of a process that has ended.
func (j *Java) Usage() *os.ProcessState { return j.child.cmd.ProcessState }

// Stop is SIGTERM, and waits.
func (j *Java) Stop(wait time.Duration) error {
	if !j.Running() {
		return nil
	}
	return j.child.signal(syscall.SIGTERM, wait)
}

// Kill is kill -9.
func (j *Java) Kill() error {
	if !j.Running() {
		return nil
	}
	return j.child.signal(os.Kill, 10*time.Second)
}

// Log returns the end of what it wrote.
func (j *Java) Log() string { return tail(j.logPath()) }

// LogPath is the file it writes.
func (j *Java) LogPath() string { return j.logPath() }

// Close ends the server and removes its directory.
func (j *Java) Close() {
	_ = j.Kill()
	j.temp.remove()
	j.claimed.release()
}
