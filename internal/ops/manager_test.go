package ops

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/walstream/walstream/pkg/pipeline"
)

// What the manager hears, step by step, is what the probes answer at that moment.
func TestManagerHearsWhatProbesAnswer(t *testing.T) {
	start := time.Now()
	p := &pipeline.Progress{}
	cfg := Config{Progress: func() *pipeline.Progress { return p }, Redact: func(s string) string { return strings.ReplaceAll(s, "geheim", "***") }}
	heard := heard{watchdog: 30 * time.Second}
	for _, step := range []struct {
		name     string
		at       time.Duration
		state    pipeline.State
		reason   string
		ticked   time.Duration // when the loop last did
		stopping bool
		want     []string
	}{
		{"up, not ready", 0, pipeline.Connecting, "starting", 0, false, []string{"STATUS=connecting: starting", "WATCHDOG=1"}},
		{"an outage is no death", 10 * time.Second, pipeline.Waiting, "password geheim\n refused", 0, false, []string{"STATUS=waiting: password *** refused", "WATCHDOG=1"}},
		{"nothing new", 11 * time.Second, pipeline.Waiting, "password geheim refused", 0, false, nil},
		{"standing by is ready", 12 * time.Second, pipeline.Standby, "held by PID 7", 0, false, []string{"READY=1", "STATUS=standby: held by PID 7"}},
		{"streaming is not told again", 20 * time.Second, pipeline.Streaming, "", 20 * time.Second, false, []string{"STATUS=streaming", "WATCHDOG=1"}},
		{"the loop hangs", 55 * time.Second, pipeline.Streaming, "", 20 * time.Second, false, nil},
		{"it ticks again", 56 * time.Second, pipeline.Streaming, "", 56 * time.Second, false, []string{"WATCHDOG=1"}},
		{"asked to stop", 57 * time.Second, pipeline.Draining, "", 57 * time.Second, true, []string{"STOPPING=1", "STATUS=draining"}},
		{"stopped", 58 * time.Second, pipeline.Stopped, "", 57 * time.Second, true, []string{"STATUS=stopped"}},
	} {
		now := start.Add(step.at)
		p = &pipeline.Progress{State: step.state, Reason: step.reason, At: start.Add(step.ticked)}
		if got := heard.next(cfg, now, step.stopping); !reflect.DeepEqual(got, step.want) {
			t.Errorf("%s: told %q, want %q", step.name, got, step.want)
		}
	}
}

// The datagrams as systemd gets them, by a path and by an abstract name.
func TestManagerIsTold(t *testing.T) {
	names := []string{filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		names = append(names, "@walstream-test-"+strconv.Itoa(os.Getpid()))
	}
	for _, name := range names {
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Skip("no datagram sockets here: ", err)
		}
		defer func() { _ = socket.Close() }()
		env := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "600000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
		manager, found, err := DialManager(func(key string) string { return env[key] })
		if err != nil || !found {
			t.Fatal(found, err)
		}
		var state atomic.Pointer[pipeline.Progress]
		state.Store(&pipeline.Progress{State: pipeline.Streaming, At: time.Now()})
		stopping, stop := context.WithCancel(t.Context())
		end := manager.Tell(stopping, Config{Progress: state.Load}, func(err error) { t.Error(err) })
		hear := func(want ...string) {
			t.Helper()
			_ = socket.SetReadDeadline(time.Now().Add(10 * time.Second))
			for buffer := make([]byte, 1000); len(want) > 0; {
				n, err := socket.Read(buffer)
				if err != nil {
					t.Fatalf("still to hear: %q: %v", want, err)
				}
				want = slices.DeleteFunc(want, func(s string) bool { return s == string(buffer[:n]) })
			}
		}
		hear("READY=1", "STATUS=streaming", "WATCHDOG=1")
		hear("WATCHDOG=1")
		stop()
		hear("STOPPING=1")
		state.Store(&pipeline.Progress{State: pipeline.Refused, Reason: "slot is gone"})
		end() // the state that it ends in is told, however soon
		hear("STATUS=refused: slot is gone")
	}
}

// A manager that nobody named, that wants no watchdog of us, or that is not there.
func TestDialManager(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   map[string]string
		fails string
	}{
		{"nobody asked", map[string]string{"WATCHDOG_USEC": "1"}, ""},
		{"nobody listens", map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "none")}, "notify the service manager: dial"},
		{"no number", map[string]string{"NOTIFY_SOCKET": "x", "WATCHDOG_USEC": "1s"}, `WATCHDOG_USEC="1s" is no number`},
	} {
		_, found, err := DialManager(func(key string) string { return c.env[key] })
		if found || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: found %v, %v", c.name, found, err)
		}
	}
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Skip("no datagram sockets here: ", err)
	}
	defer func() { _ = socket.Close() }()
	env := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
	manager, found, err := DialManager(func(key string) string { return env[key] })
	if err != nil || !found {
		t.Fatal(found, err)
	}
	defer func() { _ = manager.socket.Close() }()
	if manager.watchdog != 0 {
		t.Error("the watchdog of another process is fed")
	}
}
