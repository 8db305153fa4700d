package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/walstream/walstream/bench/internal/tooltest"
)

// The short form of make crash, in both deliveries. It needs the real servers.
func TestCrash(t *testing.T) {
	for _, delivery := range []string{atLeastOnce, exactlyOnce} {
		t.Run(delivery, func(t *testing.T) { crash(t, delivery) })
	}
}

func crash(t *testing.T, delivery string) {
	pg, kafka, binary := tooltest.Servers(t, postgresOptions, kafkaOptions)
	started := time.Now()
	report, err := run(t.Context(), options{
		kills: 4, brokerRestarts: 1, rate: 2000, partitions: 6, seed: rand.Uint64(), delivery: delivery,
		binary: binary, log: filepath.Join(t.TempDir(), "walstream.log"),
		say: func(format string, args ...any) {
			t.Logf("%6.1fs %s", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
		},
	}, pg, kafka)
	t.Logf("%+v", report)
	if err != nil {
		t.Fatal(err)
	}
	if report.Committed == 0 || report.Published != report.Committed {
		t.Errorf("the run proves nothing: %+v", report)
	}
}
