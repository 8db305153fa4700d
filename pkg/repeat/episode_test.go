package repeat

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// An outage of an hour that is looked at every five seconds.
func TestOutage(t *testing.T) {
	e, now := Episode{Calm: time.Minute}, midnight
	var told []time.Duration
	for ; now.Before(midnight.Add(time.Hour)); now = now.Add(5 * time.Second) {
		if e.Trouble("connection refused", now) {
			told = append(told, now.Sub(midnight))
		}
	}
	if got, want := fmt.Sprint(told), "[0s 1m0s 3m0s 7m0s 15m0s 31m0s]"; got != want {
		t.Errorf("told at %s, want %s", got, want)
	}
	if !e.Well(now) || e.Well(now.Add(time.Second)) {
		t.Error("its end is told, once")
	}
	if e.Over(now.Add(time.Minute)) {
		t.Error("that it is over is told twice: the end had all the numbers")
	}
	if e.Count() != 720 || e.Lasted(now) != time.Hour || e.Open(now.Add(time.Minute)) {
		t.Errorf("%d troubles for %s, open %v", e.Count(), e.Lasted(now), e.Open(now.Add(time.Minute)))
	}
	if !e.Trouble("connection refused", now.Add(2*time.Minute)) || e.Count() != 1 {
		t.Errorf("the next one is an episode of its own, with its first line; count %d", e.Count())
	}
}

// It has come back within the calm: not told, unless it stays, or as a sum when it
// is over.
func TestComesBack(t *testing.T) {
	for name, c := range map[string]struct {
		troubles int // a second apart
		told     int
		over     bool
	}{
		"shortly":      {troubles: 5, told: 0, over: true},
		"for a minute": {troubles: 70, told: 1, over: false},
	} {
		e, now, told := Episode{Calm: time.Minute}, midnight, 0
		next := func() time.Time { now = now.Add(time.Second); return now }
		e.Trouble("refused", next())
		e.next = now.Add(time.Hour) // the pause has grown
		e.Well(next())
		for range c.troubles {
			if e.Silent(now) != (told == 0) {
				t.Errorf("%s: silent %v with %d lines", name, e.Silent(now), told)
			}
			if e.Trouble("refused", next()) {
				told++
			}
		}
		if told != c.told {
			t.Errorf("%s: told %d times, want %d", name, told, c.told)
		}
		if well := e.Well(next()); well != (c.told > 0) {
			t.Errorf("%s: that it is well is told: %v", name, well)
		}
		if e.Over(now.Add(59 * time.Second)) {
			t.Errorf("%s: over before the calm", name)
		}
		if e.Over(now.Add(time.Minute)) != c.over || e.Over(now.Add(2*time.Minute)) {
			t.Errorf("%s: that it is over is told once, if at all", name)
		}
	}
}

func TestEachTextOnce(t *testing.T) {
	var e Episode
	for n, step := range []struct {
		text string
		tell bool
	}{{"refused", true}, {"refused", false}, {"starting up", true}, {"refused", false}, {"starting up", false}} {
		if tell := e.Trouble(step.text, midnight.Add(time.Duration(n)*time.Second)); tell != step.tell {
			t.Errorf("trouble %d (%s): told %v", n, step.text, tell)
		}
	}
}

// Nothing has happened: nothing ends.
func TestNothing(t *testing.T) {
	var e Episode
	if e.Well(midnight) || e.Over(midnight) || e.Open(midnight) || e.Lasted(midnight) != 0 {
		t.Errorf("%+v", e)
	}
}

// What comes and goes with new words each time, for any rhythm: an hour has a
// bounded number of lines, and the last line always tells how it stands.
func TestBoundedAndTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calm := rapid.SampledFrom([]time.Duration{10 * time.Second, time.Minute}).Draw(t, "calm")
		most := rapid.SampledFrom([]time.Duration{200 * time.Millisecond, time.Second, 9 * time.Second}).Draw(t, "longest pause")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		e := Episode{Calm: calm}
		lines, says := 0, "well"
		tell := func(told bool, what string) {
			if told {
				lines++
				says = what
			}
		}
		now := midnight
		for now.Before(midnight.Add(time.Hour)) {
			for range 1 + rng.IntN(5) {
				now = now.Add(time.Duration(rng.Int64N(int64(most))))
				tell(e.Trouble(fmt.Sprint(rng.Uint64()), now), "trouble")
			}
			if (says == "well") != e.Silent(now) {
				t.Fatalf("the last line says %s, and silent is %v", says, e.Silent(now))
			}
			now = now.Add(time.Duration(rng.Int64N(int64(most))))
			tell(e.Well(now), "well")
			tell(e.Over(now), "well")
		}
		tell(e.Over(now.Add(calm)), "well")
		if says != "well" {
			t.Fatal("all is well, and the last line tells of trouble")
		}
		// Words, pauses, as many ends, and the line that it is over.
		if limit := 2*(maxTexts+6) + 1; lines > limit {
			t.Fatalf("%d lines in an hour, want at most %d", lines, limit)
		}
	})
}
