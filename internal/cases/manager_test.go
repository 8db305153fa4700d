package cases

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
)

// systemd hears READY when an instance streams or stands by, not before; then what
// it does, and that it stops.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	first, toldFirst := r.startNotified()
	r.until("the first instance to say that it streams", func() bool { return slices.Contains(toldFirst(), "STATUS=streaming") })
	second, toldSecond := r.startNotified()
	_, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.check(first.Stop(10 * time.Second))
	r.until("the second instance to say that it streams", func() bool { return slices.Contains(toldSecond(), "STATUS=streaming") })
	r.check(second.Stop(10 * time.Second))
	for _, told := range []func() []string{toldFirst, toldSecond} {
		r.until("the last word", func() bool { return slices.Contains(told(), "STATUS=stopped") })
	}
	for name, told := range map[string][]string{"first": toldFirst(), "second": toldSecond()} {
		ready := slices.Index(told, "READY=1")
		if ready < 1 || slices.Index(told[ready+1:], "READY=1") >= 0 {
			t.Errorf("the %s instance was not ready once, after its start: %q", name, told)
		}
		for _, line := range told[:max(ready, 0)] {
			if strings.HasPrefix(line, "STATUS=streaming") || strings.HasPrefix(line, "STATUS=standby") {
				t.Errorf("the %s instance says %q before it is ready", name, line)
			}
		}
		for _, want := range []string{"WATCHDOG=1", "STATUS=streaming", "STOPPING=1"} {
			if !slices.Contains(told, want) {
				t.Errorf("the %s instance did not say %s: %q", name, want, told)
			}
		}
		told = slices.DeleteFunc(told, func(line string) bool { return line == "WATCHDOG=1" })
		if last := told[len(told)-1]; last != "STATUS=stopped" {
			t.Errorf("the last word of the %s instance is %q", name, last)
		}
	}
}

// startNotified runs walstream under a manager; told is what it has heard.
func (r *rig) startNotified() (s *service.Service, told func() []string) {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		r.t.Skip("no datagram sockets here: ", err)
	}
	var mu sync.Mutex
	var lines []string
	go func() {
		for buffer := make([]byte, 8<<10); ; {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			lines = append(lines, string(buffer[:n]))
			mu.Unlock()
		}
	}()
	s, err = service.Start(service.Options{Binary: r.binary, Args: r.args(), Env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000", "WATCHDOG_PID="}})
	r.check(err)
	r.t.Cleanup(func() {
		s.Kill()
		_ = socket.Close()
	})
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
}
