package sink

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

// TransactionalOptions of the exactly-once sink. Zero values are the defaults.
type TransactionalOptions struct {
	// CommitInterval is the least time between the beginnings of two Kafka
	// transactions when more is waiting; it spares the broker. Negative: none.
	CommitInterval time.Duration
	// CommitMaxBytes bounds how many PostgreSQL transactions are joined in a Kafka
	// transaction. A larger one is not split by it.
	CommitMaxBytes int
	// MaxTransactionTime for which a Kafka transaction takes in rows: an open one
	// hides the later records of every producer on its partitions. Beyond it, the
	// PostgreSQL transaction at hand is split.
	MaxTransactionTime time.Duration
	// KeepWhole: nothing is split; what takes too long is aborted and begun anew.
	KeepWhole bool
}

func (o TransactionalOptions) withDefaults() TransactionalOptions {
	if o.CommitInterval == 0 {
		o.CommitInterval = 5 * time.Millisecond
	}
	if o.CommitMaxBytes == 0 {
		o.CommitMaxBytes = 16 << 20
	}
	if o.MaxTransactionTime == 0 {
		o.MaxTransactionTime = 10 * time.Second
	}
	// The rest of the broker's time-out is for what is under way by then.
	o.MaxTransactionTime = min(o.MaxTransactionTime, TransactionTimeout*2/3)
	return o
}

// TransactionalStats count since the sink was made.
type TransactionalStats struct {
	Commits uint64        // Kafka transactions committed
	Lanes   [lanes]uint64 // the same by lane
	Idle    uint64        // those of them with a checkpoint of idle time only
	Splits  uint64        // those of them that end inside a PostgreSQL transaction
}

// Transactional publishes exactly once: the records of whole PostgreSQL
// transactions and the checkpoint that covers them in one Kafka transaction. Two
// lanes are used in turn, because an id is busy for a while after a commit; the
// next lane begins only after the previous one's commit was answered with
// success, and the first transaction after a start runs on lane 0. Begin, Submit,
// End, Checkpoint, Drain and Ready are called by one goroutine and never block.
type Transactional struct {
	front
	base      checkpoint.Record
	keepWhole bool
	schedule  *schedule.Schedule[*row]

	// tasks is the context of our goroutines; Close ends it.
	tasks     context.Context
	stopTasks context.CancelFunc
	running   sync.WaitGroup
	ended     chan struct{} // the committer has
	closed    sync.Once

	promise  func(*kgo.Record, error)
	ahead    atomic.Int64  // weight of the rows a lane has and has not answered
	answered chan struct{} // one slot: ahead has fallen to half of its limit
	careful  atomic.Bool   // answered tells of every answer
	commits  [lanes]atomic.Uint64
	idle     atomic.Uint64
	splits   atomic.Uint64

	over   bool       // the loop's own: the schedule knows that nothing more comes
	answer chan error // the committer's own: to the last checkpoint record and its buckets
	tally  *tally     // likewise; nil: no history is kept
	span   *Commit    // likewise: the commit at work; nil unless somebody traces
}

// NewTransactional starts a sink whose checkpoints are base moved to the edge.
// Only one sink per Claim, and no Write beside it.
func (c *Claim) NewTransactional(base checkpoint.Record, o TransactionalOptions) *Transactional {
	c.mustOwn("start a sink")
	o = o.withDefaults()
	t := &Transactional{
		front: front{
			claim: c, box: NewMailbox(), topics: map[string]*topic{},
			records: c.refused, cancel: c.refuse,
		},
		base: base, keepWhole: o.KeepWhole,
		ended: make(chan struct{}), answered: make(chan struct{}, 1),
	}
	t.schedule = schedule.New[*row](schedule.Options{
		Window: c.k.cfg.MaxInFlight, CommitInterval: o.CommitInterval, CommitMaxBytes: o.CommitMaxBytes,
		MaxTime: o.MaxTransactionTime, IdlePause: checkpointPause, KeepWhole: o.KeepWhole,
	})
	t.pass = t.put
	t.tally = c.newTally(&base)
	t.promise = t.onAnswer
	t.tasks, t.stopTasks = context.WithCancel(context.Background())
	t.lookout, t.framing = newLookout(c.k, t.box), newFraming(c.k, t.box)
	t.lookout.transactional, t.lookout.ended = true, c.awaitEnded
	t.open()
	t.running.Go(func() { t.lookout.run(t.tasks) })
	t.running.Go(func() { t.framing.run(t.tasks) })
	t.running.Go(t.commitAll)
	return t
}

// Begin says that the rows of a transaction follow.
func (t *Transactional) Begin(edge checkpoint.Edge) { t.begin(edge) }

// Submit sends one row on its way.
func (t *Transactional) Submit(e *outbox.Event, ticket checkpoint.Ticket) {
	t.submit(e, ticket)
	t.noteRefusal()
}

// Reject takes a row that cannot become an event, of which e is what can be had.
func (t *Transactional) Reject(e *outbox.Event, bad *outbox.RowError, ticket checkpoint.Ticket) {
	t.reject(e, bad, ticket)
	t.noteRefusal()
}

// End says that the transaction is complete.
func (t *Transactional) End(edge checkpoint.Edge) { t.end(edge) }

// put takes from the front what may go to Kafka.
func (t *Transactional) put(e entry) bool {
	if e.end != nil {
		t.schedule.End(e.end)
	} else {
		t.schedule.Put(e.row)
	}
	return true
}

// Checkpoint asks for a durable checkpoint at edge. What an End covers gets one
// with its rows; a position beyond is idle time.
func (t *Transactional) Checkpoint(edge checkpoint.Edge) {
	if !t.stopped() {
		t.schedule.Idle(edge)
	}
}

// Ready has a value when there is something to drain.
func (t *Transactional) Ready() <-chan struct{} { return t.box.Ready() }

// Drain moves what has happened into report, and passes on the rows that waited
// for their topic.
func (t *Transactional) Drain(report *checkpoint.Report) {
	t.learn()
	t.advance()
	t.noteRefusal()
	t.box.Drain(report)
}

// noteRefusal lets the committer finish what lies before a row that was refused
// before sending.
func (t *Transactional) noteRefusal() {
	if t.refused != nil && !t.over {
		t.over = true
		t.schedule.Over()
	}
}

// onAnswer is the promise of every row: it puts into a mailbox and does nothing
// more. The row counts once its transaction is committed; until then its bytes
// are free for others.
func (t *Transactional) onAnswer(record *kgo.Record, err error) {
	r := record.Context.(*row)
	if err == nil {
		t.claim.k.cfg.Seen.poison.published(r)
		t.box.Put(r.ticket)
	} else {
		t.failed(r, err)
	}
	if left := t.ahead.Add(-int64(r.weight)); left <= aheadWeight/2 && left+int64(r.weight) > aheadWeight/2 || t.careful.Load() {
		select {
		case t.answered <- struct{}{}:
		default:
		}
	}
}

// Stats may be read by anyone.
func (t *Transactional) Stats() TransactionalStats {
	s := TransactionalStats{Idle: t.idle.Load(), Splits: t.splits.Load()}
	for n := range t.commits {
		s.Lanes[n] = t.commits[n].Load()
		s.Commits += s.Lanes[n]
	}
	return s
}

// closeGrace for a transaction that is open at the end to be aborted, so that it
// hides nothing from readers until its time-out.
const closeGrace = 500 * time.Millisecond

// Close tears down: what is buffered is dropped, what is not committed is not,
// nothing is acknowledged afterwards. Its Claim ends with it. It waits for the
// goroutines, and hardly for a broker.
func (t *Transactional) Close() {
	t.closed.Do(func() {
		t.box.Close()
		t.cancel()
		grace := time.NewTimer(closeGrace)
		select {
		case <-t.ended:
		case <-grace.C:
		}
		grace.Stop()
		t.stopTasks()
		t.claim.Close()
		t.running.Wait()
	})
}

// errStopped: a record has failed, or the sink is closing.
var errStopped = errors.New("stopped")
