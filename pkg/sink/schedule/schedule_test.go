package schedule

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
)

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type testRow struct {
	number  int // over the whole stream
	weight  int
	begun   *checkpoint.Edge
	ordinal uint32
}

func (r *testRow) Weight() int             { return r.weight }
func (r *testRow) Begun() *checkpoint.Edge { return r.begun }
func (r *testRow) Ordinal() uint32         { return r.ordinal }

// stream puts transactions 10 LSNs apart into a schedule.
type stream struct {
	*Schedule[*testRow]
	begun checkpoint.Edge
	rows  int // ever
	count uint32
}

func newStream(o Options) *stream {
	return &stream{Schedule: New[*testRow](o), begun: checkpoint.Edge{Covered: 1000, CommitLSN: 1005}}
}

func (s *stream) row(weight int) {
	s.rows++
	s.count++
	begun := s.begun
	s.Put(&testRow{s.rows, weight, &begun, s.count})
}

func (s *stream) end() {
	covered := s.begun.Covered + 10
	s.End(&checkpoint.Edge{Covered: covered, CommitLSN: s.begun.CommitLSN})
	s.begun, s.count = checkpoint.Edge{Covered: covered, CommitLSN: s.begun.CommitLSN + 10}, 0
}

func (s *stream) whole(weights ...int) {
	for _, weight := range weights {
		s.row(weight)
	}
	s.end()
}

// take everything the transaction takes now, and return how many rows.
func take(tx *Transaction[*testRow], now time.Time) (rows int, step Step) {
	for {
		more, step := tx.Take(now)
		if rows += len(more); step != Rows {
			return rows, step
		}
	}
}

func options() Options {
	return Options{
		Window:         checkpoint.Limits{Events: 4000, Bytes: 64 << 20},
		CommitInterval: 5 * time.Millisecond, CommitMaxBytes: 100,
		MaxTime: 10 * time.Second, IdlePause: 100 * time.Millisecond,
	}
}

func wantNext(t *testing.T, s *stream, now time.Time, step Step, pause time.Duration) {
	t.Helper()
	if gotStep, gotPause := s.Next(now); gotStep != step || gotPause != pause {
		t.Errorf("next is %v after %v, want %v after %v", gotStep, gotPause, step, pause)
	}
}

func commit(t *testing.T, tx *Transaction[*testRow], now time.Time) {
	t.Helper()
	if _, err := tx.Answered(nil, now); err != nil {
		t.Fatal(err)
	}
}

// What is complete is joined up to the limit; the rest waits for the next, which
// comes after the interval, or at once when nothing was waiting.
func TestJoined(t *testing.T) {
	now := midnight
	s := newStream(options())
	wantNext(t, s, now, Wait, forever)
	s.whole(60)
	s.whole(40)
	s.whole(1)
	for lane, want := range []struct {
		rows    int
		covered pglogrepl.LSN
	}{{2, 1020}, {1, 1030}} {
		wantNext(t, s, now, Ready, 0)
		tx := s.Begin(now)
		wantNext(t, s, now, Wait, forever)
		if rows, step := take(tx, now); rows != want.rows || step != Finish {
			t.Errorf("%d rows, then step %v", rows, step)
		}
		if tx.Lane != lane || tx.Edge() != (checkpoint.Edge{Covered: want.covered, CommitLSN: want.covered - 5}) || tx.Split() || tx.Idle {
			t.Errorf("%+v", tx)
		}
		commit(t, tx, now.Add(time.Millisecond))
		if lane == 0 {
			wantNext(t, s, now.Add(2*time.Millisecond), Ready, 3*time.Millisecond)
		}
		now = now.Add(5 * time.Millisecond)
	}
	s.whole(101) // larger than the limit, and alone
	wantNext(t, s, now, Ready, 0)
	tx := s.Begin(now)
	s.whole(1) // behind the beginning
	if rows, _ := take(tx, now); rows != 1 || tx.Lane != 0 {
		t.Errorf("%d rows on lane %d", rows, tx.Lane)
	}
}

// A large transaction opens one of Kafka before its end, goes on with chunks, and
// is split when the time is up.
func TestSplit(t *testing.T) {
	now := midnight
	s := newStream(options())
	for n := range 1000 {
		wantNext(t, s, now, Wait, forever)
		s.row(n)
	}
	wantNext(t, s, now, Ready, 0) // a quarter of the window
	tx := s.Begin(now)
	if rows, step := take(tx, now); rows != 1000 || step != Wait {
		t.Errorf("%d rows, then step %v", rows, step)
	}
	now = tx.Deadline
	if _, step := tx.Take(now); step != Finish {
		t.Errorf("step %v at the deadline", step)
	}
	want := checkpoint.Edge{Covered: 1000, CommitLSN: 1005, Ordinal: 1000}
	if tx.Edge() != want || !tx.Split() {
		t.Errorf("ends at %+v, want %+v", tx.Edge(), want)
	}
	commit(t, tx, now)
	s.end()
	rest := s.Begin(now)
	if _, step := take(rest, now); step != Finish || rest.Split() || rest.Edge().Covered != 1010 || rest.Lane != 1 {
		t.Errorf("the rest is %+v", rest)
	}
}

// When the time is up, what is nearly complete is finished.
func TestNearEnd(t *testing.T) {
	for name, c := range map[string]struct {
		left  int
		split bool
	}{"near": {chunkWeight, false}, "far": {chunkWeight + 1, true}} {
		s := newStream(options())
		s.whole(chunkWeight, c.left)
		tx := s.Begin(midnight)
		tx.Take(midnight)
		if _, step := take(tx, tx.Deadline); step != Finish || tx.Split() != c.split {
			t.Errorf("%s: step %v, split %v", name, step, tx.Split())
		}
	}
}

// Complete transactions are not torn when the time is up: it ends between two.
func TestTimeIsUpBetweenTwo(t *testing.T) {
	s := newStream(options())
	s.whole(1, 1)
	s.whole(1, 1)
	tx := s.Begin(midnight)
	if rows, step := take(tx, tx.Deadline.Add(time.Hour)); rows != 2 || step != Finish || tx.Split() || tx.Edge().Covered != 1010 {
		t.Errorf("%d rows, %+v", rows, tx)
	}
}

func TestIdle(t *testing.T) {
	now := midnight
	s := newStream(options())
	s.whole(1)
	s.Idle(checkpoint.Edge{Covered: 1010}) // its End covers that
	tx := s.Begin(now)
	take(tx, now)
	commit(t, tx, now)
	wantNext(t, s, now, Wait, forever)
	s.Idle(checkpoint.Edge{Covered: 1011})
	s.Idle(checkpoint.Edge{Covered: 1012})
	wantNext(t, s, now, Wait, 100*time.Millisecond)
	now = now.Add(100 * time.Millisecond)
	wantNext(t, s, now, Ready, 0)
	tx = s.Begin(now)
	if rows, step := tx.Take(now); len(rows) > 0 || step != Finish || !tx.Idle || tx.Split() || tx.Edge().Covered != 1012 {
		t.Errorf("%+v", tx)
	}
	commit(t, tx, now)
	wantNext(t, s, now, Wait, forever)
	s.Idle(checkpoint.Edge{Covered: 1013})
	s.whole(1)
	wantNext(t, s, now, Ready, 0)
	tx = s.Begin(now)
	if rows, _ := take(tx, now); rows != 1 || tx.Idle {
		t.Errorf("%+v", tx)
	}
	commit(t, tx, now)
	wantNext(t, s, now.Add(time.Hour), Wait, forever) // passed
}

// What lies before a row that was refused is finished; what is open is not.
func TestOver(t *testing.T) {
	now := midnight
	s := newStream(options())
	s.whole(1)
	s.row(openWeight)
	s.Over()
	wantNext(t, s, now, Ready, 0)
	tx := s.Begin(now)
	take(tx, now)
	commit(t, tx, now)
	wantNext(t, s, now, Over, 0)

	s = newStream(options())
	s.row(openWeight)
	tx = s.Begin(now)
	take(tx, now)
	s.Over()
	if _, step := tx.Take(now); step != Over {
		t.Errorf("step %v", step)
	}
}

// After a failure nothing begins.
func TestFailure(t *testing.T) {
	lost := errors.New("lost")
	s := newStream(options())
	s.whole(1)
	tx := s.Begin(midnight)
	take(tx, midnight)
	if progress, err := tx.Answered(lost, midnight); progress || !errors.Is(err, lost) {
		t.Errorf("progress %v, error %v", progress, err)
	}
	s.whole(1)
	wantNext(t, s, midnight.Add(time.Hour), Wait, forever)
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(s *stream, tx *Transaction[*testRow]){
		"the next begins before the answer": func(s *stream, _ *Transaction[*testRow]) {
			s.whole(1)
			s.Begin(midnight)
		},
		"the next begins after a failure": func(s *stream, tx *Transaction[*testRow]) {
			s.whole(1)
			take(tx, midnight)
			_, _ = tx.Answered(errors.New("lost"), midnight)
			s.Begin(midnight)
		},
		"begins with nothing": func(s *stream, tx *Transaction[*testRow]) {
			take(tx, midnight)
			_, _ = tx.Answered(nil, midnight)
			s.Begin(midnight)
		},
		"answered while it takes": func(_ *stream, tx *Transaction[*testRow]) { _, _ = tx.Answered(nil, midnight) },
		"answered twice": func(_ *stream, tx *Transaction[*testRow]) {
			take(tx, midnight)
			_, _ = tx.Answered(nil, midnight)
			_, _ = tx.Answered(nil, midnight)
		},
		"takes after its end": func(_ *stream, tx *Transaction[*testRow]) {
			take(tx, midnight)
			tx.Take(midnight)
		},
		"has no edge yet": func(_ *stream, tx *Transaction[*testRow]) { tx.Edge() },
		"idle inside a split transaction": func(s *stream, tx *Transaction[*testRow]) {
			take(tx, midnight)
			_, _ = tx.Answered(nil, midnight)
			for range 2 {
				s.row(openWeight)
			}
			torn := s.Begin(midnight)
			torn.Take(midnight)
			take(torn, torn.Deadline)
			_, _ = torn.Answered(nil, midnight)
			s.entries.pop() // by hand: the core never asks for what follows
			s.rest = amount{}
			s.Idle(checkpoint.Edge{Covered: 1 << 20})
			s.Begin(midnight)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(options())
			s.whole(1)
			tx := s.Begin(midnight)
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "walstream: bug: schedule: ") {
					t.Errorf("panics with %q", text)
				}
			}()
			misuse(s, tx)
		})
	}
}

// TestStream cuts random streams at random times. Every row comes once and in
// order; a transaction of Kafka ends where its edge says, inside one of PostgreSQL
// only when its time is up; lanes alternate; and whoever waits is woken.
func TestStream(t *testing.T) {
	splits, joined := 0, 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		o := options()
		o.Window = checkpoint.Limits{Events: 1 + rnd.IntN(3000), Bytes: 1 + rnd.IntN(64<<20)}
		o.CommitMaxBytes = rnd.IntN(4 << 20)
		o.MaxTime = time.Duration(rnd.IntN(20)) * time.Millisecond
		s := newStream(o)
		ends := map[int]bool{0: true} // rows at which a transaction is complete
		now, taken, lane := midnight, 0, 0
		var covered pglogrepl.LSN
		var tx *Transaction[*testRow]
		waits := false
		for range 3000 {
			now = now.Add(time.Duration(rnd.IntN(2000)) * time.Microsecond)
			switch rnd.IntN(6) {
			case 0, 1:
				for range rnd.IntN(5) {
					s.row(rnd.IntN(1 << rnd.IntN(22)))
				}
			case 2:
				s.end()
				ends[s.rows] = true
			}
			woken := false
			select {
			case <-s.Wake():
				woken = true
			default:
			}
			if tx == nil {
				step, pause := s.Next(now)
				if waits && !woken && step == Ready {
					t.Fatalf("seed %d: nobody was woken", seed)
				}
				if waits = step == Wait; step == Ready && pause == 0 {
					if tx = s.Begin(now); tx.Lane != lane {
						t.Fatalf("seed %d: lane %d, want %d", seed, tx.Lane, lane)
					}
					lane, waits = 1-lane, false
				}
				continue
			}
			rows, step := tx.Take(now)
			if waits && !woken && step == Rows {
				t.Fatalf("seed %d: nobody was woken", seed)
			}
			waits = step == Wait
			for _, row := range rows {
				if taken++; row.number != taken {
					t.Fatalf("seed %d: row %d in the place of %d", seed, row.number, taken)
				}
			}
			if step != Finish {
				continue
			}
			edge := tx.Edge()
			if tx.Split() {
				splits++
			} else if edge.Covered > covered+10 {
				joined++
			}
			switch {
			case tx.Split() && now.Before(tx.Deadline):
				t.Fatalf("seed %d: split at %v, before %v", seed, now, tx.Deadline)
			case !tx.Split() && !ends[taken]:
				t.Fatalf("seed %d: ends whole with row %d, at which nothing ends", seed, taken)
			}
			before := covered
			covered = max(covered, edge.Covered)
			if progress, err := tx.Answered(nil, now); err != nil || progress != (covered > before) || edge.Covered < before {
				t.Fatalf("seed %d: covered %s after %s, progress %v, %v", seed, edge.Covered, before, progress, err)
			}
			tx, waits = nil, false
		}
		if taken == 0 {
			t.Fatalf("seed %d: took nothing", seed)
		}
	}
	if splits == 0 || joined == 0 {
		t.Errorf("%d were split, %d joined", splits, joined)
	}
}
