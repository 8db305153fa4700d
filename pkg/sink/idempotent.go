package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
	promise   func(*kgo.Record, error)
	failed    atomic.Int64 // promises that ended in an error

	// Below: the loop's own.
	arena  arena
	topics map[string]*topic
	// waiting rows: the first one's topic is still being looked up. Those behind
	// wait too, whatever their topic: should it be refused, they must not have
	// been published. Their number is bounded by the ledger's window.
	waiting []*row
	refused *row // at which Submit stopped, before sending it
	sent    int64
	acked   int64
	quiet   bool // stopped, and every record sent is answered
}

// topic as the loop sees it.
type topic struct {
	name       string
	known      bool
	limit      int   // max.message.bytes
	partitions int   // when it was looked up; they only grow
	err        error // why no row may go there
}

// NewIdempotent starts a sink whose checkpoints are base moved to the edge. Only
// one per Claim.
func (c *Claim) NewIdempotent(base checkpoint.Record) *Idempotent {
	i := &Idempotent{claim: c, base: base, box: NewMailbox(), topics: map[string]*topic{}}
	i.records, i.cancel = context.WithCancel(context.Background())
	i.tasks, i.stopTasks = context.WithCancel(context.Background())
	client, err := c.k.newClient(append(c.k.producer(c.batchLimit), kgo.WithLogger(kgoLogger{log: c.k.log, refused: i.cancel})))
	if err != nil { // the same options made the lanes
		panic(fmt.Sprintf("walstream: bug: data client: %v", err))
	}
	i.client = client
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
	if i.stopped() {
		return // the position is held before an earlier row
	}
	tp, ok := i.topics[e.Topic]
	if !ok {
		tp = i.meet(e.Topic)
	}
	r := i.arena.row(i.records, e, tp.name, t)
	if !tp.known || len(i.waiting) > 0 {
		i.waiting = append(i.waiting, r)
		return
	}
	i.send(r, tp)
}

// meet takes up a topic that no row has named before.
func (i *Idempotent) meet(name string) *topic {
	tp := &topic{name: name, err: checkTopicName(name)}
	i.topics[name] = tp
	if tp.err != nil {
		tp.known = true
	} else {
		i.lookout.ask(name)
	}
	return tp
}

func (i *Idempotent) send(r *row, tp *topic) {
	switch {
	case tp.err != nil:
		i.refuse(r, tp.err)
	case r.size > tp.limit:
		i.refuse(r, errTooLarge)
	case int(r.record.Partition) >= tp.partitions:
		i.refuse(r, errNoPartition)
	default:
		i.sent++
		i.client.Produce(i.records, &r.record, i.promise)
	}
}

// stopped: a row was refused, and no further one is taken.
func (i *Idempotent) stopped() bool { return i.refused != nil || i.records.Err() != nil }

// Begin: in at-least-once the bounds of transactions mean nothing to Kafka.
func (i *Idempotent) Begin(checkpoint.Edge) {}

// End likewise.
func (i *Idempotent) End(checkpoint.Edge) {}

// Checkpoint asks for a durable checkpoint at edge.
func (i *Idempotent) Checkpoint(edge checkpoint.Edge) { i.committer.offer(edge) }

// Ready has a value when there is something to drain.
func (i *Idempotent) Ready() <-chan struct{} { return i.box.Ready() }

// Drain moves what has happened into report, and sends the rows that waited for
// their topic.
func (i *Idempotent) Drain(report *checkpoint.Report) {
	if facts := i.lookout.answers(); len(facts) > 0 {
		i.learnt(facts)
	}
	if i.quiet && i.committer.idle() {
		i.lookout.settle()
	}
	before := len(report.Acked)
	i.box.Drain(report)
	i.acked += int64(len(report.Acked) - before)
	if !i.quiet && i.stopped() && i.acked+i.failed.Load() == i.sent {
		// The caller takes these acknowledgements and may ask for a checkpoint;
		// the next call sees whether it did.
		i.quiet = true
		if !i.lookout.explaining() {
			i.box.PutErr(fmt.Errorf("publish: %w: the client gave records back without a reason", ErrUncertain))
		}
		i.box.Signal()
	}
}

// learnt takes what is known of topics now, and sends the rows up to the next
// one whose topic is not.
func (i *Idempotent) learnt(facts []topicFacts) {
	for _, f := range facts {
		tp := i.topics[f.name]
		tp.known, tp.limit, tp.partitions, tp.err = true, f.limit, f.partitions, f.err
		i.claim.limits.Store(f.name, clampBatch(f.limit))
	}
	for len(i.waiting) > 0 && !i.stopped() {
		r := i.waiting[0]
		tp := i.topics[r.record.Topic]
		if !tp.known {
			return
		}
		i.waiting[0] = nil
		i.waiting = i.waiting[1:]
		i.send(r, tp)
	}
}

// onAnswer is the promise of every record: it puts into a mailbox and does
// nothing more. The first failure cancels all records; a refusal has done so
// already (see kgoLogger), so nothing that the client has buffered behind goes out.
func (i *Idempotent) onAnswer(record *kgo.Record, err error) {
	r := record.Context.(*row)
	if err == nil {
		i.box.Put(r.ticket)
		return
	}
	// Cancelled: by an earlier failure, or by Close.
	if !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) {
		i.cancel()
		i.lookout.explain(failure{row: r, err: err, sent: true})
	}
	i.failed.Add(1)
	i.box.Signal()
}

// refuse ends the sink at a row that was not sent. What is under way goes on: it
// lies before the row, and what is acknowledged and covered by a checkpoint does
// not come twice after the next start.
func (i *Idempotent) refuse(r *row, err error) {
	i.refused = r
	i.lookout.explain(failure{row: r, err: err})
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
