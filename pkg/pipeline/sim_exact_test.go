package pipeline

import (
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

// simTransactional delivers exactly once. What to write when, and on which lane,
// the product's schedule decides; only what it does with it is a model.
type simTransactional struct {
	*simSink
	schedule *schedule.Schedule[*simEvent]
	begun    *checkpoint.Edge
}

// simPlanned is a Kafka transaction as the schedule sees it.
type simPlanned = schedule.Transaction[*simEvent]

// What the schedule asks of a row.
func (e *simEvent) Weight() int             { return e.weight }
func (e *simEvent) Begun() *checkpoint.Edge { return e.begun }
func (e *simEvent) Ordinal() uint32         { return e.position.Ordinal }

func newSimTransactional(k *simSink) *simTransactional {
	options := k.b.s.transactions
	options.KeepWhole = k.i.pages != nil
	return &simTransactional{simSink: k, schedule: schedule.New[*simEvent](options)}
}

// scheduleOptions are at random: often so that little fits, and that time is up.
func (s *sim) scheduleOptions() schedule.Options {
	return schedule.Options{
		Window:         s.limits,
		CommitInterval: []time.Duration{0, 5 * time.Millisecond, 2 * time.Second}[s.rnd.IntN(3)],
		CommitMaxBytes: []int{1, 2 << 20, 16 << 20}[s.rnd.IntN(3)],
		MaxTime:        []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Hour}[s.rnd.IntN(4)],
		IdlePause:      100 * time.Millisecond,
	}
}

func (k *simTransactional) Begin(edge checkpoint.Edge) { k.begun = &edge }

func (k *simTransactional) Submit(e *outbox.Event, t checkpoint.Ticket) {
	if k.blocked == 0 {
		k.put(k.take(e, t))
	}
}

func (k *simTransactional) put(event simEvent) {
	event.begun, event.weight = k.begun, k.b.s.weight
	k.schedule.Put(&event)
}

func (k *simTransactional) End(edge checkpoint.Edge) {
	if k.blocked == 0 {
		k.schedule.End(&edge)
	}
}

func (k *simTransactional) Checkpoint(edge checkpoint.Edge) {
	k.want(edge)
	if k.blocked == 0 {
		k.schedule.Idle(edge)
	}
}

// commit begins the next transaction when it may, or moves on one that is open.
func (k *simTransactional) commit(trouble int) {
	if k.stop(); k.err != nil {
		return
	}
	now := k.b.s.now
	if step, pause := k.schedule.Next(now); step == schedule.Ready && pause == 0 {
		planned := k.schedule.Begin(now)
		k.begin(planned.Lane).planned = planned
		return
	}
	if len(k.open) == 0 {
		return
	}
	c := k.open[k.b.s.rnd.IntN(len(k.open))]
	if c.state == handing {
		k.handOver(c)
	} else if k.advance(c, trouble) {
		k.done(c)
	}
}

// handOver gives the client some of what waits.
func (k *simTransactional) handOver(c *simCommit) {
	rows, step := c.planned.Take(k.b.s.now)
	if step == schedule.Finish {
		c.finish(c.planned.Edge())
	}
	for _, row := range rows {
		if row.skip {
			k.skipOver(*row)
			continue
		}
		row.in = c
		c.left++
		k.enqueue(*row)
	}
}

// done: the request to commit was answered, or will never be.
func (k *simTransactional) done(c *simCommit) {
	progress, err := c.planned.Answered(c.outcome, k.b.s.now)
	if err != nil {
		k.fail(err)
		return
	}
	k.close(c)
	if progress {
		k.report.Durable = c.edge
	}
}
