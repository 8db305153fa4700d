package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
)

// ErrOtherHistory: the stream does not contain what was published. The server
// was restored from a copy, or its WAL went another way; its new rows have LSNs
// that were used before, so going on would drop them in silence.
var ErrOtherHistory = errors.New("the server's history is not the one that was published")

// Resume decides, after a start, which transactions a previous run has already
// published: exactly those at or below the checkpoint's position. It never
// trusts LSNs alone. When the slot stands before the checkpoint's own
// transaction, that transaction must come by as the last one dropped, with the
// same commit LSN, xid and commit time; and no other commit may lie between it
// and the covered LSN. One that was split comes by too, and is admitted without
// the rows that are published. Once it admits, it admits for ever.
type Resume struct {
	edge      Edge
	expect    bool // the checkpoint's transaction has to come by
	admitting bool
	dropped   uint64
}

// NewResume starts from the durable checkpoint's edge and the slot's confirmed
// position, where the stream begins: the server sends transactions whose commit
// LSN is at or beyond it.
func NewResume(edge Edge, slotConfirmed pglogrepl.LSN) *Resume {
	return &Resume{edge: edge, expect: edge.XID != 0 && edge.CommitLSN >= slotConfirmed}
}

// Dropped counts the transactions left out because they are published.
func (r *Resume) Dropped() uint64 { return r.dropped }

// Admit reports whether the transaction is new, and how many of its first rows
// are published all the same. An error wraps ErrOtherHistory.
func (r *Resume) Admit(b decode.Begin) (admitted bool, published uint32, err error) {
	if r.admitting {
		return true, 0, nil
	}
	switch {
	case b.CommitLSN < r.edge.CommitLSN && (r.edge.Ordinal == 0 || b.CommitLSN < r.edge.Covered):
		r.dropped++
		return false, 0, nil
	case b.CommitLSN == r.edge.CommitLSN && r.edge.XID != 0:
		if b.XID != r.edge.XID || !b.CommitTime.Equal(r.edge.CommitTime) {
			return false, 0, fmt.Errorf("%w: transaction %s is xid %d of %s, published was xid %d of %s", ErrOtherHistory,
				b.CommitLSN, b.XID, b.CommitTime.UTC().Format(time.RFC3339Nano), r.edge.XID, r.edge.CommitTime.UTC().Format(time.RFC3339Nano))
		}
		r.expect = false
		if r.edge.Ordinal > 0 {
			r.admitting = true
			return true, r.edge.Ordinal, nil
		}
		r.dropped++
		return false, 0, nil
	case r.expect:
		return false, 0, r.missing(b.CommitLSN)
	case b.CommitLSN < r.edge.Covered:
		return false, 0, fmt.Errorf("%w: transaction %s (xid %d) lies below the covered LSN %s and was not in the stream before",
			ErrOtherHistory, b.CommitLSN, b.XID, r.edge.Covered)
	}
	r.admitting = true
	return true, 0, nil
}

// Pass takes a keepalive outside a transaction: everything up to lsn was sent. It
// passes once the checkpoint's transaction has come by. Before that it proves
// nothing, not even beyond what is covered: a split transaction lies behind it.
func (r *Resume) Pass(lsn pglogrepl.LSN) (passed bool, err error) {
	if r.expect && lsn > r.edge.CommitLSN {
		return false, r.missing(lsn)
	}
	return !r.expect, nil
}

func (r *Resume) missing(lsn pglogrepl.LSN) error {
	return fmt.Errorf("%w: the stream reached %s without transaction %s (xid %d), the last one published",
		ErrOtherHistory, lsn, r.edge.CommitLSN, r.edge.XID)
}
