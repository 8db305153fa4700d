package main

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/walstream/walstream/bench/internal/tooltest"
)

// The whole run, small: it keeps the tool working, and says nothing about speed.
func TestSnapshot(t *testing.T) {
	pg, kafka, binary := tooltest.Servers(t, postgresOptions, kafkaOptions)
	o := options{rows: 60_000, kills: 2, seed: rand.Uint64(), binary: binary, log: filepath.Join(t.TempDir(), "log"), say: t.Logf, pauseOfWriters: 5 * time.Millisecond}
	r, err := run(t.Context(), o, pg, kafka)
	t.Logf("%+v", r)
	if err != nil {
		t.Fatal(err)
	}
	if r.Records < 50_000 || r.Rate <= 0 || r.CopyRate <= 0 || r.RateVsCopy <= 0 || r.Written == 0 || r.Deleted == 0 {
		t.Error("the run proves nothing")
	}
}

func TestRows(t *testing.T) {
	for _, n := range []int{1, 42, 5_000_000} {
		if got := numberOf(eventID(n)); got != n {
			t.Errorf("%s is read as %d", eventID(n), got)
		}
		if p := payload(n, rand.NewChaCha8([32]byte{})); len(p) != payloadSize {
			t.Errorf("%d bytes: %s", len(p), p)
		}
	}
	if numberOf("5ff2ebb0-0000-4000-8000-000000000001") != 0 || numberOf("") != 0 {
		t.Error("foreign ids are taken")
	}
}
