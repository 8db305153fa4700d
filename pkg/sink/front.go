package sink

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

// front is the loop's side of both Kafka sinks: it copies rows, holds them back
// until their topic is known, checks what can be known before sending, and passes
// them on in the order of the stream. All but failed is called by the loop alone.
type front struct {
	claim   *Claim
	box     *Mailbox
	lookout *lookout
	pass    func(entry) // takes what may go to Kafka

	// Every record's context. The first failure cancels it, so that the client
	// sends nothing more of what it has buffered.
	records context.Context
	cancel  context.CancelFunc

	arena  arena
	topics map[string]*topic
	begun  *checkpoint.Edge // of the transaction whose rows come
	// waiting entries: the first one's topic is still being looked up. Those behind
	// wait too, whatever their topic: should it be refused, they must not have
	// been published. Their number is bounded by the ledger's window.
	waiting []entry
	refused *row // at which the stream stopped, before sending it
}

// entry of the stream: a row, or the end of a transaction.
type entry struct {
	row *row
	end *checkpoint.Edge
}

// topic as the loop sees it.
type topic struct {
	name       string
	known      bool
	limit      int   // max.message.bytes
	partitions int   // when it was looked up; they only grow
	err        error // why no row may go there
}

// submit takes the next row.
func (f *front) submit(e *outbox.Event, t checkpoint.Ticket) {
	if f.stopped() {
		return // the position is held before an earlier row
	}
	tp, ok := f.topics[e.Topic]
	if !ok {
		tp = f.meet(e.Topic)
	}
	r := f.arena.row(f.records, e, tp.name, t)
	r.begun = f.begun
	if !tp.known || len(f.waiting) > 0 {
		f.waiting = append(f.waiting, entry{row: r})
		return
	}
	f.send(r, tp)
}

// end takes the end of a transaction.
func (f *front) end(edge checkpoint.Edge) {
	switch e := (entry{end: f.arena.edge(edge)}); {
	case f.stopped():
	case len(f.waiting) > 0:
		f.waiting = append(f.waiting, e)
	default:
		f.pass(e)
	}
}

// meet takes up a topic that no row has named before.
func (f *front) meet(name string) *topic {
	tp := &topic{name: name, err: checkTopicName(name)}
	f.topics[name] = tp
	if tp.err != nil {
		tp.known = true
	} else {
		f.lookout.ask(name)
	}
	return tp
}

func (f *front) send(r *row, tp *topic) {
	switch {
	case tp.err != nil:
		f.refuse(r, tp.err)
	case r.size > tp.limit:
		f.refuse(r, errTooLarge)
	case int(r.record.Partition) >= tp.partitions:
		f.refuse(r, errNoPartition)
	default:
		f.pass(entry{row: r})
	}
}

// stopped: a row was refused, and no further one is taken.
func (f *front) stopped() bool { return f.refused != nil || f.records.Err() != nil }

// learn takes what is known of topics now, and passes on what waited, up to the
// next row whose topic is not.
func (f *front) learn() {
	facts := f.lookout.answers()
	if len(facts) == 0 {
		return
	}
	for _, fact := range facts {
		tp := f.topics[fact.name]
		tp.known, tp.limit, tp.partitions, tp.err = true, fact.limit, fact.partitions, fact.err
		f.claim.limits.Store(fact.name, clampBatch(fact.limit))
	}
	for len(f.waiting) > 0 && !f.stopped() {
		next := f.waiting[0]
		if next.row == nil {
			f.pass(next)
		} else {
			tp := f.topics[next.row.record.Topic]
			if !tp.known {
				return
			}
			f.send(next.row, tp)
		}
		f.waiting[0] = entry{}
		f.waiting = f.waiting[1:]
	}
}

// refuse ends the sink at a row that was not sent. What is under way goes on: it
// lies before the row, and what is acknowledged and covered by a checkpoint does
// not come twice after the next start.
func (f *front) refuse(r *row, err error) {
	f.refused = r
	f.lookout.explain(failure{row: r, err: err})
	f.box.Signal() // with nothing under way, nothing else would: Drain sees that all has come to its end
}

// failed takes a record that the client gives back, inside its promise. The first
// failure cancels all records; a refusal has done so already (see kgoLogger), so
// nothing that the client has buffered behind goes out.
func (f *front) failed(r *row, err error) {
	if isEcho(err) {
		return
	}
	f.cancel()
	f.lookout.explain(failure{row: r, err: err, sent: true})
}

// isEcho tells what an earlier failure, or Close, has done to a record.
func isEcho(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, kgo.ErrAborting)
}

// errNoReason stands in for a failure that nobody has explained.
var errNoReason = errors.New("the client gave records back without a reason")
