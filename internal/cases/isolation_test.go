package cases

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// The search for bad rows that only the broker can tell, in one large transaction,
// takes longer than --max-transaction-time: the transaction is split in the midst of
// it, again and again, and the search goes on behind what is committed. Every row is
// there once, each bad one is a dead letter once, and the splits that are counted are
// those that the checkpoints show.
func TestC48IsolationOutlastsTheTransaction(t *testing.T) {
	t.Parallel()
	t.Run(exactlyOnce, isolationOutlasts)
}

func isolationOutlasts(t *testing.T) {
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	args := r.makeYoungTopic()
	rows, culprits := 3000, []int{1, 1700, 1701, 3000}
	if full() {
		rows, culprits = 40_000, []int{1, 500, 501, 17_000, 17_300, 25_000, 39_999, 40_000}
	}
	s := r.warm(append(args, "--on-poison", "dead-letter", "--max-transaction-time", "100ms", "--max-in-flight-bytes", "256KiB")...)
	proxy.Latency(30 * time.Millisecond) // a group of rows waits for the answer to the one before
	r.put(3)
	r.exec(putOld, rows, culprits)
	r.put(3)
	r.untilConfirmed()
	proxy.Restore()
	isBad := r.badOf("aggregate_type = 'old'")
	if len(isBad) != len(culprits) {
		t.Fatalf("%d bad rows", len(isBad))
	}
	r.verifyPoison("dead-letter", isBad, r.topic)
	r.untilCounted(s, "dead-letter", "timestamp", len(isBad))
	if letters := r.letters(); len(letters) != len(culprits) {
		t.Errorf("%d dead letters", len(letters))
	}
	splits := r.splitCheckpoints()
	if splits < 2 {
		t.Errorf("%d splits: the search did not outlast a transaction", splits)
	}
	var counted uint64
	r.until("the splits to be counted", func() bool {
		var state struct {
			Splits uint64 `json:"split_transactions"`
		}
		_, body, err := s.Get(r.ctx, "/status")
		r.check(err)
		r.check(json.Unmarshal(body, &state))
		counted = state.Splits
		return counted >= splits
	})
	status, err := s.Status(r.ctx)
	r.check(err)
	t.Logf("%d splits, restarts %v", splits, status.Restarts)
	if counted != splits {
		t.Errorf("%d splits are counted, and %d checkpoints lie within a transaction", counted, splits)
	}
}

// splitCheckpoints counts the committed checkpoints that end inside a transaction.
func (r *rig) splitCheckpoints() (n uint64) {
	r.t.Helper()
	for _, rec := range readTopic(r.t, r.ctx, r.brokers, "walstream.checkpoints."+r.pipeline) {
		var record struct {
			Ordinal  uint32
			Complete bool
		}
		r.check(json.Unmarshal(rec.Value, &record))
		if record.Ordinal > 0 && !record.Complete {
			n++
		}
	}
	return n
}
