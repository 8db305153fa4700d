package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// txn of a model stream.
type txn struct {
	commit, end pglogrepl.LSN
	at          time.Time
	ids         []int64
}

// durable is what Kafka holds of a model pipeline: a checkpoint and the buckets that
// were written with it or before it.
type durable struct {
	covered pglogrepl.LSN
	next    int // of the stream: the first transaction that is not covered
	ordinal int // rows of it that are published
	open    *Open
	buckets []Bucket
}

// stream of transactions whose ids, and commit times, do not rise with their LSNs.
func stream(r *rand.Rand) (txns []txn) {
	lsn, at, id := pglogrepl.LSN(100), noon, int64(0)
	for range 30 + r.IntN(60) {
		t := txn{commit: lsn, end: lsn + 5, at: at.Add(-time.Duration(r.IntN(20)) * time.Second)}
		for range 1 + r.IntN(4) {
			id++
			t.ids = append(t.ids, max(1, id-int64(r.IntN(40)))) // drawn long ago
		}
		txns = append(txns, t)
		lsn += pglogrepl.LSN(5 + r.IntN(5))
		at = at.Add(time.Duration(r.IntN(15)) * time.Second)
	}
	return txns
}

// run one instance, from what is durable until it crashes or has all: checkpoints
// at random places, also inside of transactions, of which some never become durable.
func run(r *rand.Rand, txns []txn, d durable) durable {
	id := Identity{Pipeline: "p", SystemID: "7", Timeline: uint32(1 + r.IntN(2)), Database: "app"}
	rec := NewRecorder(id, d.covered)
	if d.open != nil {
		rec.Continue(d.open)
	}
	now := time.Unix(1_000_000, 0)
	at := durable{covered: d.covered, next: d.next, ordinal: d.ordinal} // what is counted
	checkpoint := func() {
		now = now.Add(time.Duration(r.IntN(40)) * time.Second)
		buckets, open := rec.At(at.covered, at.ordinal == 0, now)
		if r.IntN(10) == 0 {
			return // the answer never comes, and the instance ends
		}
		d.covered, d.next, d.ordinal = at.covered, at.next, at.ordinal
		copied := &Open{From: open.From}
		copied.Merge(&open.Tally)
		d.open, d.buckets = copied, append(d.buckets, buckets...)
	}
	for at.next < len(txns) && r.IntN(40) > 0 {
		t := &txns[at.next]
		rec.Open().Commit(t.commit, t.at)
		for i := at.ordinal; i < len(t.ids); i++ {
			rec.Open().Add(&Row{Table: "public.outbox", ID: t.ids[i], Numbered: true})
			if at.ordinal = i + 1; at.ordinal < len(t.ids) && r.IntN(8) == 0 {
				before := d.next
				if checkpoint(); d.next != at.next || before == d.next && d.ordinal != at.ordinal {
					return d
				}
			}
		}
		at.covered, at.next, at.ordinal = t.end, at.next+1, 0
		if r.IntN(3) == 0 {
			if checkpoint(); d.covered != at.covered {
				return d
			}
		}
		if r.IntN(6) == 0 && (at.next == len(txns) || txns[at.next].commit > at.covered) { // an idle position
			at.covered++
			if checkpoint(); d.covered != at.covered {
				return d
			}
		}
	}
	return d
}

// Whatever crashes where, and in whatever order ids are committed: the least id of
// all buckets that end beyond X is not above that of a row committed at or beyond X,
// and no row is counted twice.
func TestLeastIsNeverAboveARowCommittedBeyond(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		txns := stream(r)
		d := durable{covered: 90}
		for runs := 0; d.next < len(txns) && runs < 200; runs++ {
			d = run(r, txns, d)
		}
		if err := verify(txns, d); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func verify(txns []txn, d durable) error {
	all := append([]Bucket(nil), d.buckets...)
	if d.open != nil && d.covered > d.open.From {
		all = append(all, Bucket{SystemID: "7", Database: "app", From: d.open.From, To: d.covered, Tally: d.open.Tally})
	}
	if from, to := Reach(all); from != 90 || to != d.covered {
		return fmt.Errorf("known from %s to %s, not from 0/5A to %s", from, to, d.covered)
	}
	for i := 1; i < len(all); i++ {
		if all[i].From != all[i-1].To {
			return fmt.Errorf("a bucket begins at %s, the one before ends at %s", all[i].From, all[i-1].To)
		}
	}
	if whole, err := Least(all, 90); err == nil && d.ordinal == 0 {
		rows := 0
		for _, t := range txns[:d.next] {
			rows += len(t.ids)
		}
		if uint64(rows) != whole[0].Rows {
			return fmt.Errorf("%d rows are counted, %d were published", whole[0].Rows, rows)
		}
	}
	for x := pglogrepl.LSN(90); x < d.covered; x++ {
		bounds, err := Least(all, x)
		if err != nil {
			return err
		}
		for _, t := range txns[:d.next] {
			for _, id := range t.ids {
				if t.commit >= x && (len(bounds) == 0 || !bounds[0].HasIDs || id < bounds[0].Least || id > bounds[0].Greatest) {
					return fmt.Errorf("row %d was committed at %s, beyond %s: %+v", id, t.commit, x, bounds)
				}
			}
		}
	}
	return nil
}

// A bucket that ended inside a transaction would hide its first rows from whoever
// asks for the transaction's LSN. The check above has to find that.
func TestTheCheckFindsABucketThatEndsInsideATransaction(t *testing.T) {
	rec := NewRecorder(Identity{SystemID: "7", Database: "app"}, 90)
	open := rec.Open()
	open.Commit(100, noon)
	open.Add(&Row{Table: "public.outbox", ID: 1, Numbered: true})
	rec.At(95, true, noon)
	buckets, _ := rec.At(95, true, noon.Add(time.Hour)) // said to be whole, and is not
	open.Commit(100, noon)
	open.Add(&Row{Table: "public.outbox", ID: 2, Numbered: true})
	_, left := rec.At(105, true, noon.Add(time.Hour))
	d := durable{covered: 105, next: 1, open: left, buckets: buckets}
	if err := verify([]txn{{commit: 100, end: 105, at: noon, ids: []int64{1, 2}}}, d); err == nil {
		t.Fatal("nothing was found")
	}
}

func TestBucketsEndByTimeAndVolume(t *testing.T) {
	clock := time.Unix(1_000_000, 0)
	row := &Row{Table: "public.outbox", ID: 1, Numbered: true, Bytes: 1 << 20}
	for _, c := range []struct {
		name    string
		rows    int
		commits time.Duration // between the first commit and the last
		clock   time.Duration // between two checkpoints
		ended   bool
	}{
		{"young", 1, 0, span - 1, false},
		{"a minute by the clock", 1, 0, span, true},
		{"a minute by commit times", 1, span, spared, true},
		{"a minute by commit times, and no second", 1, span, spared - 1, false},
		{"64 MB", 64, 0, 0, true},
		{"without rows", 0, span, 24 * time.Hour, false},
	} {
		r := NewRecorder(Identity{}, 10)
		for range c.rows {
			r.Open().Commit(15, noon)
			r.Open().Commit(16, noon.Add(c.commits))
			r.Open().Add(row)
		}
		first, _ := r.At(20, true, clock)
		second, open := r.At(30, true, clock.Add(c.clock))
		if ended := len(first)+len(second) > 0; ended != c.ended {
			t.Errorf("%s: ended is %v", c.name, ended)
		} else if !ended && (open.From != 10 || open.Rows() != uint64(c.rows)) {
			t.Errorf("%s: %+v stays open", c.name, open)
		}
	}
	r := NewRecorder(Identity{}, 10)
	r.Open().Commit(15, noon)
	r.Open().Add(row)
	r.At(12, false, clock)
	if buckets, _ := r.At(12, false, clock.Add(time.Hour)); len(buckets) > 0 {
		t.Errorf("a bucket ended inside a transaction: %+v", buckets)
	}
}

func TestWhatIsNotGoneOnFromIsFinished(t *testing.T) {
	old := &Open{From: 10}
	old.Commit(15, noon)
	old.Add(&Row{Table: "public.outbox", ID: 3, Numbered: true})
	r := NewRecorder(Identity{SystemID: "8", Timeline: 2}, 50)
	r.Finish(Identity{SystemID: "7", Timeline: 1}, old, 20)
	buckets, open := r.At(50, true, noon)
	if len(buckets) != 1 || buckets[0].SystemID != "7" || buckets[0].From != 10 || buckets[0].To != 20 || buckets[0].Rows() != 1 || open.From != 50 || open.Rows() != 0 {
		t.Fatalf("%+v, then %+v", buckets, open)
	}
	if again, _ := r.At(60, true, noon); len(again) != 0 {
		t.Fatalf("written twice: %+v", again)
	}
}
