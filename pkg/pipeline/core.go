package pipeline

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// Source is the one thing the core asks of PostgreSQL.
type Source interface {
	// SendStatus writes a standby status update: everything up to received has
	// been read, everything up to confirmed may be forgotten.
	SendStatus(received, confirmed pglogrepl.LSN, wantReply bool) error
}

// Sink publishes. None of its methods blocks, and all are called by the loop.
type Sink interface {
	// Begin says that a transaction's rows follow. edge has its commit LSN, XID and
	// commit time, and covers what was complete before it.
	Begin(edge checkpoint.Edge)
	// Submit takes one event for delivery, in order. The sink copies what it
	// keeps. Its ticket comes back in a report once all in-sync replicas have
	// the record.
	Submit(e *outbox.Event, t checkpoint.Ticket)
	// End says that a transaction is complete: all its rows have been submitted,
	// and edge is its end.
	End(edge checkpoint.Edge)
	// Checkpoint asks to make edge durable: every row up to it is acknowledged.
	// A newer one replaces an older one that has not been written yet.
	Checkpoint(edge checkpoint.Edge)
	// Drain moves what has happened since the last call into report.
	Drain(report *checkpoint.Report)
	// Ready is signalled when there is something to drain.
	Ready() <-chan struct{}
}

// Mapper turns rows into events.
type Mapper interface {
	// Map fills event from row. ok is false for a table that is not an outbox of
	// ours: a publication made by somebody else may carry more.
	Map(row *decode.Row, event *outbox.Event) (ok bool, err error)
}

// BlockedError is a row that cannot become an event. The position is held before
// its transaction.
type BlockedError struct {
	Position decode.Position
	Err      error
}

func (e *BlockedError) Error() string { return e.Err.Error() }

func (e *BlockedError) Unwrap() error { return e.Err }

// Core is what happens between the socket and Kafka, without either: every byte
// from PostgreSQL, every acknowledgement from Kafka and every tick goes through
// it, on one goroutine. The path of a row, top to bottom: OnFrame, onMessage,
// onRow; of its acknowledgement: OnAcks; of the LSN that follows: OnTick.
type Core struct {
	assembler *decode.Assembler
	resume    *checkpoint.Resume
	ledger    *checkpoint.Ledger
	mapper    Mapper
	pacer     *Pacer
	sink      Sink
	source    Source

	event     outbox.Event
	report    checkpoint.Report
	admitted  bool            // the open transaction is new
	skip      uint32          // its first rows are published: it was split before the start
	received  pglogrepl.LSN   // the farthest LSN heard of
	requested checkpoint.Edge // the edge last handed to Sink.Checkpoint
	asked     bool            // the server wants to know where we are: checkpoint, then confirm
	whole     bool            // the sink publishes whole transactions
	failed    error           // a frame was not taken in: nothing behind it may be, either
	clock     serverClock
	counters  Counters

	// observe is told, for each move of the published edge (where whole
	// transactions are published: of the durable one), how long ago its newest
	// transaction was committed. May be nil.
	observe  func(commitToAck time.Duration)
	observed pglogrepl.LSN // the last durable transaction that was
}

// Counters of the process; they only rise.
type Counters struct {
	Transactions  uint64
	Events        uint64
	EventBytes    uint64
	Dropped       uint64 // transactions published before the start
	OtherTable    uint64 // rows of tables that are not ours
	StatusUpdates uint64
	Commits       uint64 // Kafka transactions committed; exactly-once
	Splits        uint64 // those of them that end inside a PostgreSQL transaction
	// ProgressAt is when work was last done (an answer from Kafka, a durable
	// checkpoint), or nothing was waiting for it.
	ProgressAt time.Time
}

// CoreConfig joins the parts of a Core.
type CoreConfig struct {
	Start         checkpoint.Edge // everything up to here counts as published
	SlotConfirmed pglogrepl.LSN   // where the stream begins
	Limits        checkpoint.Limits
	Mapper        Mapper
	Sink          Sink
	Source        Source
	Pacer         *Pacer
	Counters      Counters // of the runs before, to count on from
	// Whole: the sink publishes whole transactions, and may hold their rows back.
	Whole   bool
	Observe func(commitToAck time.Duration)
}

// NewCore starts at a decision of checkpoint.Compare.
func NewCore(c CoreConfig) *Core {
	return &Core{
		assembler: decode.NewAssembler(),
		resume:    checkpoint.NewResume(c.Start, c.SlotConfirmed),
		ledger:    checkpoint.NewLedger(c.Start, c.SlotConfirmed, c.Limits),
		mapper:    c.Mapper, pacer: c.Pacer, sink: c.Sink, source: c.Source,
		received: c.SlotConfirmed, requested: c.Start,
		counters: c.Counters, observe: c.Observe, whole: c.Whole,
	}
}

// Full reports that no further frame may be taken until Kafka answers.
func (c *Core) Full() bool { return c.ledger.Full() }

// Drained reports that every transaction taken in is published and covered by a
// durable checkpoint. One whose end has not been read does not count, it comes
// again: of its rows only those on their way are waited for, none where the sink
// may hold them back until the end.
func (c *Core) Drained() bool {
	events, _ := c.ledger.InFlight()
	return (events == 0 || c.whole) && c.ledger.Covered() >= c.ledger.Newest()
}

// OnFrame takes one CopyData payload. The caller asks Full first. The payload's
// bytes are not kept. After an error no frame is taken any more: a keepalive
// behind a lost frame would confirm it.
func (c *Core) OnFrame(payload []byte, now time.Time) error {
	if c.failed == nil {
		c.failed = c.onFrame(payload, now)
	}
	return c.failed
}

func (c *Core) onFrame(payload []byte, now time.Time) error {
	frame, err := decode.ParseFrame(payload)
	if err != nil {
		return err
	}
	c.clock.observe(frame.ServerTime, now)
	c.received = max(c.received, frame.LSN)
	if frame.Kind == decode.FrameKeepalive {
		return c.onKeepalive(frame, now)
	}
	return c.onMessage(frame, now)
}

// onKeepalive: everything up to its LSN has been sent. It says nothing about the
// rows of a transaction that is still open.
func (c *Core) onKeepalive(frame decode.Frame, now time.Time) error {
	if !c.assembler.Open() {
		passed, err := c.resume.Pass(frame.LSN)
		if err != nil {
			return err
		}
		if passed {
			c.ledger.Mark(frame.LSN)
		}
	}
	if frame.ReplyRequested {
		c.asked = true
		return c.sendStatus(now, false)
	}
	return nil
}

func (c *Core) onMessage(frame decode.Frame, now time.Time) error {
	step, err := c.assembler.Next(frame.LSN, frame.Data)
	if err != nil {
		return err
	}
	switch step {
	case decode.StepNone:
	case decode.StepBegin:
		return c.onBegin(&c.assembler.Begin)
	case decode.StepRow:
		if c.admitted {
			return c.onRow(&c.assembler.Row)
		}
	case decode.StepCommit:
		c.onCommit(now)
	}
	return nil
}

func (c *Core) onBegin(begin *decode.Begin) (err error) {
	if c.admitted, c.skip, err = c.resume.Admit(*begin); err != nil {
		return err
	}
	if !c.admitted {
		c.counters.Dropped++
		return nil
	}
	c.ledger.Begin(begin.CommitTime)
	c.sink.Begin(checkpoint.Edge{
		Covered: c.ledger.Newest(), CommitLSN: begin.CommitLSN,
		XID: begin.XID, CommitTime: begin.CommitTime,
	})
	return nil
}

func (c *Core) onRow(row *decode.Row) error {
	if row.Position.Ordinal <= c.skip {
		return nil
	}
	ok, err := c.mapper.Map(row, &c.event)
	if err != nil {
		return &BlockedError{Position: row.Position, Err: err}
	}
	if !ok {
		c.counters.OtherTable++
		return nil
	}
	size := c.event.Size()
	c.sink.Submit(&c.event, c.ledger.Track(size))
	c.counters.Events++
	c.counters.EventBytes += uint64(len(c.event.Key) + len(c.event.Value))
	return nil
}

func (c *Core) onCommit(now time.Time) {
	if !c.admitted {
		return // the ledger starts beyond it
	}
	begin, commit := &c.assembler.Begin, &c.assembler.Commit
	edge := checkpoint.Edge{
		Covered: commit.EndLSN, CommitLSN: commit.CommitLSN,
		XID: begin.XID, CommitTime: begin.CommitTime,
	}
	before := c.ledger.Published()
	c.ledger.End(edge)
	c.sink.End(edge)
	c.counters.Transactions++
	c.published(before, now)
}

// OnAcks takes what the sink has to report.
func (c *Core) OnAcks(now time.Time) error {
	c.report.Reset()
	c.sink.Drain(&c.report)
	before := c.ledger.Published()
	for _, ticket := range c.report.Acked {
		c.ledger.Ack(ticket)
	}
	c.published(before, now)
	if durable := c.report.Durable; durable.Covered != 0 {
		c.ledger.Durable(durable)
		if c.whole && durable.CommitLSN != c.observed {
			c.observed = durable.CommitLSN
			c.acknowledged(durable, now)
		}
	}
	if len(c.report.Acked) > 0 || c.report.Durable.Covered != 0 {
		c.counters.ProgressAt = now
	}
	if c.report.Err != nil {
		return c.report.Err
	}
	return c.confirm(now)
}

// published follows a move of the published edge: what it newly covers gets a
// checkpoint at once when it holds transactions, at the status cadence when it
// is idle time only.
func (c *Core) published(before checkpoint.Edge, now time.Time) {
	edge := c.ledger.Published()
	if edge.CommitLSN == before.CommitLSN && edge.Ordinal == before.Ordinal {
		return
	}
	if !c.whole {
		c.acknowledged(edge, now)
	}
	c.checkpoint()
}

// acknowledged takes one sample of how long consumers waited for a transaction.
func (c *Core) acknowledged(edge checkpoint.Edge, now time.Time) {
	if c.observe != nil && !edge.CommitTime.IsZero() {
		c.observe(c.clock.since(edge.CommitTime, now))
	}
}

func (c *Core) checkpoint() {
	if edge := c.ledger.Published(); edge.Covered > c.requested.Covered {
		c.requested = edge
		c.sink.Checkpoint(edge)
	}
}

// confirm tells PostgreSQL that the confirmed LSN moved: at once when the server
// asked or nothing else is under way, else a few times a second.
func (c *Core) confirm(now time.Time) error {
	confirmed := c.ledger.Confirmed()
	if confirmed == c.pacer.Confirmed() || !(c.asked || !c.ledger.Pending() || c.pacer.ConfirmDue(now)) {
		return nil
	}
	c.asked = false
	return c.sendStatus(now, false)
}

// OnTick does what time asks for: a checkpoint of idle time, a status update, a
// probe of a silent server.
func (c *Core) OnTick(now time.Time) error {
	if !c.ledger.Pending() {
		c.counters.ProgressAt = now
	}
	if events, _ := c.ledger.InFlight(); events == 0 && (c.asked || c.pacer.StatusDue(now)) {
		c.checkpoint()
	}
	if probe := c.pacer.ProbeDue(now); probe || c.pacer.StatusDue(now) {
		return c.sendStatus(now, probe)
	}
	return c.confirm(now)
}

// OnStop asks for the last checkpoint, on the way out.
func (c *Core) OnStop() { c.checkpoint() }

// FinalStatus confirms everything that is covered, before the connection ends.
func (c *Core) FinalStatus(now time.Time) error { return c.sendStatus(now, false) }

func (c *Core) sendStatus(now time.Time, wantReply bool) error {
	confirmed := c.ledger.Confirmed()
	received := max(c.received, confirmed)
	c.pacer.Sent(received, confirmed, now)
	if wantReply {
		c.pacer.Probed(now)
	}
	c.counters.StatusUpdates++
	if err := c.source.SendStatus(received, confirmed, wantReply); err != nil {
		return fmt.Errorf("send status update: %w", err)
	}
	return nil
}
