package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/walstream/walstream/bench/internal/tooltest"
)

// The whole run, small: it keeps the tool working. Of the times it knows only
// that a loaded machine keeps them within a multiple.
func TestTakeover(t *testing.T) {
	pg, kafka, binary := tooltest.Servers(t, postgresOptions, kafkaOptions)
	limits = map[string]float64{kill: 20_000, sigterm: 10_000}
	report, err := run(t.Context(), options{rounds: 1, rate: 50, binary: binary, log: filepath.Join(t.TempDir(), "log"), say: t.Logf}, pg, kafka)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"at_least_once_kill", "at_least_once_sigterm", "exactly_once_kill", "exactly_once_sigterm"} {
		if f := (*report)[name]; f.Takeovers != 1 || f.Committed < 50 || f.Median <= 0 || f.Min != f.Max {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		sorted []time.Duration
		want   time.Duration
	}{{[]time.Duration{7}, 7}, {[]time.Duration{2, 4}, 3}, {[]time.Duration{1, 5, 9}, 5}} {
		if got := median(c.sorted); got != c.want {
			t.Errorf("%v: %d", c.sorted, got)
		}
	}
}
