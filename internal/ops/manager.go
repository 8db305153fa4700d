package ops

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/walstream/walstream/pkg/pipeline"
)

// Manager is the service manager that started the process and asked to be told
// how it is: systemd with Type=notify, see sd_notify(3).
type Manager struct {
	socket   *net.UnixConn
	watchdog time.Duration // how long it bears to hear nothing; 0: for ever
}

// DialManager finds the manager that the environment names. There is none, and no
// error, where nobody asked.
func DialManager(getenv func(string) string) (m *Manager, found bool, err error) {
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, false, nil
	}
	m = &Manager{}
	if limit, pid := getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"); limit != "" && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		microseconds, err := strconv.ParseInt(limit, 10, 64)
		if err != nil {
			return nil, false, fmt.Errorf("notify the service manager: WATCHDOG_USEC=%q is no number of microseconds", limit)
		}
		m.watchdog = time.Duration(microseconds) * time.Microsecond
	}
	// A name that begins with @ is an abstract one; package net knows that too.
	if m.socket, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}); err != nil {
		return nil, false, fmt.Errorf("notify the service manager: %w", err)
	}
	return m, true, nil
}

// managerTick is how soon the manager hears of a change.
const managerTick = 100 * time.Millisecond

// Tell keeps the manager informed until the returned function is called; stopping
// ends when the process is asked to stop. A manager that cannot be told is
// reported once: the stream does not depend on it.
func (m *Manager) Tell(stopping context.Context, cfg Config, failed func(error)) (end func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer func() { _ = m.socket.Close() }()
		ticker := time.NewTicker(managerTick)
		defer ticker.Stop()
		heard, reported := heard{watchdog: m.watchdog}, false
		for last := false; ; {
			// What is said after the end has begun is the state that the process ends in.
			for _, line := range heard.next(cfg, time.Now(), stopping.Err() != nil) {
				if _, err := m.socket.Write([]byte(line)); err != nil && !reported {
					reported = true
					failed(fmt.Errorf("notify the service manager: %w", err))
				}
			}
			if last {
				return
			}
			select {
			case <-ended:
				last = true
			case <-ticker.C:
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}

// heard is what the manager has been told.
type heard struct {
	watchdog        time.Duration
	ready, stopping bool
	status          string
	alive           time.Time
}

// next is what it has to hear now: what the probes would answer.
//
//	READY=1     once, when /readyz answers 200: streaming, or able to take over
//	STOPPING=1  once, when asked to stop
//	STATUS=     state and reason, when they change; the last one is a refusal's
//	WATCHDOG=1  at a third of the manager's limit, while /livez answers 200
func (h *heard) next(cfg Config, now time.Time, stopping bool) (lines []string) {
	p := cfg.Progress()
	if ok, _ := ready(p, now); ok && !h.ready {
		h.ready = true
		lines = append(lines, "READY=1")
	}
	if stopping && !h.stopping {
		h.stopping = true
		lines = append(lines, "STOPPING=1")
	}
	if status := statusLine(cfg, p); status != h.status {
		h.status = status
		lines = append(lines, "STATUS="+status)
	}
	if ok, _ := live(p, now); ok && h.watchdog > 0 && now.Sub(h.alive) >= h.watchdog/3 {
		h.alive = now
		lines = append(lines, "WATCHDOG=1")
	}
	return lines
}

// statusLine is one line for systemctl status.
func statusLine(cfg Config, p *pipeline.Progress) string {
	if p.Reason == "" {
		return string(p.State)
	}
	reason := p.Reason
	if cfg.Redact != nil {
		reason = cfg.Redact(reason)
	}
	return string(p.State) + ": " + strings.Join(strings.Fields(reason), " ")
}
