package pipeline

import (
	"slices"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// simEvent is an event between Submit and its answer.
type simEvent struct {
	row      simRow
	position decode.Position
	ticket   checkpoint.Ticket
	begun    *checkpoint.Edge // exactly-once: where its transaction began
	weight   int              // likewise
	skip     bool             // left out by the policy
	letter   bool             // a dead letter
	in       *simCommit       // the Kafka transaction it was given to; nil outside of one
}

// simCommit is one Kafka transaction as its writer sees it.
type simCommit struct {
	lane    int
	epoch   int
	edge    checkpoint.Edge // of its checkpoint
	state   simState
	record  simState    // of the checkpoint's record
	left    int         // rows without an answer
	planned *simPlanned // exactly-once
	outcome error       // of the request to commit
}

// simState of a transaction rises: rows are handed over, then the checkpoint is
// added and all answers are waited for, then the broker is asked to commit, then
// it has done so. A record is queued, written, answered.
type simState int

const (
	handing simState = iota
	finishing
	asked
	ended

	queued   = finishing
	written  = asked
	answered = ended
)

// simSink is an instance's side of Kafka, common to both deliveries. What it
// does, it does when the simulation says so: records go out and are answered
// partition by partition, in order within each, as an idempotent producer's are.
type simSink struct {
	b        *simBroker
	i        *simInstance
	base     checkpoint.Record
	start    checkpoint.Edge
	queue    [][]simEvent // by partition: not sent
	sent     [][]simEvent // in the log, not answered
	open     []*simCommit
	seen     map[int]bool
	wanted   checkpoint.Edge // the last checkpoint asked for
	report   checkpoint.Report
	err      error
	inFlight int
	durable  pglogrepl.LSN // at-least-once: of the last checkpoint
	blocked  int           // the bad row before which it stops
}

func newSimSink(b *simBroker, i *simInstance, start checkpoint.Edge, base checkpoint.Record) *simSink {
	return &simSink{
		b: b, i: i, base: base, start: start, seen: map[int]bool{},
		queue: make([][]simEvent, len(b.log)), sent: make([][]simEvent, len(b.log)),
	}
}

// take is Submit's common part.
func (k *simSink) take(e *outbox.Event, t checkpoint.Ticket) simEvent {
	s := k.b.s
	number, err := strconv.Atoi(string(e.Value))
	if err != nil {
		s.fail("event with value %q", e.Value)
	}
	s.say("%s: submit row %d at %s", k.i, number, e.Position)
	if k.seen[number] {
		s.fail("row %d submitted twice by %s", number, k.i)
	}
	k.seen[number] = true
	split := decode.Position{CommitLSN: k.start.CommitLSN, Ordinal: k.start.Ordinal}
	if e.Position.CommitLSN < k.start.Covered || k.start.Ordinal > 0 && e.Position.Compare(split) <= 0 {
		s.fail("row %d at %s submitted, though the checkpoint of the start covers %s and %s", number, e.Position, k.start.Covered, split)
	}
	if k.inFlight++; k.inFlight > s.limits.Events {
		s.fail("%d rows in flight, the window is %d", k.inFlight, s.limits.Events)
	}
	return simEvent{row: simRow{number, string(e.Key)}, position: e.Position, ticket: t}
}

func (k *simSink) enqueue(e simEvent) {
	p := e.partitionOf(k.b)
	k.queue[p] = append(k.queue[p], e)
}

func (k *simSink) Drain(report *checkpoint.Report) {
	report.Acked = append(report.Acked, k.report.Acked...)
	report.Durable, report.Err = k.report.Durable, k.report.Err
	k.inFlight -= len(k.report.Acked)
	k.report.Reset()
}

func (k *simSink) Ready() <-chan struct{} { return neverReady }

// oldest is the commit LSN of the oldest transaction with a row that the client
// has and that was not answered; 0 when there is none.
func (k *simSink) oldest() (oldest pglogrepl.LSN) {
	for p := range k.queue {
		for _, events := range [][]simEvent{k.sent[p], k.queue[p]} {
			if len(events) > 0 && (oldest == 0 || events[0].position.CommitLSN < oldest) {
				oldest = events[0].position.CommitLSN
			}
		}
	}
	return oldest
}

// produce writes up to n records of a partition. The one behind the last is the
// checkpoint topic's.
func (k *simSink) produce(p, n int) {
	if p == len(k.queue) {
		k.produceCheckpoint()
		return
	}
	for ; n > 0 && len(k.queue[p]) > 0 && k.err == nil; n-- {
		e := k.queue[p][0]
		if k.b.refuses[e.row.number] > 0 {
			k.b.refuses[e.row.number]--
			k.b.s.say("%s: row %d refused", k.i, e.row.number)
			k.fail(errRefused)
			return
		}
		var in *simTransaction
		if e.in != nil {
			var err error
			if in, err = k.b.transaction(e.in.lane, e.in.epoch, k.i); err != nil {
				k.fail(err)
				return
			}
		}
		k.queue[p] = k.queue[p][1:]
		k.sent[p] = append(k.sent[p], e)
		k.b.append(p, e.row, k.i, in)
	}
}

func (k *simSink) produceCheckpoint() {
	for _, c := range k.open {
		if c.record != queued || k.err != nil {
			continue
		}
		in, err := k.b.transaction(c.lane, c.epoch, k.i)
		if err != nil {
			k.fail(err)
			return
		}
		k.b.appendCheckpoint(k.base.With(c.edge), in)
		c.record = written
	}
}

// answer acknowledges up to n records of a partition.
func (k *simSink) answer(p, n int) {
	if p == len(k.sent) {
		for _, c := range k.open {
			if c.record == written {
				c.record = answered
			}
		}
		return
	}
	for ; n > 0 && len(k.sent[p]) > 0 && k.err == nil; n-- {
		e := k.sent[p][0]
		k.report.Acked = append(k.report.Acked, e.ticket)
		k.sent[p] = k.sent[p][1:]
		if e.in != nil {
			e.in.left--
		}
	}
}

// fail is the end of the sink: nothing waiting goes out any more. A request to
// commit may be on its way all the same.
func (k *simSink) fail(err error) {
	k.err, k.report.Err = err, err
	for p := range k.queue {
		k.queue[p] = nil
	}
	for _, c := range k.open {
		if c.state < asked && k.b.s.rnd.IntN(2) == 0 {
			k.b.abort(c.lane, c.epoch)
		}
	}
}

// begin a Kafka transaction.
func (k *simSink) begin(lane int) *simCommit {
	c := &simCommit{lane: lane, epoch: k.i.epochs[lane]}
	k.open = append(k.open, c)
	return c
}

// finish adds the checkpoint.
func (c *simCommit) finish(edge checkpoint.Edge) { c.edge, c.state, c.record = edge, finishing, queued }

// What may go wrong with a commit.
const (
	requestLost = 1 + iota // or it comes late
	answerLost
)

// advance moves a transaction on by one step, and reports that its outcome is
// known, or known to be unknown.
func (k *simSink) advance(c *simCommit, trouble int) (known bool) {
	switch c.state {
	case handing:
	case finishing:
		if c.record == answered && c.left == 0 {
			k.b.s.say("%s: asks lane %d to commit up to %s", k.i, c.lane, c.edge.Covered)
			c.state = asked
		}
	case asked:
		if trouble == requestLost {
			c.outcome = errUnknown
			return true
		}
		if k.deliver(c); trouble == answerLost {
			c.outcome = errUnknown
			return true
		}
	case ended:
		return true
	}
	return false
}

// close a transaction that is committed.
func (k *simSink) close(c *simCommit) {
	k.open = slices.DeleteFunc(k.open, func(o *simCommit) bool { return o == c })
}

// deliver a request to commit.
func (k *simSink) deliver(c *simCommit) {
	c.state, c.outcome = ended, k.b.commit(c.lane, c.epoch, k.i)
	if c.outcome == nil && (k.i.paused || k.i.gone) {
		k.b.s.LateCommits++
	}
}

// late requests to commit may be delivered long after their sender has gone.
func (k *simSink) late() {
	for _, c := range k.open {
		if c.state == asked {
			k.deliver(c)
		}
	}
}

// simPublisher is the sink of either delivery.
type simPublisher interface {
	Sink
	// commit does one thing in the committer.
	commit(trouble int)
	common() *simSink
}

func (k *simSink) common() *simSink { return k }

// simIdempotent delivers at least once: rows are visible at once, the checkpoint
// has its own small transaction on lane 0.
type simIdempotent struct{ *simSink }

func (k *simIdempotent) Begin(checkpoint.Edge) {}

func (k *simIdempotent) Submit(e *outbox.Event, t checkpoint.Ticket) {
	if k.blocked == 0 {
		k.enqueue(k.take(e, t))
	}
}

func (k *simIdempotent) End(checkpoint.Edge) {}

func (k *simIdempotent) Checkpoint(edge checkpoint.Edge) {
	k.want(edge)
	if oldest := k.oldest(); oldest != 0 && oldest < edge.Covered {
		k.b.s.fail("checkpoint %s asked for with a row of transaction %s unacknowledged", edge.Covered, oldest)
	}
}

func (k *simSink) want(edge checkpoint.Edge) {
	k.b.s.say("%s: checkpoint %s wanted", k.i, edge.Covered)
	if edge.Covered <= k.wanted.Covered {
		k.b.s.fail("checkpoint %s asked for after %s", edge.Covered, k.wanted.Covered)
	}
	k.wanted = edge
}

func (k *simIdempotent) commit(trouble int) {
	if k.stop(); k.err != nil {
		return
	}
	if len(k.open) == 0 {
		if k.wanted.Covered > max(k.start.Covered, k.durable) {
			k.begin(0).finish(k.wanted)
		}
		return
	}
	c := k.open[0]
	if !k.advance(c, trouble) {
		return
	}
	if c.outcome != nil {
		k.fail(c.outcome)
		return
	}
	k.close(c)
	k.durable = c.edge.Covered
	k.report.Durable = c.edge
}
