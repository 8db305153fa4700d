package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/sink"
)

// The last line counts the bad rows of every class and action.
func TestStoppedSaysHowManyRows(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	logStopped(&log, &pipeline.Progress{
		Counters: pipeline.Counters{Events: 12},
		Poisoned: sink.Poisoned{
			sink.DeadLetter: {sink.ClassMapping: 3, sink.ClassTooLarge: 1},
			sink.Skip:       {sink.ClassTime: 2},
		},
	})
	for _, want := range []string{`"rows":12`, `"bad_rows":6`, `"message":"stopped"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
}
