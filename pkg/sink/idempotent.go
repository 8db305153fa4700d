package sink

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

// Idempotent publishes at-least-once: rows by an idempotent producer, visible at
// once, each acknowledged when all in-sync replicas have it; checkpoints in small
// transactions of their own on lane 0. Begin, Submit, End, Checkpoint, Drain and
// Ready are called by one goroutine and never block.
type Idempotent struct {
	front
	client *kgo.Client
	// tasks is the context of our goroutines; Close ends it.
	tasks     context.Context
	stopTasks context.CancelFunc
	running   sync.WaitGroup
	closed    sync.Once

	committer *committer
	uncovered *uncovered // nil unless somebody traces
	ended     *ended     // nil: no history is kept
	promise   func(*kgo.Record, error)
	failures  atomic.Int64 // promises that ended in an error
	underWay  atomic.Int64 // weight of what the client has and has not answered

	// Below: the loop's own.
	sent  int64
	acked int64
	quiet bool // stopped, and every record sent is answered
}

// NewIdempotent starts a sink whose checkpoints are base moved to the edge. Only
// one sink per Claim.
func (c *Claim) NewIdempotent(base checkpoint.Record) *Idempotent {
	c.mustOwn("start a sink")
	i := &Idempotent{front: front{claim: c, box: NewMailbox(), topics: map[string]*topic{}}}
	i.pass = i.produce
	i.records, i.cancel = context.WithCancel(context.Background())
	i.tasks, i.stopTasks = context.WithCancel(context.Background())
	client, err := c.k.newClient(append(c.k.producer(c.batchLimit, c.check), kgo.WithLogger(kgoLogger{log: c.k.log, refused: i.cancel})))
	if err != nil { // the same options made the lanes
		panic(fmt.Sprintf("walstream: bug: data client: %v", err))
	}
	i.client = client
	i.promise = i.onAnswer
	if c.k.cfg.OnCommit != nil {
		i.uncovered = &uncovered{}
	}
	i.ended = c.newEnded(&base)
	i.committer = newCommitter(i.box, func(ctx context.Context, edge checkpoint.Edge) error {
		if i.ended != nil {
			i.ended.covered(edge)
		}
		err := c.write(ctx, base.With(edge))
		i.tell(edge, err)
		return err
	})
	i.lookout, i.framing = newLookout(c.k, i.box), newFraming(c.k, i.box)
	i.open()
	i.running.Go(func() { i.committer.run(i.tasks) })
	i.running.Go(func() { i.lookout.run(i.tasks) })
	i.running.Go(func() { i.framing.run(i.tasks) })
	return i
}

// Submit sends one row on its way.
func (i *Idempotent) Submit(e *outbox.Event, t checkpoint.Ticket) {
	if i.ended != nil {
		i.ended.take(e)
	}
	i.submit(e, t)
}

// Reject takes a row that cannot become an event, of which e is what can be had.
func (i *Idempotent) Reject(e *outbox.Event, bad *outbox.RowError, t checkpoint.Ticket) {
	if i.ended != nil {
		i.ended.take(e)
	}
	i.reject(e, bad, t)
}

// produce is where the front passes rows to.
func (i *Idempotent) produce(e entry) bool {
	r := e.row
	if !r.fits(i.underWay.Load()) {
		return false
	}
	i.sent++
	if r.skip {
		i.box.Put(r.ticket)
		return true
	}
	if i.uncovered != nil {
		i.uncovered.take(r)
	}
	i.underWay.Add(int64(r.weight))
	i.client.Produce(i.records, &r.record, i.promise)
	return true
}

// tell whoever traces.
func (i *Idempotent) tell(edge checkpoint.Edge, err error) {
	if i.uncovered == nil {
		return
	}
	if commit := i.uncovered.covered(edge); commit.Rows > 0 {
		commit.Ended, commit.Err = time.Now(), err
		commit.at(edge)
		i.claim.k.cfg.OnCommit(commit)
	}
}

// Begin says that the rows of a transaction follow.
func (i *Idempotent) Begin(edge checkpoint.Edge) { i.begin(edge) }

// End: in at-least-once the end of a transaction means nothing to Kafka.
func (i *Idempotent) End(edge checkpoint.Edge) {
	if i.ended != nil {
		i.ended.end(edge)
	}
}

// Checkpoint asks for a durable checkpoint at edge.
func (i *Idempotent) Checkpoint(edge checkpoint.Edge) { i.committer.offer(edge) }

// Ready has a value when there is something to drain.
func (i *Idempotent) Ready() <-chan struct{} { return i.box.Ready() }

// Drain moves what has happened into report, and sends the rows that waited.
func (i *Idempotent) Drain(report *checkpoint.Report) {
	if i.quiet && i.committer.idle() {
		i.lookout.settle()
	}
	before := len(report.Acked)
	i.box.Drain(report)
	i.acked += int64(len(report.Acked) - before)
	i.learn()
	i.advance()
	if !i.quiet && i.stopped() && i.acked+i.failures.Load() == i.sent {
		// The caller takes these acknowledgements and may ask for a checkpoint;
		// the next call sees whether it did.
		i.quiet = true
		if !i.lookout.explaining() {
			i.box.PutErr(fmt.Errorf("publish: %w: %w", ErrUncertain, errNoReason))
		}
		i.box.Signal()
	}
}

// onAnswer is the promise of every record: it puts into a mailbox and does
// nothing more.
func (i *Idempotent) onAnswer(record *kgo.Record, err error) {
	r := record.Context.(*row)
	i.underWay.Add(-int64(r.weight))
	if err == nil {
		i.claim.k.cfg.Seen.poison.published(r)
		i.box.Put(r.ticket)
		return
	}
	i.failed(r, err)
	i.failures.Add(1)
	i.box.Signal()
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
