package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/walstream/walstream/bench/internal/tooltest"
)

// The short form of make chaos. It needs the real servers.
func TestChaos(t *testing.T) {
	pg, kafka, binary := tooltest.Servers(t, postgresOptions, kafkaOptions)
	started := time.Now()
	report, err := run(t.Context(), options{
		faults: 12, seed: rand.Uint64(), rate: 600, bigRows: 5000, bigEvery: 3 * time.Second, longest: 2 * time.Second, delivery: "exactly-once",
		binary: binary, log: filepath.Join(t.TempDir(), "walstream.log"),
		say: func(format string, args ...any) {
			t.Logf("%6.1fs %s", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
		},
	}, pg, kafka)
	t.Logf("%+v", report)
	if err != nil {
		t.Fatal(err)
	}
	if report.Rows == 0 || report.Transactions == 0 {
		t.Errorf("the run proves nothing: %+v", report)
	}
}
