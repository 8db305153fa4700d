package pipeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

func TestPacerInterval(t *testing.T) {
	for _, test := range []struct{ interval, timeout, due time.Duration }{
		{5 * time.Second, 0, 5 * time.Second}, // the server has no time-out
		{5 * time.Second, time.Minute, 5 * time.Second},
		{5 * time.Second, 15 * time.Second, 5 * time.Second},
		{5 * time.Second, 9 * time.Second, 3 * time.Second},
		{5 * time.Second, 3 * time.Second, time.Second},
		{time.Second, time.Minute, time.Second},
	} {
		p := NewPacer(test.interval, test.timeout, midnight)
		if p.StatusDue(midnight.Add(test.due - 1)) {
			t.Errorf("%+v: due too early", test)
		}
		if !p.StatusDue(midnight.Add(test.due)) {
			t.Errorf("%+v: not due", test)
		}
		p.Sent(1, 1, midnight.Add(test.due))
		if p.StatusDue(midnight.Add(2*test.due - 1)) {
			t.Errorf("%+v: due too early after a status", test)
		}
		if !p.StatusDue(midnight.Add(2 * test.due)) {
			t.Errorf("%+v: not due after a status", test)
		}
	}
}

// A moved position is told at once when nothing was sent lately.
func TestPacerConfirmDue(t *testing.T) {
	p := NewPacer(5*time.Second, 15*time.Second, midnight)
	p.Sent(1, 1, midnight)
	if p.ConfirmDue(midnight.Add(confirmGap - 1)) {
		t.Error("due too early")
	}
	if !p.ConfirmDue(midnight.Add(confirmGap)) {
		t.Error("not due")
	}
}

func TestPacerSilence(t *testing.T) {
	const timeout = 15 * time.Second
	for _, test := range []struct {
		name          string
		timeout       time.Duration
		after         time.Duration // of silence
		probe, silent bool
	}{
		{"just heard", timeout, 0, false, false},
		{"half the time-out", timeout, timeout / 2, false, false},
		{"beyond half of it", timeout, timeout/2 + 1, true, false},
		{"one and a half", timeout, timeout * 3 / 2, true, false},
		{"beyond that", timeout, timeout*3/2 + 1, true, true},
		{"no time-out", 0, time.Hour, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := NewPacer(5*time.Second, test.timeout, midnight)
			heard := midnight.Add(time.Minute)
			p.Heard(heard)
			now := heard.Add(test.after)
			if p.Silence(now) != test.after || p.ProbeDue(now) != test.probe || p.Silent(now) != test.silent {
				t.Errorf("silence %s, probe %v, silent %v", p.Silence(now), p.ProbeDue(now), p.Silent(now))
			}
		})
	}
}

// A silent server is asked once an interval, until it is heard.
func TestPacerProbesOnceAnInterval(t *testing.T) {
	p := NewPacer(5*time.Second, 15*time.Second, midnight)
	var probes []string
	for s := range 40 {
		now := midnight.Add(time.Duration(s) * time.Second)
		if s == 20 {
			p.Heard(now)
		}
		if probe := p.ProbeDue(now); probe || p.StatusDue(now) {
			p.Sent(1, 1, now)
			if probe {
				p.Probed(now)
				probes = append(probes, fmt.Sprint(s))
			}
		}
	}
	if got := strings.Join(probes, " "); got != "8 13 18 28 33 38" {
		t.Errorf("probes at %s", got)
	}
}

// A status that asks for nothing is no probe, whenever it is sent.
func TestPacerStatusIsNoProbe(t *testing.T) {
	p := NewPacer(5*time.Second, 15*time.Second, midnight)
	now := midnight.Add(8 * time.Second)
	p.Sent(1, 1, now)
	if !p.ProbeDue(now) {
		t.Error("no probe due after a status")
	}
	p.Probed(now)
	if p.ProbeDue(now.Add(5*time.Second-1)) || !p.ProbeDue(now.Add(5*time.Second)) {
		t.Error("the next probe is not due an interval later")
	}
}

func TestPacerPanics(t *testing.T) {
	for name, test := range map[string]struct{ received, confirmed pglogrepl.LSN }{
		"nothing confirmed":        {20, 0},
		"confirmed beyond read":    {20, 21},
		"confirmed falls":          {20, 9},
		"received falls":           {19, 10},
		"both":                     {5, 5},
		"confirmed beyond in both": {19, 30},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPacer(time.Second, 0, midnight)
			p.Sent(20, 10, midnight)
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "walstream: bug: status update") {
					t.Errorf("panic %q", said)
				}
				if p.Confirmed() != 10 {
					t.Errorf("confirmed %s", p.Confirmed())
				}
			}()
			p.Sent(test.received, test.confirmed, midnight)
		})
	}
}

// A third of wal_sender_timeout is never exceeded, whatever the interval, as
// long as somebody looks: here ten times a second.
func TestPacerNeverLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		interval := time.Duration(rapid.IntRange(1, 100_000).Draw(t, "interval")) * time.Millisecond
		timeout := time.Duration(rapid.IntRange(1000, 100_000).Draw(t, "timeout")) * time.Millisecond
		p := NewPacer(interval, timeout, midnight)
		last := midnight
		for now := midnight; now.Sub(midnight) < 2*timeout; now = now.Add(tick) {
			if p.StatusDue(now) {
				p.Sent(1, 1, now)
				last = now
			}
			if late := now.Sub(last); late > timeout/3+tick {
				t.Fatalf("%s without a status, time-out %s", late, timeout)
			}
		}
	})
}

// The server's clock is estimated by the smallest difference of the last minute
// or two: a frame that waited on its way does not count as lag, and neither does
// a clock that differs from ours.
func TestServerClock(t *testing.T) {
	const ahead = -3 * time.Second // ours is behind the server's
	var c serverClock
	at := func(s int) time.Time { return midnight.Add(time.Duration(s) * time.Second) }
	c.observe(at(0).Add(-ahead), at(0))
	c.observe(at(1).Add(-ahead-500*time.Millisecond), at(1)) // half a second on its way
	if got := c.since(at(10).Add(-ahead), at(12)); got != 2*time.Second {
		t.Errorf("lag %s, want 2s", got)
	}
	if got := c.since(at(13).Add(-ahead), at(12)); got != 0 {
		t.Errorf("lag of a stamp in the future %s, want 0", got)
	}
	// The server's clock is set one hour ahead: after two windows it is believed.
	for s := 20; s < 300; s += 10 {
		c.observe(at(s).Add(-ahead-time.Hour), at(s))
	}
	if got := c.since(at(300).Add(-ahead-time.Hour), at(301)); got != time.Second {
		t.Errorf("lag after the clock was set %s, want 1s", got)
	}
}
