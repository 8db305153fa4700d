package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/pkg/pipeline"
)

// The bar says what /status says, lines of the log stand alone on theirs, and a
// snapshot of unknown size has no share.
func TestSnapshotBar(t *testing.T) {
	var out bytes.Buffer
	b := &snapshotBar{out: &out}
	now := time.Now()
	p := &pipeline.SnapshotProgress{Since: now.Add(-10 * time.Second), Rows: 1_000_000, Resumed: 500_000, Estimate: 4_000_000}
	b.show(p, now)
	for _, want := range []string{"snapshot: 1000000 rows, 50000/s, about 1m left", " 25% "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
	out.Reset()
	if _, err := b.Write([]byte("a line\n")); err != nil || !strings.HasSuffix(out.String(), "\ra line\n") {
		t.Errorf("%q, error %v", out.String(), err)
	}
	out.Reset()
	p.Rows = 5_000_000 // more than the planner thought
	if b.show(p, now); !strings.Contains(out.String(), "100%") {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	p.Estimate = -1
	if b.show(p, now); strings.Contains(out.String(), "%") || !strings.Contains(out.String(), "5000000 rows") {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	b.show(nil, now)
	out.Reset()
	if b.show(nil, now); out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

func TestWhoGetsABar(t *testing.T) {
	for _, c := range []struct {
		snapshot, format string
		terminal, want   bool
	}{
		{"initial", "auto", true, true},
		{"only", "console", true, true},
		{"only", "console", false, false},
		{"only", "json", true, false},
		{"never", "auto", true, false},
	} {
		if got := (&Config{Snapshot: c.snapshot, LogFormat: c.format}).wantsBar(c.terminal); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
