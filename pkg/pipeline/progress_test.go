package pipeline

import (
	"testing"
	"time"
)

// A server that says nothing stalls the stream from when it was heard last, also
// when its silence ends the run; one that is heard does not.
func TestStalledBySilence(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		heard time.Duration // ago; 0: never
		want  time.Duration
	}{
		"heard just now": {time.Second, 0},
		"never observed": {0, 0},
		"silent":         {30 * time.Second, 30 * time.Second},
	} {
		p := Progress{State: Streaming, Counters: Counters{ProgressAt: now}}
		if c.heard > 0 {
			p.HeardAt = now.Add(-c.heard)
		}
		if got := p.Stalled(now); got != c.want {
			t.Errorf("%s: stalled for %s, want %s", name, got, c.want)
		}
		var b board
		b.current.Store(&p)
		b.state(Waiting, "ended")
		if got := b.load().Stalled(now).Round(time.Second); got != c.want {
			t.Errorf("%s, and the run ended: stalled for %s, want %s", name, got, c.want)
		}
	}
}
