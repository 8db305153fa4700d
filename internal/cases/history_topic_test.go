package cases

import (
	"math/rand/v2"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/sink"
)

// The history topic against the truth: rows whose ids were drawn long before their
// transactions commit, several writers, and walstream killed in between. For every
// LSN the least id that history knows is not above that of a row committed at or
// beyond it, every row is counted once, and no stretch is missing.
func TestHistoryTopicTellsTheTruth(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		args := []string{"--id-column", "seq"}
		s := r.stream(args...)
		begun, _ := r.confirmed()
		stop := r.writeLate(4)
		for range 3 {
			time.Sleep(700 * time.Millisecond)
			s.Kill()
			s = r.stream(args...)
		}
		// 64 MB end a bucket; what is still in the checkpoint goes on behind it.
		r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'account', 'large', 'deposited', to_jsonb(repeat('x', 900000)) FROM generate_series(1, 76)`)
		time.Sleep(500 * time.Millisecond)
		stop()
		r.untilConfirmed()
		s.Kill()

		buckets := r.history()
		committed := map[int64]pglogrepl.LSN{} // by row id
		r.markersWritten(r.topic)
		for _, record := range r.published() {
			id, err := strconv.ParseInt(header(record, "walstream-event-id"), 10, 64)
			r.check(err)
			position, err := decode.ParsePosition(header(record, "walstream-position"))
			r.check(err)
			committed[id] = position.CommitLSN
		}
		from, to := history.Reach(buckets)
		confirmed, _ := r.confirmed()
		if from > begun || to < confirmed {
			t.Errorf("history reaches from %s to %s; the stream began at %s, and %s is confirmed", from, to, begun, confirmed)
		}
		written, counted := 0, uint64(0)
		for i := range buckets {
			counted += buckets[i].Rows()
			if !buckets[i].Unfinished {
				written++
			}
		}
		if counted != uint64(len(committed)) {
			t.Errorf("history counts %d rows, %d were published", counted, len(committed))
		}
		if written == 0 {
			t.Errorf("64 MB ended no bucket: %+v", buckets)
		}
		verifyLeast(t, buckets, committed)
	})
}

// verifyLeast asks for every commit LSN, going backwards.
func verifyLeast(t *testing.T, buckets []history.Bucket, committed map[int64]pglogrepl.LSN) {
	t.Helper()
	ids := make([]int64, 0, len(committed))
	for id := range committed {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return committed[ids[i]] > committed[ids[j]] })
	least, late := int64(1<<62), 0
	for i, id := range ids {
		if id < least {
			least = id
		} else if id > least {
			late++
		}
		if i+1 < len(ids) && committed[ids[i+1]] == committed[id] {
			continue
		}
		bounds, err := history.Least(buckets, committed[id])
		if err != nil || len(bounds) != 1 || !bounds[0].HasIDs || bounds[0].Least > least {
			t.Fatalf("rows committed from %s on have least id %d: %+v %v", committed[id], least, bounds, err)
		}
	}
	if late == 0 {
		t.Error("ids came in the order of commits: nothing was shown")
	}
}

// writeLate has so many writers draw ids and commit them later, until stop.
func (r *rig) writeLate(writers int) (stop func()) {
	r.t.Helper()
	done := make(chan struct{})
	var writing sync.WaitGroup
	for range writers {
		conn := r.connect()
		writing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				tx, err := conn.Begin(r.ctx)
				if err == nil {
					_, err = tx.Exec(r.ctx, putSQL, 1+rand.IntN(5))
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				if err == nil {
					err = tx.Commit(r.ctx)
				}
				if err != nil {
					r.t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	return func() { close(done); writing.Wait() }
}

// history as a replay reads it.
func (r *rig) history() []history.Bucket {
	r.t.Helper()
	k, err := sink.Open(sink.Config{Brokers: r.brokers, Pipeline: r.pipeline, MaxInFlight: checkpoint.Limits{Events: 1, Bytes: 1}})
	r.check(err)
	defer k.Close()
	buckets, err := k.History(r.ctx)
	r.check(err)
	return buckets
}
