package schedule

import (
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Transaction is one of Kafka: Take until Finish, then Edge, then Answered. Its
// fields are for reading.
type Transaction[R Row] struct {
	Lane     int
	Idle     bool // it holds nothing but a checkpoint of idle time
	Began    time.Time
	Deadline time.Time // until which it takes in rows

	s     *Schedule[R]
	state state
	left  int              // PostgreSQL transactions to take in yet
	ended *checkpoint.Edge // of the last one that is in it as a whole
	last  R                // of one that is not
	torn  bool             // there is a last
	edge  checkpoint.Edge  // of its checkpoint
}

type state int

const (
	taking   state = iota
	finished       // its checkpoint is written, the broker asked to commit
	answered
)

func (tx *Transaction[R]) expect(want state) {
	if tx.state != want {
		bug("transaction on lane %d is in state %d, not %d", tx.Lane, tx.state, want)
	}
}

// Take returns the next rows, which are the caller's until the next Take. With
// Wait there are none for now, until Wake or the deadline.
func (tx *Transaction[R]) Take(now time.Time) ([]R, Step) {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.expect(taking)
	clear(s.taken)
	s.taken = s.taken[:0]
	switch {
	case tx.left == 0, !now.Before(tx.Deadline) && tx.mayEnd():
		tx.finish()
		return nil, Finish
	case s.whole.len() > 0, !s.over && s.rest.reaches(s.toGoOn):
		tx.fill()
		return s.taken, Rows
	case s.over:
		return nil, Over // what is open is never complete
	}
	return nil, Wait
}

// fill takes a chunk, or up to the end of the PostgreSQL transaction at hand.
func (tx *Transaction[R]) fill() {
	s := tx.s
	for weight := 0; s.entries.len() > 0 && len(s.taken) < ChunkRows && weight < chunkWeight; {
		e := s.entries.pop()
		if e.end != nil {
			s.whole.pop()
			tx.ended, tx.torn = e.end, false
			tx.left--
			return // the time may be up, and a whole transaction is a good end
		}
		w := e.row.Weight()
		if s.whole.len() > 0 {
			*s.whole.at(0) -= w
		} else {
			s.rest.rows--
			s.rest.weight -= w
		}
		weight += w
		tx.last, tx.torn = e.row, true
		s.taken = append(s.taken, e.row)
	}
}

// mayEnd: at the end of a PostgreSQL transaction; or inside of one, unless so
// little is left of it that it is not worth splitting.
func (tx *Transaction[R]) mayEnd() bool {
	if !tx.torn {
		return tx.ended != nil
	}
	whole := &tx.s.whole
	return !tx.s.options.KeepWhole && (whole.len() == 0 || *whole.at(0) > chunkWeight)
}

// finish settles where in the stream the transaction has come to.
func (tx *Transaction[R]) finish() {
	tx.state = finished
	switch {
	case tx.Idle:
	case tx.torn:
		tx.edge = *tx.last.Begun()
		tx.edge.Ordinal = tx.last.Ordinal()
	default:
		tx.edge = *tx.ended
	}
}

// Edge is where it ends: its checkpoint.
func (tx *Transaction[R]) Edge() checkpoint.Edge {
	if tx.state == taking {
		bug("the edge of a transaction that still takes in rows")
	}
	return tx.edge
}

// Split: it ends inside a PostgreSQL transaction. (The ordinal of an idle
// position, if any, is of a transaction that was split before the start.)
func (tx *Transaction[R]) Split() bool { return !tx.Idle && tx.Edge().Ordinal != 0 }

// Answered is what the broker made of the request to commit. Success lets the next
// transaction begin, and progress says that more is covered than before. An error
// is given back and ends the schedule: what became of the transaction is open then,
// and found by the order of a start, never guessed.
func (tx *Transaction[R]) Answered(err error, now time.Time) (progress bool, _ error) {
	s := tx.s
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.expect(finished)
	tx.state = answered
	if err != nil {
		return false, err
	}
	s.open, s.endedAt = nil, now
	if !tx.Idle {
		s.torn = tx.edge.Ordinal != 0
	}
	if progress = tx.edge.Covered > s.covered; progress {
		s.covered = tx.edge.Covered
	}
	s.loaded = s.work() == workRows
	return progress, nil
}
