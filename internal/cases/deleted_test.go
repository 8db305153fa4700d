package cases

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Retention: all old rows are deleted at once while new ones come. Nothing of the
// deletion leaves the server: no record, no row lost or doubled, hardly any work for
// walstream, and the position moves past it.
func TestC43ManyRowsDeleted(t *testing.T) { inBothAtOnce(t, manyRowsDeleted) }

func manyRowsDeleted(t *testing.T) {
	r := sharedRig(t)
	rows, bound := 30_000, int64(128<<20)
	if full() {
		rows, bound = 1_000_000, 192<<20
	}
	s := r.warm()
	const batch = 10_000
	for range rows / batch {
		r.put(batch)
	}
	r.untilConfirmed()
	busy, err := cpuTime(s.PID())
	r.check(err)
	began := time.Now()
	done := make(chan error, 1)
	other := r.connect()
	go func() {
		_, err := other.Exec(r.ctx, `DELETE FROM bank_outbox WHERE seq <= $1`, rows)
		done <- err
	}()
	late := 0
	for deleted := false; !deleted; {
		select {
		case err := <-done:
			r.check(err)
			deleted = true
		default:
		}
		r.put(5)
		late += 5
	}
	took := time.Since(began)
	r.untilConfirmed()
	after, err := cpuTime(s.PID())
	r.check(err)
	peak, err := peakMemory(s.PID())
	r.check(err)
	t.Logf("%d rows deleted in %s, confirmed in %s; %.2f s of CPU for that and %d rows, peak memory %d MiB",
		rows, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), after-busy, late, peak>>20)
	if peak > bound {
		t.Errorf("peak memory %d MiB", peak>>20)
	}
	r.markersWritten(r.topic)
	ids, duplicates := r.eventIDs()
	if want := 1 + rows + late; len(ids) != want || duplicates != 0 {
		t.Errorf("%d rows are in the topic, and %d twice; %d were inserted", len(ids), duplicates, want)
	}
}

// eventIDs of the topic, which may have more records than fit into memory.
func (r *rig) eventIDs() (ids map[string]bool, duplicates int) {
	r.t.Helper()
	ids = map[string]bool{}
	eachRecord(r.t, r.ctx, r.brokers, r.topic, func(rec *kgo.Record) {
		id := header(rec, "walstream-event-id")
		if ids[id] {
			duplicates++
		}
		ids[id] = true
		if len(rec.Value) == 0 {
			r.t.Fatalf("no value at %s", header(rec, "walstream-position"))
		}
	})
	return ids, duplicates
}
