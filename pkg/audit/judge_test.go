package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// world is a table and a topic that agree, until a case plants a fault.
type world struct {
	rows    []row
	records []record
	letters []letter
	scope   scope
	facts   facts
	untimed bool
}

// newWorld has four transactions (xids 100 to 103, commit LSNs 1000 to 4000) with
// one, three, two and one rows: ids r1 to r7, keys k0 and k1, one partition each.
func newWorld() *world {
	w := &world{
		scope: scope{tables: 1},
		facts: facts{
			due: dueness{all: true, next: 200}, covered: 5000, until: 5000, complete: true,
			topics: map[string]topicFacts{},
		},
	}
	n, offsets := 0, [2]int64{}
	for i, size := range []int{1, 3, 2, 1} {
		for ordinal := range size {
			n++
			key := fmt.Sprint("k", n%2)
			id, value := fmt.Sprint("r", n), fmt.Sprint("v", n)
			w.rows = append(w.rows, row{
				id: []byte(id), topic: "t", key: []byte(key), value: []byte(value), xid: uint32(100 + i), tid: uint64(n), at: int64(n),
			})
			w.records = append(w.records, record{
				place: uint32(n % 2), offset: offsets[n%2], id: []byte(id), key: []byte(key), value: []byte(value),
				timeline: 1, lsn: pglogrepl.LSN(1000 * (i + 1)), ordinal: uint32(ordinal + 1), producer: 7,
			})
			offsets[n%2] += 2
		}
	}
	return w
}

// row and record of event n.
func (w *world) row(n int) *row       { return &w.rows[n-1] }
func (w *world) record(n int) *record { return &w.records[n-1] }

// lose takes the record of event n away, and unrow its row.
func (w *world) lose(n int)  { w.record(n).id = nil }
func (w *world) unrow(n int) { w.row(n).id = nil }

// repeat writes the record of event n once more, at the end of its partition.
func (w *world) repeat(n int, producer int64) *record {
	again := *w.record(n)
	again.offset, again.producer = 1000+again.offset, producer
	w.records = append(w.records, again)
	return &w.records[len(w.records)-1]
}

// withoutIDs makes it a table without event ids: lost and removed ones go first.
func (w *world) withoutIDs() {
	w.drop()
	for i := range w.rows {
		w.rows[i].id = nil
	}
	for i := range w.records {
		w.records[i].id = nil
	}
}

func (w *world) drop() {
	w.rows = slices.DeleteFunc(w.rows, func(r row) bool { return r.id == nil })
	w.records = slices.DeleteFunc(w.records, func(r record) bool { return r.id == nil })
}

func (w *world) judge(t testing.TB, memory int) *Result {
	t.Helper()
	j := newJudge(w.scope, t.TempDir(), memory)
	j.places = []place{{"t", 0}, {"t", 1}}
	return w.judgeBy(t, j)
}

func (w *world) judgeBy(t testing.TB, j *judge) *Result {
	t.Helper()
	return w.judgeWith(t, j)
}

// judgeWith serves rapid's T as well.
func (w *world) judgeWith(t interface{ Fatal(args ...any) }, j *judge) *Result {
	defer j.close()
	j.timed = []bool{!w.untimed, !w.untimed}
	for i := range w.rows {
		if err := j.addRow(&w.rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.records {
		if err := j.addRecord(&w.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.letters {
		if err := j.addLetter(&w.letters[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := j.judge(w.facts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// numbers are what a case expects, by the names of Result.
type numbers = Result

func TestJudge(t *testing.T) {
	all := numbers{Verdict: Clean, Rows: 7, Found: 7, Records: 7}
	with := func(change func(*numbers)) numbers {
		n := all
		change(&n)
		return n
	}
	for _, c := range []struct {
		name  string
		plant func(*world)
		want  numbers
		says  string // an example
	}{
		{"all is well", func(*world) {}, all, ""},
		{"nothing at all", func(w *world) { w.rows, w.records = nil, nil }, numbers{Verdict: Clean}, ""},
		{"a transaction is missing", func(w *world) { w.lose(1) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Missing, n.Older = Difference, 6, 6, 1, 1
		}), "missing"},
		{"a row in the middle of a transaction is missing", func(w *world) { w.lose(3) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Missing, n.Torn = Difference, 6, 6, 1, 1
		}), "of transaction 101 (commit 0/7D0) some rows are in the topics and 1 are not"},
		{"the last row of a transaction is missing", func(w *world) { w.lose(6) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Missing, n.Torn = Difference, 6, 6, 1, 1
		}), "of transaction 102"},
		{"a torn transaction whose missing row was deleted: the topics tell", func(w *world) { w.lose(3); w.unrow(3) }, with(func(n *numbers) {
			n.Verdict, n.Rows, n.Found, n.Records, n.Torn = Difference, 6, 6, 6, 1
		}), "events 1 to 3 ought to be in the topics, and 2 of them are"},
		{"the same where ordinals may belong elsewhere", func(w *world) { w.lose(3); w.unrow(3); w.facts.complete = false }, with(func(n *numbers) {
			n.Rows, n.Found, n.Records, n.Holes = 6, 6, 6, 1
		}), ""},
		{"a hole in a transaction that the checkpoint does not cover", func(w *world) { w.lose(5); w.unrow(5); w.facts.covered = 3000 }, with(func(n *numbers) {
			n.Rows, n.Found, n.Records = 6, 6, 6
		}), ""},
		{"rows with a later update's xid are not called torn", func(w *world) {
			w.lose(1)
			for n := 1; n <= 7; n++ {
				w.row(n).xid = 150
			}
		}, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Missing, n.Older, n.Updated = Difference, 6, 6, 1, 1, 1
		}), "missing"},
		{"a duplicate by the same producer", func(w *world) { w.repeat(2, 7) }, with(func(n *numbers) {
			n.Verdict, n.Duplicates = Difference, 1
		}), "t/0@1000 repeats t/0@0 (producers 7 and 7)"},
		{"a duplicate behind a restart, at-least-once", func(w *world) { w.repeat(2, 8) }, with(func(n *numbers) {
			n.Duplicates, n.DuplicatesAllowed = 1, 1
		}), ""},
		{"a third copy by the first producer", func(w *world) { w.repeat(2, 8); w.repeat(2, 7).offset++ }, with(func(n *numbers) {
			n.Verdict, n.Duplicates, n.DuplicatesAllowed = Difference, 2, 1
		}), "duplicate"},
		{"a duplicate in Kafka transactions", func(w *world) { w.record(2).transactional = true; w.repeat(2, 8) }, with(func(n *numbers) {
			n.Verdict, n.Duplicates = Difference, 1
		}), "duplicate"},
		{"a duplicate over a change of delivery", func(w *world) { w.repeat(2, 8).transactional = true }, with(func(n *numbers) {
			n.Duplicates, n.DuplicatesAllowed = 1, 1
		}), ""},
		{"a replay is no duplicate", func(w *world) { w.repeat(2, 7).replay = true }, with(func(n *numbers) { n.Replayed = 1 }), ""},
		{"a row that was only replayed is there", func(w *world) { w.repeat(7, 7).replay = true; w.lose(7) }, with(func(n *numbers) {
			n.Replayed, n.Records = 1, 6
		}), ""},
		{"and its transaction is not torn", func(w *world) {
			r := w.repeat(3, 7)
			r.replay, r.lsn, r.ordinal = true, 2, 1 // from the table: a page's position
			w.lose(3)
		}, with(func(n *numbers) { n.Replayed, n.Records, n.Holes = 1, 6, 1 }), ""},
		{"a replay of a row that is no longer in the table", func(w *world) { w.repeat(3, 7).replay = true; w.lose(3); w.unrow(3) }, with(func(n *numbers) {
			n.Rows, n.Found, n.Replayed, n.Records, n.Holes = 6, 6, 1, 6, 1
		}), ""},
		{"the same event at another position", func(w *world) { w.repeat(2, 8).lsn = 4500 }, with(func(n *numbers) {
			n.Verdict, n.Duplicates = Difference, 1
		}), "at another position"},
		{"an id that is in use again", func(w *world) { r := w.repeat(2, 8); r.lsn, r.value = 4500, []byte("other") }, with(func(n *numbers) {
			n.Records, n.Reused, n.WithoutRow = 8, 1, 1
		}), ""},
		{"two of a key are swapped", func(w *world) {
			a, b := w.record(2), w.record(4)
			a.offset, b.offset = b.offset, a.offset
		}, with(func(n *numbers) { n.Verdict, n.Reordered = Difference, 1 }), "reordered t/0@2 (position 0/7D0#1) stands behind t/0@0 (position 0/7D0#3)"},
		{"two of different keys change places", func(w *world) {
			a, b := w.record(2), w.record(3)
			a.offset, b.offset = b.offset, a.offset
			a.place, b.place = b.place, a.place
		}, with(func(n *numbers) { n.Moved = 2 }), ""},
		{"duplicates do not reorder", func(w *world) { w.repeat(2, 8); w.repeat(4, 8) }, with(func(n *numbers) {
			n.Duplicates, n.DuplicatesAllowed = 2, 2
		}), ""},
		{"no key, no order", func(w *world) {
			a, b := w.record(2), w.record(4)
			a.offset, b.offset = b.offset, a.offset
			for i := range w.rows {
				w.rows[i].key, w.records[i].key = nil, nil
			}
		}, all, ""},
		{"a later timeline is a later position", func(w *world) { w.record(7).timeline, w.record(7).lsn = 2, 500 }, all, ""},
		{"an earlier timeline is another server", func(w *world) {
			for n := 1; n <= 6; n++ {
				w.record(n).timeline = 2
			}
		}, with(func(n *numbers) { n.Histories = 1 }), ""},
		{"a value was altered", func(w *world) { w.record(5).value = []byte("x") }, with(func(n *numbers) {
			n.Verdict, n.Altered = Difference, 1
		}), "altered t/1@4"},
		{"NULL is not empty", func(w *world) { w.record(5).value, w.row(5).value = nil, []byte{} }, with(func(n *numbers) {
			n.Verdict, n.Altered = Difference, 1
		}), "altered"},
		{"deleted rows", func(w *world) { w.unrow(1); w.unrow(2) }, with(func(n *numbers) {
			n.Rows, n.Found, n.WithoutRow = 5, 5, 2
		}), ""},
		{"events since", func(w *world) { w.facts.until = 4000; w.unrow(7) }, with(func(n *numbers) {
			n.Rows, n.Found, n.Since = 6, 6, 1
		}), ""},
		{"a row that is not due yet", func(w *world) { w.lose(7); w.facts.due = dueness{below: 103, next: 104} }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.NotDue = Undecided, 6, 6, 1
		}), ""},
		{"a row that is due by catalog_xmin", func(w *world) { w.lose(7); w.facts.due = dueness{below: 104, next: 104} }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Missing = Difference, 6, 6, 1
		}), "missing"},
		{"half of a transaction that is not due yet", func(w *world) { w.lose(6); w.facts.due = dueness{below: 102, next: 104}; w.facts.covered = 2500 }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.NotDue = Undecided, 6, 6, 1
		}), ""},
		{"an open transaction hides it", func(w *world) { w.lose(7); w.facts.topics["t"] = topicFacts{hidden: true} }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Hidden = Undecided, 6, 6, 1
		}), ""},
		{"compaction", func(w *world) { w.lose(5); w.facts.topics["t"] = topicFacts{compacted: true}; w.facts.complete = false }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Forgotten, n.Holes = Undecided, 6, 6, 1, 1
		}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// With a budget that holds everything, and one that holds nothing.
			for _, memory := range []int{1 << 20, 1} {
				w := newWorld()
				c.plant(w)
				w.drop()
				got := w.judge(t, memory)
				compare(t, got, c.want)
				if memory == 1 && len(w.rows) > 0 && got.Spilled == 0 {
					t.Error("nothing was spilled: this proves nothing")
				}
				if said := examplesOf(got); !strings.Contains(said, c.says) || c.says == "" && said != "" {
					t.Errorf("said %q, want %q", said, c.says)
				}
			}
		})
	}
}

// Tables without an event id: a row is told by its content.
func TestJudgeWithoutIDs(t *testing.T) {
	all := numbers{Verdict: Clean, Rows: 7, Found: 7, Records: 7}
	with := func(change func(*numbers)) numbers {
		n := all
		change(&n)
		return n
	}
	alike := func(w *world, of ...int) { // rows and records with one content
		for _, n := range of {
			w.row(n).key, w.row(n).value = []byte("k0"), []byte("same")
			w.record(n).key, w.record(n).value = []byte("k0"), []byte("same")
		}
	}
	for _, c := range []struct {
		name  string
		plant func(*world)
		want  numbers
		says  string
	}{
		{"all is well", func(*world) {}, all, ""},
		{"a row is missing, torn", func(w *world) { w.lose(3) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Missing, n.Torn = Difference, 6, 6, 1, 1
		}), "missing"},
		{"a duplicate", func(w *world) { w.repeat(3, 7) }, with(func(n *numbers) {
			n.Verdict, n.Duplicates = Difference, 1
		}), "duplicate"},
		{"an altered record is a missing row and an event of none", func(w *world) { w.record(1).value = []byte("x") }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Missing, n.Older, n.WithoutRow = Difference, 6, 1, 1, 1
		}), "missing"},
		{"rows alike", func(w *world) { alike(w, 2, 4, 6) }, with(func(n *numbers) { n.Shared = 3 }), ""},
		{"one of rows alike is missing", func(w *world) { alike(w, 2, 4, 6); w.lose(4) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Shared, n.Missing = Difference, 6, 6, 3, 1
		}), "1 of 3 rows alike"},
		{"one of rows alike is missing in a gap of ordinals", func(w *world) { alike(w, 2, 4, 6); w.lose(2) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Shared, n.Missing, n.Torn = Difference, 6, 6, 3, 1, 1
		}), "1 of 3 rows alike"},
		{"one of rows alike is not due", func(w *world) {
			alike(w, 2, 4, 7)
			w.lose(7)
			w.facts.due = dueness{below: 103, next: 104}
		}, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Shared, n.NotDue = Undecided, 6, 6, 3, 1
		}), ""},
		{"one of rows alike is deleted", func(w *world) { alike(w, 2, 4, 6); w.unrow(2) }, with(func(n *numbers) {
			n.Rows, n.Found, n.Shared, n.WithoutRow = 6, 6, 2, 1
		}), ""},
		{"one of rows alike was forgotten", func(w *world) {
			alike(w, 2, 4, 6)
			w.lose(2)
			w.facts.topics["t"], w.facts.complete = topicFacts{forgets: true}, false
		}, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Shared, n.Forgotten, n.Holes = Undecided, 6, 6, 3, 1, 1
		}), ""},
		{"one of rows alike is hidden", func(w *world) {
			alike(w, 2, 4, 6)
			w.lose(6)
			w.facts.topics["t"], w.facts.complete = topicFacts{hidden: true}, false
		}, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Shared, n.Hidden = Undecided, 6, 6, 3, 1
		}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			c.plant(w)
			w.withoutIDs()
			got := w.judge(t, 1<<20)
			compare(t, got, c.want)
			if said := examplesOf(got); !strings.Contains(said, c.says) || c.says == "" && said != "" {
				t.Errorf("said %q, want %q", said, c.says)
			}
		})
	}
}

// What is outside of the range is neither missing nor wrong.
func TestJudgeRanges(t *testing.T) {
	byRows := func(w *world, least, most int64) { // as the query would leave them
		w.scope.byTable, w.facts.complete = true, false
		w.rows = slices.DeleteFunc(w.rows, func(r row) bool { return r.at < least || r.at > most })
	}
	for _, c := range []struct {
		name  string
		plant func(*world)
		want  numbers
	}{
		{"ids 2 to 4", func(w *world) { byRows(w, 2, 4) }, numbers{Verdict: Clean, Rows: 3, Found: 3, Records: 3}},
		{"missing outside of the ids", func(w *world) { w.lose(1); w.lose(7); byRows(w, 2, 4) }, numbers{Verdict: Clean, Rows: 3, Found: 3, Records: 3}},
		{"missing within the ids", func(w *world) { w.lose(3); byRows(w, 2, 4) }, numbers{
			Verdict: Difference, Rows: 3, Found: 2, Records: 2, Missing: 1, Torn: 1,
		}},
		{"duplicates outside of the ids", func(w *world) { w.repeat(1, 7); w.repeat(7, 7); byRows(w, 2, 4) }, numbers{Verdict: Clean, Rows: 3, Found: 3, Records: 3}},
		{"a duplicate within the ids", func(w *world) { w.repeat(4, 7); byRows(w, 2, 4) }, numbers{
			Verdict: Difference, Rows: 3, Found: 3, Records: 3, Duplicates: 1,
		}},
		{"swapped outside of the ids", func(w *world) {
			w.record(1).offset, w.record(3).offset = w.record(3).offset, w.record(1).offset
			byRows(w, 4, 7)
		}, numbers{Verdict: Clean, Rows: 4, Found: 4, Records: 4}},
		{"LSNs 2000 to 3000", func(w *world) { w.scope.from, w.scope.to = 2000, 3000 }, numbers{Verdict: Clean, Rows: 5, Found: 5, Records: 5}},
		{"LSNs from 3000 on", func(w *world) { w.scope.from = 3000 }, numbers{Verdict: Clean, Rows: 3, Found: 3, Records: 3}},
		{"LSNs up to 1000", func(w *world) { w.scope.to = 1000 }, numbers{Verdict: Clean, Rows: 1, Found: 1, Records: 1}},
		{"missing outside of the LSNs", func(w *world) { w.lose(1); w.lose(7); w.scope.from, w.scope.to = 2000, 3000 }, numbers{
			Verdict: Clean, Rows: 5, Found: 5, Records: 5,
		}},
		{"missing within the LSNs", func(w *world) { w.lose(3); w.scope.from, w.scope.to = 2000, 3000 }, numbers{
			Verdict: Difference, Rows: 5, Found: 4, Records: 4, Missing: 1, Torn: 1,
		}},
		{"a duplicate outside of the LSNs", func(w *world) { w.repeat(1, 7); w.scope.from = 2000 }, numbers{Verdict: Clean, Rows: 6, Found: 6, Records: 6}},
		{"a hole within the LSNs", func(w *world) { w.lose(3); w.unrow(3); w.scope.from, w.scope.to = 2000, 3000 }, numbers{
			Verdict: Difference, Rows: 4, Found: 4, Records: 4, Torn: 1,
		}},
		{"a deleted row outside of the LSNs", func(w *world) { w.unrow(1); w.scope.from = 2000 }, numbers{Verdict: Clean, Rows: 6, Found: 6, Records: 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			c.plant(w)
			w.drop()
			compare(t, w.judge(t, 1<<20), c.want)
		})
	}
}

// A topic that forgot its oldest records says nothing of rows as old as these.
func TestJudgeForgotten(t *testing.T) {
	start := time.UnixMicro(1)
	for _, c := range []struct {
		name  string
		plant func(*world, *topicFacts)
		want  numbers
	}{
		{"the oldest are gone", func(w *world, f *topicFacts) { w.lose(1); w.lose(2); f.forget(start.Add(time.Microsecond - edgeTime)) }, numbers{
			Verdict: Undecided, Rows: 7, Found: 5, Records: 5, Forgotten: 2, Holes: 1,
		}},
		{"a younger one is missing", func(w *world, f *topicFacts) { w.lose(1); w.lose(7); f.younger, f.forgets = 6, true }, numbers{
			Verdict: Difference, Rows: 7, Found: 5, Records: 5, Forgotten: 1, Missing: 1,
		}},
		{"the partition that forgot most decides", func(w *world, f *topicFacts) {
			w.lose(4)
			f.forget(start)
			f.forget(start.Add(time.Hour))
			f.forget(start)
		}, numbers{
			Verdict: Undecided, Rows: 7, Found: 6, Records: 6, Forgotten: 1,
		}},
		{"the user says that it reaches back", func(w *world, f *topicFacts) { w.lose(1); f.forget(start); w.scope.claimed = true }, numbers{
			Verdict: Difference, Rows: 7, Found: 6, Records: 6, Missing: 1, Older: 1,
		}},
		{"rows have no time", func(w *world, f *topicFacts) { w.lose(7); f.younger, f.forgets = 1, true; w.untimed = true }, numbers{
			Verdict: Undecided, Rows: 7, Found: 6, Records: 6, Forgotten: 1,
		}},
		{"a row has no time", func(w *world, f *topicFacts) { w.lose(7); f.younger, f.forgets = 1, true; w.row(7).at = 0 }, numbers{
			Verdict: Undecided, Rows: 7, Found: 6, Records: 6, Forgotten: 1,
		}},
		{"a partition is empty", func(w *world, f *topicFacts) {
			w.lose(7)
			f.forget(start.Add(-time.Hour))
			f.forget(time.Time{})
			f.forget(start.Add(-time.Hour))
		}, numbers{
			Verdict: Undecided, Rows: 7, Found: 6, Records: 6, Forgotten: 1,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			w.facts.complete = false
			f := topicFacts{}
			c.plant(w, &f)
			w.facts.topics["t"] = f
			w.drop()
			compare(t, w.judge(t, 1<<20), c.want)
		})
	}
}

// Two tables may give out the same event ids: a topic tells them apart.
func TestJudgeTwoTables(t *testing.T) {
	w := newWorld()
	w.scope.tables = 2
	for n := range 3 {
		id, value := []byte(fmt.Sprint("r", n+1)), []byte("of the other")
		w.rows = append(w.rows, row{owner: 1, id: id, topic: "u", value: value, xid: 150, tid: 1, at: 1})
		w.records = append(w.records, record{place: 2, offset: int64(n), id: id, value: value, timeline: 1, lsn: 4500, ordinal: uint32(n + 1)})
	}
	j := newJudge(w.scope, t.TempDir(), 1<<20)
	j.places = []place{{"t", 0}, {"t", 1}, {"u", 0}}
	compare(t, w.judgeBy(t, j), numbers{Verdict: Clean, Rows: 10, Found: 10, Records: 10})
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		d    dueness
		xid  uint32
		want bool
	}{
		{dueness{all: true}, 500, true},
		{dueness{next: 1000}, 500, false}, // no slot
		{dueness{below: 600, next: 1000}, 599, true},
		{dueness{below: 600, next: 1000}, 600, false},
		{dueness{below: 600, next: 1000}, 999, false},
		{dueness{below: 600, next: 1000}, 2, true},                     // frozen
		{dueness{below: 600, next: 1000}, 1 << 31, true},               // ancient: its like is not given out yet
		{dueness{below: 4_294_967_000, next: 50}, 4_294_966_999, true}, // around the end of the numbers
		{dueness{below: 4_294_967_000, next: 50}, 4_294_967_100, false},
		{dueness{below: 4_294_967_000, next: 50}, 49, false},
	} {
		if got := c.d.due(c.xid); got != c.want {
			t.Errorf("%+v: xid %d is due: %v", c.d, c.xid, got)
		}
	}
}

func examplesOf(r *Result) string {
	var b strings.Builder
	for _, e := range r.examples {
		fmt.Fprintf(&b, "%s %s\n", e.kind, e.text)
	}
	return b.String()
}

// compare looks at the numbers and the verdict only.
func compare(t *testing.T, got *Result, want numbers) {
	t.Helper()
	plain := *got
	plain.Examples, plain.Notes, plain.Covered, plain.Until, plain.Spilled, plain.shown, plain.examples = nil, nil, 0, 0, 0, nil, nil
	if g, w := fmt.Sprintf("%+v", plain), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}
