package schedule

import (
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Lanes is the number of transactional ids of a pipeline, used in turn.
const Lanes = 2

const (
	// openWeight of a PostgreSQL transaction that is not complete opens a Kafka
	// transaction; a smaller one waits for its end, and hides nothing meanwhile.
	openWeight = 8 << 20
	// ChunkRows and chunkWeight are taken at a time.
	ChunkRows   = 256
	chunkWeight = 1 << 20
	// forever is until Wake.
	forever = time.Hour
)

// Options of a schedule. None has a default.
type Options struct {
	// Window is what the ledger lets be in flight, and so what can wait here.
	Window checkpoint.Limits
	// CommitInterval between the beginnings of two transactions when more is waiting.
	CommitInterval time.Duration
	// CommitMaxBytes bounds how many PostgreSQL transactions are joined.
	CommitMaxBytes int
	// MaxTime for which a transaction takes in rows.
	MaxTime time.Duration
	// KeepWhole: no transaction ends inside one of the stream, however long it takes.
	KeepWhole bool
	// IdlePause between a transaction and a position of idle time.
	IdlePause time.Duration
}

// Row of the stream, as far as it matters here.
type Row interface {
	// Weight is what the ledger's window counts.
	Weight() int
	// Begun is where its transaction began.
	Begun() *checkpoint.Edge
	// Ordinal is its number in the transaction, from 1.
	Ordinal() uint32
}

// Step is what the committer does next.
type Step int

const (
	Wait   Step = iota // ask again after Wake
	Ready              // begin a transaction
	Rows               // hand them over, then take again
	Finish             // nothing more goes in: write the checkpoint, commit
	Over               // there is nothing to do, ever again
)

// Schedule is what waits between the loop, which puts, and the committer, which
// takes, and the rules by which it does. It holds no more than the window.
//
//	[row row row end][row row end][row row ...
//	 whole[0]         whole[1]     rest
type Schedule[R Row] struct {
	options Options
	toOpen  amount // of an incomplete transaction, opens a Kafka transaction
	toGoOn  amount // of it, goes into the open one
	wake    chan struct{}

	mu      sync.Mutex
	entries fifo[entry[R]]
	whole   fifo[int]       // what is left of each complete transaction, by weight
	rest    amount          // what is left of the one that is not
	newest  pglogrepl.LSN   // covered by the last End
	idle    checkpoint.Edge // position of idle time to be made durable
	over    bool            // nothing more comes: a row was refused before sending

	turn    int             // the lane to use next
	open    *Transaction[R] // the last one, until it was answered with success
	beganAt time.Time       // of the last one
	endedAt time.Time       // likewise
	loaded  bool            // more was waiting when it ended
	covered pglogrepl.LSN   // by the checkpoints written
	torn    bool            // the last one lies inside a PostgreSQL transaction
	taken   []R             // the last chunk; its memory is used again
}

// entry is a row, or the end of a transaction.
type entry[R Row] struct {
	row R
	end *checkpoint.Edge
}

// amount of rows.
type amount struct{ rows, weight int }

func (a amount) reaches(b amount) bool { return a.rows >= b.rows || a.weight >= b.weight }

// New returns an empty schedule. A full window is always enough to go on with, or
// nothing ever would.
func New[R Row](o Options) *Schedule[R] {
	events, bytes := o.Window.Events/4, o.Window.Bytes/4
	return &Schedule[R]{
		options: o,
		toOpen:  amount{rows: max(events, 1), weight: max(min(bytes, openWeight), 1)},
		toGoOn:  amount{rows: max(min(events, ChunkRows/4), 1), weight: max(min(bytes, chunkWeight/16), 1)},
		wake:    make(chan struct{}, 1),
		taken:   make([]R, 0, ChunkRows),
	}
}

// Wake has a value when there may be another step than Wait.
func (s *Schedule[R]) Wake() <-chan struct{} { return s.wake }

func (s *Schedule[R]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Put adds the next row of the stream.
func (s *Schedule[R]) Put(row R) {
	s.mu.Lock()
	s.entries.push(entry[R]{row: row})
	s.rest.rows++
	s.rest.weight += row.Weight()
	wake := s.rest.reaches(s.enough())
	s.mu.Unlock()
	if wake {
		s.signal()
	}
}

// End says that the transaction is complete with the rows put since the last one.
func (s *Schedule[R]) End(edge *checkpoint.Edge) {
	s.mu.Lock()
	s.entries.push(entry[R]{end: edge})
	s.whole.push(s.rest.weight)
	s.rest = amount{}
	s.newest = edge.Covered
	if edge.Covered >= s.idle.Covered {
		s.idle = checkpoint.Edge{} // it is passed
	}
	s.mu.Unlock()
	s.signal()
}

// Idle is a position to be made durable; it replaces the one before. What an End
// covers is made so with its rows.
func (s *Schedule[R]) Idle(edge checkpoint.Edge) {
	s.mu.Lock()
	beyond := edge.Covered > s.newest
	if beyond {
		s.idle = edge
	}
	s.mu.Unlock()
	if beyond {
		s.signal()
	}
}

// Over says that nothing more will be put.
func (s *Schedule[R]) Over() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.signal()
}

// work is what the next transaction would hold.
type work int

const (
	workNone work = iota
	workRows      // a transaction is complete, or enough of one waits
	workIdle      // a position of idle time
	workOver      // nothing ever again
)

func (s *Schedule[R]) work() work {
	switch {
	case s.whole.len() > 0:
		return workRows
	case s.over:
		return workOver
	case s.rest.reaches(s.toOpen):
		return workRows
	case s.idle.Covered > s.covered:
		return workIdle
	}
	return workNone
}

// mayBegin: every transaction before was answered with success.
func (s *Schedule[R]) mayBegin() bool { return s.open == nil }

// Next says whether a transaction can begin, and after what pause: after idleness
// at once, under load in the rhythm of the commit interval, idle positions now and
// then. With Wait, the pause is how long there is nothing to do without a Wake.
func (s *Schedule[R]) Next(now time.Time) (step Step, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayBegin() {
		return Wait, forever
	}
	switch s.work() {
	case workRows:
		if s.loaded {
			pause = max(0, s.options.CommitInterval-now.Sub(s.beganAt))
		}
		return Ready, pause
	case workIdle:
		if pause = s.options.IdlePause - now.Sub(s.endedAt); pause > 0 {
			return Wait, pause
		}
		return Ready, 0
	case workOver:
		return Over, 0
	default:
		return Wait, forever
	}
}

// Begin the transaction that Next said is ready.
func (s *Schedule[R]) Begin(now time.Time) *Transaction[R] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayBegin() {
		bug("a transaction begins before the last one was answered with success")
	}
	tx := &Transaction[R]{s: s, Lane: s.turn, Began: now, Deadline: now.Add(s.options.MaxTime)}
	switch s.work() {
	case workRows:
		tx.left = max(s.fitting(), 1)
	case workIdle:
		if s.torn {
			bug("idle position %s inside a split transaction", s.idle.Covered)
		}
		tx.Idle, tx.edge, s.idle = true, s.idle, checkpoint.Edge{}
	default:
		bug("a transaction begins with nothing to write")
	}
	s.turn = (s.turn + 1) % Lanes
	s.open, s.beganAt = tx, now
	return tx
}

// fitting returns how many transactions are complete and may be joined; the first
// one always is.
func (s *Schedule[R]) fitting() int {
	weight := s.options.CommitMaxBytes
	for n := range s.whole.len() {
		if weight -= *s.whole.at(n); weight < 0 {
			return max(n, 1)
		}
	}
	return s.whole.len()
}

// enough of an incomplete transaction to do something about it.
func (s *Schedule[R]) enough() amount {
	if s.open == nil {
		return s.toOpen
	}
	return s.toGoOn
}

func bug(format string, args ...any) {
	panic("walstream: bug: schedule: " + fmt.Sprintf(format, args...))
}
