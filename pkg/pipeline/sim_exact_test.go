package pipeline

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

// simTransactional delivers exactly once, by the rules of sink.Transactional: the
// loop puts into a backlog; the committer takes whole PostgreSQL transactions, or
// of a large one the rows as they come, into one Kafka transaction with the
// checkpoint; lanes are used in turn.
type simTransactional struct {
	*simSink
	maxTime time.Duration // that a Kafka transaction takes in rows

	// The loop's.
	backlog []simEntry
	begun   checkpoint.Edge
	newest  pglogrepl.LSN   // covered by the last End
	idle    checkpoint.Edge // position of idle time, to be made durable

	// The committer's.
	turn    int           // the lane to use next
	covered pglogrepl.LSN // by the checkpoints written
	torn    bool          // the last one lies inside a PostgreSQL transaction
}

// simEntry is a row, or the end of a transaction.
type simEntry struct {
	event simEvent
	end   *checkpoint.Edge
}

const simLanes = 2

func newSimTransactional(k *simSink, maxTime time.Duration) *simTransactional {
	return &simTransactional{simSink: k, maxTime: maxTime, turn: 0}
}

func (k *simTransactional) Begin(edge checkpoint.Edge) { k.begun = edge }

func (k *simTransactional) Submit(e *outbox.Event, t checkpoint.Ticket) {
	event := k.take(e, t)
	event.begun = k.begun
	k.backlog = append(k.backlog, simEntry{event: event})
}

func (k *simTransactional) End(edge checkpoint.Edge) {
	k.newest = edge.Covered
	k.backlog = append(k.backlog, simEntry{end: &edge})
	if edge.Covered >= k.idle.Covered {
		k.idle = checkpoint.Edge{} // it is passed
	}
}

func (k *simTransactional) Checkpoint(edge checkpoint.Edge) {
	if k.want(edge); edge.Covered > k.newest {
		k.idle = edge
	}
}

// waiting transactions that are complete, and rows of one that is not.
func (k *simTransactional) waiting() (whole, rest int) {
	for _, e := range k.backlog {
		if rest++; e.end != nil {
			whole, rest = whole+1, 0
		}
	}
	return whole, rest
}

// enough of a transaction that is not complete to go on with: less than a window.
func (k *simTransactional) enough() int { return max(k.b.s.limits.Events/4, 1) }

// mayBegin: every transaction before was answered with success.
func (k *simTransactional) mayBegin() bool { return len(k.open) == 0 }

func (k *simTransactional) commit(trouble int) {
	if k.err != nil || k.mayBegin() && k.beginNext() || len(k.open) == 0 {
		return
	}
	c := k.open[k.b.s.rnd.IntN(len(k.open))]
	if c.state == handing {
		k.handOver(c)
		return
	}
	if k.advance(c, trouble) {
		k.done(c)
	}
}

func (k *simTransactional) beginNext() bool {
	s := k.b.s
	whole, rest := k.waiting()
	switch {
	case whole > 0:
		k.begin(k.turn).whole = 1 + s.rnd.IntN(whole) // as many as fit
	case rest >= k.enough():
		k.begin(k.turn).whole = 1
	case k.idle.Covered > k.covered:
		if k.torn {
			s.fail("idle position %s inside a split transaction", k.idle.Covered)
		}
		c := k.begin(k.turn)
		c.idle = true
		c.finish(k.idle)
		k.idle = checkpoint.Edge{}
	default:
		return false
	}
	k.turn = (k.turn + 1) % simLanes
	return true
}

// handOver gives the client some of what waits.
func (k *simTransactional) handOver(c *simCommit) {
	s := k.b.s
	for n := 1 + s.rnd.IntN(8); n > 0 && c.whole > 0; n-- {
		if whole, rest := k.waiting(); whole == 0 && rest < k.enough() {
			break
		}
		e := k.backlog[0]
		k.backlog = k.backlog[1:]
		if e.end != nil {
			c.edge, c.last = *e.end, nil
			c.whole--
			continue
		}
		e.event.in = c
		c.left++
		c.last = &e.event
		k.enqueue(e.event)
	}
	timeIsUp := s.now.Sub(c.began) >= k.maxTime
	switch {
	case c.whole == 0, timeIsUp && c.last == nil && c.edge.Covered != 0:
		c.finish(c.edge)
	case timeIsUp && c.last != nil && !k.nearEnd():
		split := c.last.begun
		split.Ordinal = c.last.position.Ordinal
		c.finish(split)
	}
}

// nearEnd: so little is left of the transaction at hand that it is not worth
// splitting.
func (k *simTransactional) nearEnd() bool {
	for n, e := range k.backlog {
		if e.end != nil {
			return n <= 2
		}
	}
	return false
}

// done: the commit was answered with success.
func (k *simTransactional) done(c *simCommit) {
	if !c.idle { // its ordinal, if any, is of a transaction split before the start
		k.torn = c.edge.Ordinal != 0
	}
	if c.edge.Covered > k.covered {
		k.covered = c.edge.Covered
		k.report.Durable = c.edge
	}
}
