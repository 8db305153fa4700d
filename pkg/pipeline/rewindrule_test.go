package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/replication"
)

var rewindNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const gib = 1 << 30

// rewindState of a slot that keeps so much WAL up to 100 GiB, behind one that keeps
// less.
func rewindState(kept, mainKept int64) *replication.Rewind {
	end := pglogrepl.LSN(100 * gib)
	r := &replication.Rewind{At: rewindNow, WALEnd: end, Main: true}
	r.Slot.Exists = true
	r.Slot.Restart, r.Slot.ConfirmedFlush = end-pglogrepl.LSN(kept), end-pglogrepl.LSN(kept)+16
	r.MainRestart, r.MainConfirmed = end-pglogrepl.LSN(mainKept), end-pglogrepl.LSN(mainKept)+16
	return r
}

func TestRewindFollowsTheWindow(t *testing.T) {
	m := &rewindMemory{rule: Rewind{Window: time.Hour}}
	for minute := range 121 {
		m.mark(rewindNow.Add(time.Duration(minute-120)*time.Minute), pglogrepl.LSN(1000+minute))
	}
	r := rewindState(0, 0)
	r.WALEnd, r.MainConfirmed, r.Slot.ConfirmedFlush = 2000, 1120, 1010
	if move := m.decide(r, false); move.To != 1060 || move.Why != "" {
		t.Errorf("moved to %d, an hour ago it stood at 1060", move.To)
	}
	if since := m.reach(1060); !since.Equal(rewindNow.Add(-time.Hour)) {
		t.Errorf("reaches back to %s", since)
	}
	r.MainConfirmed = 1030 // made anew, say
	if move := m.decide(r, false); move.To != 1030 {
		t.Errorf("moved to %d, beyond the slot that it trails", move.To)
	}
	r.MainConfirmed, m.moved = 1120, rewindNow.Add(-4*time.Minute)
	if move := m.decide(r, false); move != (rewindMove{}) {
		t.Errorf("moved within five minutes: %+v", move)
	}
	m.moved, r.Slot.ConfirmedFlush = time.Time{}, 1060
	if move := m.decide(r, false); move != (rewindMove{}) {
		t.Errorf("moved to where it stands: %+v", move)
	}
	r.IdleTimeout = true
	if move := m.decide(r, false); move.To != 1060 {
		t.Errorf("it has to be used, or the server gives it up: %+v", move)
	}
	m.mark(rewindNow, 500)
	if len(m.marks) != 1 {
		t.Errorf("marks of another history count: %v", m.marks)
	}
}

func TestRewindNearItsLimits(t *testing.T) {
	safe := func(left int64) func(*replication.Rewind) {
		return func(r *replication.Rewind) { r.Slot.SafeWALSize = &left }
	}
	for _, c := range []struct {
		name           string
		rule           Rewind
		kept, mainKept int64
		change         func(*replication.Rewind)
		tried          bool
		move           bool
		giveUp         string
	}{
		{"within all", Rewind{MaxBytes: 10 * gib, Budget: 10 * gib}, 6 * gib, 0, safe(5 * gib), false, false, ""},
		{"near its own", Rewind{MaxBytes: 10 * gib}, 8 * gib, 0, nil, false, true, ""},
		{"near the budget", Rewind{Budget: 10 * gib}, 8 * gib, 0, nil, false, true, ""},
		{"near the server's", Rewind{}, 8 * gib, 0, safe(2 * gib), false, true, ""},
		{"beyond, and not tried", Rewind{MaxBytes: 10 * gib}, 12 * gib, 0, nil, false, true, ""},
		{"beyond, and it did not help", Rewind{MaxBytes: 10 * gib}, 12 * gib, 0, nil, true, false, "--rewind-max"},
		{"beyond the budget", Rewind{Budget: 10 * gib}, 9 * gib, 0, nil, true, false, "--max-retained-wal"},
		{"beyond the server's", Rewind{}, 95 * gib / 10, 0, safe(gib / 2), true, false, "max_slot_wal_keep_size"},
		{"lost any moment", Rewind{}, 12 * gib, 0, safe(-gib), true, false, "max_slot_wal_keep_size"},
		{"moved, and near", Rewind{MaxBytes: 10 * gib}, 8 * gib, 0, nil, true, false, ""},
		{"the other slot keeps it", Rewind{MaxBytes: 10 * gib}, 12 * gib, 12 * gib, nil, true, false, ""},
		{"the other slot keeps most of it", Rewind{MaxBytes: 10 * gib}, 12 * gib, 12*gib - gib/4, nil, true, false, ""},
		{"nothing to move", Rewind{MaxBytes: 10 * gib}, 12 * gib, 11 * gib, func(r *replication.Rewind) { r.Slot.ConfirmedFlush = r.MainConfirmed }, false, false, "--rewind-max"},
	} {
		c.rule.Window = 24 * time.Hour
		m := &rewindMemory{rule: c.rule, moved: rewindNow}
		r := rewindState(c.kept, c.mainKept)
		if c.change != nil {
			c.change(r)
		}
		move := m.decide(r, c.tried)
		if (move.To != 0) != c.move || (move.GiveUp == "") != (c.giveUp == "") || !strings.Contains(move.GiveUp, c.giveUp) {
			t.Errorf("%s: %+v", c.name, move)
		}
		if move.To > r.MainConfirmed || move.To != 0 && move.To <= r.Slot.ConfirmedFlush {
			t.Errorf("%s: moved from %s to %s, with the other slot at %s", c.name, r.Slot.ConfirmedFlush, move.To, r.MainConfirmed)
		}
	}
}

func TestRewindRecallsHistory(t *testing.T) {
	m := &rewindMemory{rule: Rewind{Window: time.Hour}}
	bucket := func(to pglogrepl.LSN, ago time.Duration, unfinished bool) history.Bucket {
		b := history.Bucket{From: to - 10, To: to, Unfinished: unfinished}
		b.Commit(to-1, rewindNow.Add(-ago))
		return b
	}
	m.recall([]history.Bucket{
		bucket(100, 3*time.Hour, false), bucket(200, 90*time.Minute, false), bucket(300, 2*time.Hour, false),
		bucket(400, time.Minute, false), bucket(900, 30*time.Second, false), bucket(500, 10*time.Second, true),
	}, 450)
	m.mark(rewindNow, 450)
	if at := m.passed(rewindNow); at < 0 || m.marks[at].LSN != 300 || !m.marks[at].At.Equal(rewindNow.Add(-90*time.Minute)) {
		t.Fatalf("%d of %v", at, m.marks)
	}
	m.recall([]history.Bucket{bucket(10, time.Hour, false)}, 450)
	if m.marks[len(m.marks)-1].LSN != 450 {
		t.Errorf("recalled over what was seen: %v", m.marks)
	}
}
