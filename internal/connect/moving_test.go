package connect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
)

const grace = 30 * time.Second

var (
	overtaken = seam{firstWalstream: false, againWalstream: true}
	returned  = seam{firstWalstream: true, againWalstream: false}
)

// From Debezium to walstream, back, and to walstream again, with rows written all
// the time: docs/moving-from-debezium.md, in its own order.
func TestMoveAndBack(t *testing.T) {
	for _, c := range []struct {
		delivery string
		own      bool // publication of our own, not the connector's
	}{
		{"at-least-once", false},
		{"exactly-once", true},
	} {
		t.Run(c.delivery, func(t *testing.T) {
			r := newRig(t, "moving_"+strings.ReplaceAll(c.delivery, "-", "_"), c.delivery)
			r.moveAndBack(c.own)
		})
	}
}

func (r *rig) moveAndBack(own bool) {
	r.startConnector()
	l := r.startLoad()
	r.untilMore(false, 200)
	if own { // while the connector still streams: the WAL must not hold rows from before the publication
		r.publication = r.connector.Name + "_pub"
		r.exec(`CREATE PUBLICATION ` + r.publication + ` FOR TABLE public.outboxevent (id, aggregatetype, aggregateid, payload)
			WITH (publish = 'insert', publish_via_partition_root = true)`)
		r.untilMore(false, 50)
	}

	// A paused connector keeps the slot: walstream stands by.
	r.check(r.worker.Pause(r.ctx, r.connector.Name))
	waiting := r.walstream()
	_, err := waiting.WaitFor(r.ctx, "standing by", func(s service.Status) bool { return s.State == "standby" })
	r.check(err)
	r.check(waiting.Stop(grace))

	// There.
	r.check(r.worker.StopConnector(r.ctx, r.connector.Name))
	code, log := r.refusal(r.walstream())
	at := r.confirmed()
	if code != 4 || !strings.Contains(log, "--adopt-slot="+at) {
		r.t.Fatalf("without adopt-slot: exit code %d, no --adopt-slot=%s in\n%s", code, at, log)
	}
	s := r.walstream("--adopt-slot=" + at)
	r.check(s.WaitStreaming(r.ctx))
	r.untilMore(true, 200)

	// And back. The server has let go of what the connector's stored offset names,
	// as it does within a minute: it refuses until it is told to trust the slot.
	r.untilRestartBeyondOffset(func() {})
	r.check(s.Stop(grace))
	covered := r.confirmed()
	r.check(r.worker.Resume(r.ctx, r.connector.Name))
	err = r.worker.WaitStreaming(r.ctx, r.connector)
	var failed *TaskFailed
	if !errors.As(err, &failed) || !strings.Contains(failed.Trace, "no longer available on the server") {
		r.t.Fatalf("without trust_slot: %v", err)
	}
	r.check(r.worker.StopConnector(r.ctx, r.connector.Name))
	r.connector.Settings["offset.mismatch.strategy"] = "trust_slot"
	r.check(r.worker.Put(r.ctx, r.connector.Name, r.connector.Config()))
	r.check(r.worker.Resume(r.ctx, r.connector.Name))
	r.check(r.worker.WaitStreaming(r.ctx, r.connector))
	r.untilMore(false, 200)

	// And there again: the slot is ahead of walstream's checkpoint.
	r.check(r.worker.StopConnector(r.ctx, r.connector.Name))
	at = r.confirmed()
	code, log = r.refusal(r.walstream())
	gap := "--accept-gap=" + covered + ".." + at
	if code != 4 || !strings.Contains(log, gap) {
		r.t.Fatalf("without accept-gap: exit code %d, no %s in\n%s", code, gap, log)
	}
	s = r.walstream(gap)
	r.check(s.WaitStreaming(r.ctx))
	r.untilMore(true, 200)
	r.check(l.end())
	m := r.untilAll()
	r.check(s.Stop(grace))
	r.t.Log(m)

	// A connector stopped in order confirms a position before the end of its last
	// transaction: PostgreSQL sends that one once more, twice there and never back.
	if len(m.transactions[overtaken]) > 2 || len(m.transactions[returned]) > 0 || len(m.duplicates) > 1 {
		r.t.Errorf("more duplicates than the last transaction of the connector: %v %v", m, m.transactions)
	}
}

// untilRestartBeyondOffset waits until the slot needs no WAL from where the
// connector's stored offset stands. The server notes every 15 s from where it
// could begin, or when asked to; read is called for whoever has to read on.
func (r *rig) untilRestartBeyondOffset(read func()) {
	r.t.Helper()
	offsets, err := r.worker.Offsets(r.ctx, r.connector.Name)
	r.check(err)
	if len(offsets) != 1 {
		r.t.Fatalf("offsets %+v", offsets)
	}
	stored := int64(offsets[0].Offset["lsn"].(float64)) // of a test's WAL: exact
	r.until("restart_lsn beyond the offset", func() bool {
		r.exec(`SELECT pg_log_standby_snapshot()`)
		read()
		return r.text(`SELECT (restart_lsn > '0/0'::pg_lsn + $2::numeric)::text FROM pg_replication_slots WHERE slot_name = $1`,
			r.connector.Slot, fmt.Sprint(stored)) == "true"
	})
}

// A worker that was killed has confirmed nothing since its last flush (once a
// minute by default, here more often): walstream sends all of that again, from
// there on and no more.
func TestMoveFromAKilledWorker(t *testing.T) {
	r := newRig(t, "moving_killed", "exactly-once")
	r.startConnector()
	begin := r.confirmed()
	l := r.startLoad()
	r.until("a flush", func() bool { return r.confirmed() != begin })
	r.untilMore(false, 100)
	r.check(r.worker.Kill())
	t.Cleanup(func() { // the others' worker
		if err := r.worker.Start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.untilSlotFree()
	s := r.walstream("--adopt-slot=" + r.confirmed())
	r.check(s.WaitStreaming(r.ctx))
	r.untilMore(true, 200)
	r.check(l.end())
	m := r.untilAll()
	r.check(s.Stop(grace))
	t.Log(m)
	again := m.duplicates[overtaken]
	if len(again) == 0 || len(again) == m.byDebezium || len(m.duplicates) > 1 {
		t.Fatalf("want what the connector sent since its last flush twice: %v", m)
	}
	slices.SortFunc(again, func(a, b written) int { return a.number - b.number })
	if first, last := again[0].number, again[len(again)-1].number; last != m.byDebezium-1 || last-first+1 != len(again) {
		t.Errorf("rows %d to %d twice, %d of them; want the connector's last ones, to %d", first, last, len(again), m.byDebezium-1)
	}
}
