package pipeline

import (
	"errors"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/replication"
)

// doubted reports that a refusal to start is the first of its kind in a row. Slot,
// server and checkpoint are read one after the other: an instance that was paused
// in between compares the present of one with the past of another, and a
// successor at work looks like a server that was restored, or a slot that is gone.
// So a refusal counts when the next start, made at once, says the same. And where
// the slot is lost between two steps of a start, the server only refuses to stream
// from it: the next start sees that, and says how large the gap is.
func (s *Supervisor) doubted(err error) bool {
	var kind checkpoint.RefusalKind
	if refusal, ok := errors.AsType[*checkpoint.Refusal](err); ok {
		kind = refusal.Kind
	} else if errors.Is(err, replication.ErrWALRemoved) {
		kind = checkpoint.RefuseSlotLost
	}
	first := kind != "" && kind != s.doubt
	s.doubt = kind
	return first
}
