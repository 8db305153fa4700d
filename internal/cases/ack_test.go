package cases

import (
	"testing"
	"time"
)

// The plain way: rows arrive once, in order, and the slot follows; a clean stop
// leaves nothing to send again.
func TestStreamStopStart(t *testing.T) {
	r := sharedRig(t)
	first := r.stream()
	r.put(100)
	r.untilConfirmed()
	r.check(first.Stop(10 * time.Second))
	r.put(50)
	second := r.stream()
	r.untilConfirmed()
	r.check(second.Stop(10 * time.Second))
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates after a clean stop", duplicates)
	}
}
