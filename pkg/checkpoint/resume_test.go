package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"

	"github.com/walstream/walstream/pkg/decode"
)

func txAt(lsn pglogrepl.LSN, xid uint32) decode.Begin {
	return decode.Begin{CommitLSN: lsn, XID: xid, CommitTime: epoch.Add(time.Duration(xid) * time.Second)}
}

func TestResume(t *testing.T) {
	// Published up to transaction 500 (xid 5), and idle time up to 600.
	published := Edge{Covered: 600, CommitLSN: 500, XID: 5, CommitTime: epoch.Add(5 * time.Second)}
	elsewhere := txAt(500, 5)
	elsewhere.CommitTime = elsewhere.CommitTime.Add(time.Microsecond)
	local := txAt(500, 5)
	local.CommitTime = local.CommitTime.In(time.FixedZone("", 3600))
	keepalive := func(lsn pglogrepl.LSN) any { return lsn }
	for _, test := range []struct {
		name  string
		edge  Edge
		slot  pglogrepl.LSN
		come  []any  // decode.Begin, or the LSN of a keepalive
		want  string // d: dropped, a: admitted, -: keepalive taken, !: refused
		words string
	}{
		{"the published ones, then new ones", published, 300, []any{txAt(300, 3), txAt(400, 4), txAt(500, 5), txAt(600, 6), txAt(700, 7)}, "dddaa", ""},
		{"the slot stands right at the last one", published, 500, []any{txAt(500, 5), txAt(650, 6)}, "da", ""},
		{"the slot has passed the last one", published, 501, []any{txAt(650, 6)}, "a", ""},
		{"the same instant in another zone", published, 300, []any{local, txAt(650, 6)}, "da", ""},
		{"nothing new, only keepalives", published, 600, []any{keepalive(650), keepalive(700)}, "--", ""},
		{"keepalives up to the last one", published, 300, []any{keepalive(300), keepalive(500), txAt(500, 5), keepalive(510)}, "--d-", ""},
		{"commit times that fall", published, 500, []any{txAt(500, 5), txAt(650, 1), txAt(700, 0)}, "daa", ""},
		{"once it admits, it admits", published, 501, []any{txAt(650, 6), txAt(100, 1), txAt(500, 9)}, "aaa", ""},
		{"a fresh start", Edge{Covered: 100}, 100, []any{txAt(100, 1), txAt(101, 2)}, "aa", ""},
		{"a tail that was lost", Edge{Covered: 400, CommitLSN: 400}, 200, []any{txAt(200, 2), keepalive(399), txAt(399, 3), keepalive(420), txAt(430, 4)}, "d-d-a", ""},
		{"a new transaction at the switch point", Edge{Covered: 400, CommitLSN: 400}, 200, []any{txAt(400, 4)}, "a", ""},
		{"a tail that was lost, later", Edge{Covered: 450, CommitLSN: 400}, 400, []any{txAt(430, 4)}, "!", "below the covered LSN 0/1C2"},

		{"another xid", published, 300, []any{txAt(500, 6)}, "!", "xid 6"},
		{"another commit time", published, 300, []any{elsewhere}, "!", "2026-11-30T12:00:05.000001Z"},
		{"the last one does not come", published, 300, []any{txAt(300, 3), txAt(700, 7)}, "d!", "reached 0/2BC without transaction 0/1F4 (xid 5)"},
		{"the last one does not come, the slot right at it", published, 500, []any{txAt(700, 7)}, "!", "without transaction 0/1F4"},
		{"a keepalive passes it", published, 300, []any{txAt(300, 3), keepalive(501)}, "d!", "reached 0/1F5 without transaction 0/1F4"},
		{"a stranger between it and the covered LSN", published, 300, []any{txAt(500, 5), txAt(599, 6)}, "d!", "0/257 (xid 6) lies below the covered LSN 0/258"},
		{"a stranger, the slot beyond the last one", published, 550, []any{txAt(560, 6)}, "!", "lies below the covered LSN"},
		{"nothing published, a stranger in idle time", Edge{Covered: 200}, 100, []any{txAt(150, 1)}, "!", "lies below the covered LSN"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := NewResume(test.edge, test.slot)
			var got strings.Builder
			var dropped uint64
			for _, what := range test.come {
				word, err := resumeStep(r, what)
				got.WriteString(word)
				if word == "d" {
					dropped++
				}
				if word == "!" && (!errors.Is(err, ErrOtherHistory) || !strings.Contains(err.Error(), test.words)) {
					t.Errorf("error %v, want one that says %q", err, test.words)
				}
			}
			if got.String() != test.want || r.Dropped() != dropped {
				t.Errorf("%s with %d dropped, want %s", got.String(), r.Dropped(), test.want)
			}
		})
	}
}

func resumeStep(r *Resume, what any) (word string, err error) {
	if lsn, ok := what.(pglogrepl.LSN); ok {
		if _, err := r.Pass(lsn); err != nil {
			return "!", err
		}
		return "-", nil
	}
	admitted, _, err := r.Admit(what.(decode.Begin))
	switch {
	case err != nil:
		return "!", err
	case admitted:
		return "a", nil
	}
	return "d", nil
}

// world is a server's history, what was published of it by a naive publisher
// that remembers every transaction, and the slot.
type world struct {
	history   []decode.Begin
	ends      map[decode.Begin]pglogrepl.LSN
	end       pglogrepl.LSN // of the WAL
	published map[decode.Begin]bool
	edge      Edge
	slot      pglogrepl.LSN
	xid       uint32
	clock     int
}

// commit writes a transaction; others write WAL around it.
func (w *world) commit(t *rapid.T) {
	w.end += pglogrepl.LSN(rapid.IntRange(0, 3).Draw(t, "other wal"))
	w.xid++
	w.clock++
	w.history = append(w.history, decode.Begin{CommitLSN: w.end, XID: w.xid, CommitTime: epoch.Add(time.Duration(w.clock) * time.Millisecond)})
	w.end += pglogrepl.LSN(rapid.IntRange(1, 3).Draw(t, "commit record"))
	w.ends[w.history[len(w.history)-1]] = w.end
}

// restore brings the server back to how it was when its WAL ended at lsn. The
// transactions it repeats have the same xids, and sometimes the same LSNs.
func (w *world) restore(lsn pglogrepl.LSN) {
	for len(w.history) > 0 && w.history[len(w.history)-1].CommitLSN >= lsn {
		w.history = w.history[:len(w.history)-1]
		w.xid--
	}
	w.end, w.slot = lsn, min(w.slot, lsn)
}

// run is one run of the stream from the slot to the end of the WAL, stopped
// somewhere. It returns what Resume made of it.
func (w *world) run(t *rapid.T, stopAt int) error {
	r := NewResume(w.edge, w.slot)
	var dropped []decode.Begin // and not published
	began := w.edge
	for i, tx := range w.history {
		if tx.CommitLSN < w.slot {
			continue
		}
		if i >= stopAt {
			return nil // a crash: everything is as durable as it was
		}
		if i > 0 && rapid.Bool().Draw(t, "keepalive") {
			if err := w.pass(r, min(tx.CommitLSN, w.end)); err != nil {
				return err
			}
		}
		admitted, _, err := r.Admit(tx)
		if err != nil {
			return err
		}
		switch {
		case admitted && w.published[tx]:
			t.Fatalf("%+v published twice; began at %+v", tx, began)
		case admitted && len(dropped) > 0:
			t.Fatalf("%+v admitted after %+v was dropped unpublished", tx, dropped)
		case !admitted && !w.published[tx]:
			dropped = append(dropped, tx)
		case admitted:
			w.published[tx] = true
			w.edge = Edge{Covered: w.ends[tx], CommitLSN: tx.CommitLSN, XID: tx.XID, CommitTime: tx.CommitTime}
		}
	}
	if err := w.pass(r, w.end); err != nil {
		return err
	}
	if len(dropped) > 0 && w.end > began.CommitLSN {
		t.Fatalf("%+v dropped unpublished, and the stream went on to %s; began at %+v", dropped, w.end, began)
	}
	return nil
}

// pass is a keepalive: idle time is covered like a transaction.
func (w *world) pass(r *Resume, lsn pglogrepl.LSN) error {
	if _, err := r.Pass(lsn); err != nil {
		return err
	}
	w.edge.Covered = max(w.edge.Covered, lsn)
	return nil
}

// Over random histories, runs and crashes, what is admitted is exactly what a
// publisher that remembers everything has not published. After a restore, either
// that still holds, or the stream stops before anything is published or covered
// beyond what was dropped.
func TestResumeAgainstNaive(t *testing.T) {
	stopped, restored := 0, 0
	property := func(t *rapid.T) {
		w := &world{end: 10, slot: 10, edge: Edge{Covered: 10}, published: map[decode.Begin]bool{}, ends: map[decode.Begin]pglogrepl.LSN{}}
		fork := pglogrepl.LSN(0) // of the oldest restore; 0: none
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2, 3:
				w.commit(t)
			case 4:
				w.end += pglogrepl.LSN(rapid.IntRange(1, 9).Draw(t, "idle"))
			case 5: // the slot follows the checkpoint, at any distance
				w.slot = pglogrepl.LSN(rapid.Uint64Range(uint64(w.slot), uint64(min(w.edge.Covered, w.end))).Draw(t, "slot"))
			case 6:
				fork = pglogrepl.LSN(rapid.Uint64Range(10, uint64(w.end)).Draw(t, "restored to"))
				w.restore(fork)
				restored++
			default:
				if w.edge.Covered > w.end {
					continue // Compare refuses: RefuseRestored
				}
				stopAt := rapid.IntRange(0, len(w.history)+1).Draw(t, "crash")
				if err := w.run(t, stopAt); err != nil {
					if fork == 0 || !errors.Is(err, ErrOtherHistory) {
						t.Fatalf("stopped in the history it had published: %v", err)
					}
					stopped++
					return
				}
			}
		}
	}
	for range 20 { // a check is short: one hundred say little
		rapid.Check(t, property)
	}
	t.Logf("%d restores, %d stopped the stream", restored, stopped)
	if stopped == 0 || restored == 0 {
		t.Errorf("%d restores, %d of them stopped the stream: the model shows nothing", restored, stopped)
	}
}

func ExampleResume() {
	published := Edge{Covered: 0x300, CommitLSN: 0x200, XID: 8, CommitTime: epoch}
	r := NewResume(published, 0x100)
	for _, tx := range []decode.Begin{
		{CommitLSN: 0x100, XID: 7, CommitTime: epoch},
		{CommitLSN: 0x200, XID: 8, CommitTime: epoch},
		{CommitLSN: 0x300, XID: 9, CommitTime: epoch},
	} {
		fmt.Println(r.Admit(tx))
	}
	// Output:
	// false 0 <nil>
	// false 0 <nil>
	// true 0 <nil>
}

// A transaction that was split comes by and is admitted without its first rows;
// everything before it is published, and nothing may stand between.
func TestResumeSplitTransaction(t *testing.T) {
	split := Edge{Covered: 0x180, CommitLSN: 0x200, XID: 8, CommitTime: epoch, Ordinal: 500}
	earlier := decode.Begin{CommitLSN: 0x100, XID: 7, CommitTime: epoch}
	itself := decode.Begin{CommitLSN: 0x200, XID: 8, CommitTime: epoch}
	later := decode.Begin{CommitLSN: 0x300, XID: 9, CommitTime: epoch}

	r := NewResume(split, 0x100)
	for _, step := range []struct {
		tx        decode.Begin
		admitted  bool
		published uint32
	}{{earlier, false, 0}, {itself, true, 500}, {later, true, 0}} {
		admitted, published, err := r.Admit(step.tx)
		if admitted != step.admitted || published != step.published || err != nil {
			t.Errorf("%s: %t, %d, %v; want %t, %d", step.tx.CommitLSN, admitted, published, err, step.admitted, step.published)
		}
	}
	for name, tx := range map[string]decode.Begin{
		"another transaction in its place": {CommitLSN: 0x200, XID: 80, CommitTime: epoch},
		"a stranger before it":             {CommitLSN: 0x190, XID: 80, CommitTime: epoch},
		"a later one without it":           later,
	} {
		if admitted, _, err := NewResume(split, 0x100).Admit(tx); admitted || !errors.Is(err, ErrOtherHistory) {
			t.Errorf("%s: %t, %v; want ErrOtherHistory", name, admitted, err)
		}
	}
	r = NewResume(split, 0x100)
	for _, lsn := range []pglogrepl.LSN{split.Covered, 0x200} {
		if passed, err := r.Pass(lsn); passed || err != nil {
			t.Errorf("a keepalive at %s, before it: %t, %v; it proves nothing", lsn, passed, err)
		}
	}
	if _, err := NewResume(split, 0x100).Pass(0x201); !errors.Is(err, ErrOtherHistory) {
		t.Errorf("a keepalive beyond it: %v, want ErrOtherHistory", err)
	}
}
