package pipeline

import (
	"fmt"
	"testing"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/replication"
)

func TestRefusalCountsWhenSaidTwice(t *testing.T) {
	restored := fmt.Errorf("pipeline: %w", &checkpoint.Refusal{Kind: checkpoint.RefuseRestored})
	gap := &checkpoint.Refusal{Kind: checkpoint.RefuseGap}
	s := &Supervisor{}
	for n, step := range []struct {
		err     error
		doubted bool
	}{
		{restored, true},
		{restored, false},
		{gap, true},
		{replication.ErrSlotBusy, false}, // an instance that woke up stands by
		{gap, true},
		{nil, false},
		{gap, true},
		{gap, false},
	} {
		if got := s.doubted(step.err); got != step.doubted {
			t.Errorf("step %d, %v: doubted %t", n, step.err, got)
		}
	}
}
