package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

// Idempotent publishes at-least-once: rows by an idempotent producer, visible at
// once, each acknowledged when all in-sync replicas have it; checkpoints in small
// transactions of their own on lane 0. Submit, End, Checkpoint, Drain and Ready
// are called by one goroutine and never block.
type Idempotent struct {
	claim  *Claim
	base   checkpoint.Record
	client *kgo.Client
	box    *Mailbox

	// Every record's context. The first failure cancels it, so that the client
	// sends nothing more of what it has buffered.
	records context.Context
	cancel  context.CancelFunc
	// tasks is the context of our goroutines; Close ends it.
	tasks     context.Context
	stopTasks context.CancelFunc
	running   sync.WaitGroup
	closed    sync.Once

	committer *committer
	lookout   *lookout
	arena     arena
	topics    map[string]*topic
	promise   func(*kgo.Record, error)
}

// topic as the loop sees it. Rows wait until it has been looked up; how many is
// bounded by the ledger's window.
type topic struct {
	name    string
	known   bool
	limit   int // max.message.bytes
	waiting []*row
}

// NewIdempotent starts a sink whose checkpoints are base moved to the edge. Only
// one per Claim.
func (c *Claim) NewIdempotent(base checkpoint.Record) *Idempotent {
	client, err := c.k.newClient(c.k.producer(c.batchLimit))
	if err != nil { // the same options made the lanes
		panic(fmt.Sprintf("walstream: bug: data client: %v", err))
	}
	i := &Idempotent{
		claim: c, base: base, client: client, box: NewMailbox(), topics: map[string]*topic{},
	}
	i.records, i.cancel = context.WithCancel(context.Background())
	i.tasks, i.stopTasks = context.WithCancel(context.Background())
	i.promise = i.onAnswer
	i.committer = newCommitter(i.box, func(ctx context.Context, edge checkpoint.Edge) error {
		return c.Write(ctx, base.With(edge))
	})
	i.lookout = newLookout(c.k, i.box)
	i.running.Go(func() { i.committer.run(i.tasks) })
	i.running.Go(func() { i.lookout.run(i.tasks) })
	return i
}

// Submit sends one row on its way.
func (i *Idempotent) Submit(e *outbox.Event, t checkpoint.Ticket) {
	if i.records.Err() != nil {
		return // failed: the position is held before a row already
	}
	tp, ok := i.topics[e.Topic]
	if !ok {
		tp = &topic{name: e.Topic}
		i.topics[e.Topic] = tp
		if err := checkTopicName(e.Topic); err != nil {
			i.refuse(i.arena.row(i.records, e, tp.name, t), err)
			return
		}
		i.lookout.ask(tp.name)
	}
	r := i.arena.row(i.records, e, tp.name, t)
	if !tp.known {
		tp.waiting = append(tp.waiting, r)
		return
	}
	i.send(r, tp)
}

func (i *Idempotent) send(r *row, tp *topic) {
	if r.size > tp.limit {
		i.fail(r, errTooLarge)
		return
	}
	i.client.Produce(i.records, &r.record, i.promise)
}

// End: at-least-once has nothing to do at the end of a transaction.
func (i *Idempotent) End(checkpoint.Edge) {}

// Checkpoint asks for a durable checkpoint at edge.
func (i *Idempotent) Checkpoint(edge checkpoint.Edge) { i.committer.offer(edge) }

// Ready has a value when there is something to drain.
func (i *Idempotent) Ready() <-chan struct{} { return i.box.Ready() }

// Drain moves what has happened into report, and sends the rows that waited for
// their topic.
func (i *Idempotent) Drain(report *checkpoint.Report) {
	for _, facts := range i.lookout.answers() {
		i.release(facts)
	}
	i.box.Drain(report)
}

func (i *Idempotent) release(facts topicFacts) {
	tp := i.topics[facts.name]
	waiting := tp.waiting
	tp.waiting = nil
	if facts.err != nil {
		if len(waiting) > 0 {
			i.refuse(waiting[0], facts.err)
		}
		return
	}
	i.claim.limits.Store(tp.name, clampBatch(facts.limit))
	tp.known, tp.limit = true, facts.limit
	for _, r := range waiting {
		if i.records.Err() != nil {
			return
		}
		i.send(r, tp)
	}
}

// onAnswer is the promise of every record: it puts into a mailbox and does
// nothing more. The first failure cancels all records before the client takes up
// what it has buffered behind.
func (i *Idempotent) onAnswer(record *kgo.Record, err error) {
	r := record.Context.(*row)
	if err == nil {
		i.box.Put(r.ticket)
		return
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return // an earlier failure, or Close
	}
	i.fail(r, err)
}

// fail stops all records; the lookout finds out what the failure means.
func (i *Idempotent) fail(r *row, err error) {
	i.cancel()
	i.lookout.explain(r, err)
}

// refuse ends the sink with a row that is known to be refused.
func (i *Idempotent) refuse(r *row, err error) {
	i.cancel()
	i.box.PutErr(r.deliveryError(err))
}

// Close tears down at once: what is buffered is dropped, nothing is acknowledged
// afterwards. Its Claim ends with it, because a checkpoint may be under way. It
// waits for the goroutines, not for a broker.
func (i *Idempotent) Close() {
	i.closed.Do(func() {
		i.box.Close()
		i.cancel()
		i.stopTasks()
		i.client.Close()
		i.claim.Close()
		i.running.Wait()
	})
}
