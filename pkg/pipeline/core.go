package pipeline

import (
	"errors"
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
	// Reject takes the place of Submit for a row that cannot become an event; e is
	// what can be had of it. What becomes of it is the sink's policy: its ticket
	// comes back when it was passed, or an error reports it when what lies before it
	// is published.
	Reject(e *outbox.Event, bad *outbox.RowError, t checkpoint.Ticket)
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
	// ours: a publication made by somebody else may carry more. With an
	// *outbox.RowError event holds what can be had of the row.
	Map(row *decode.Row, event *outbox.Event) (ok bool, err error)
}

// BlockedError is a row whose table cannot be mapped. The position is held before
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
	partial   bool            // rows of the open transaction are published, or on their way
	page      func(pglogrepl.LSN) *checkpoint.Page
	note      func(last bool) *checkpoint.Replay
	passed    func(row *decode.Row)
	limit     pglogrepl.LSN
	held      pglogrepl.LSN
	until     pglogrepl.LSN // the commit behind which to end; 0: none
	reached   bool          // it was taken in
	failed    error         // a frame was not taken in: nothing behind it may be, either
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
	Events        uint64 // rows taken from the stream, bad ones of every class included; after a restart some again
	EventBytes    uint64
	Dropped       uint64 // transactions published before the start
	OtherTable    uint64 // rows of tables that are not ours
	StatusUpdates uint64
	Commits       uint64 // Kafka transactions committed; exactly-once
	Splits        uint64 // those of them that end inside a PostgreSQL transaction
	Buckets       uint64 // of history written
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
	Whole bool
	// Page is asked, while a snapshot is published, what the transaction of that
	// commit LSN stands for: a page of it. Nil while streaming.
	Page func(commitLSN pglogrepl.LSN) *checkpoint.Page
	// Held is where the slot stays meanwhile: the LSNs that the core sees are none.
	Held pglogrepl.LSN
	// Until is the commit of a transaction behind which no frame is taken; 0: none.
	Until pglogrepl.LSN
	// Limit is the greatest commit LSN that is taken in; 0: there is none. Behind it
	// the stream has reached its end.
	Limit pglogrepl.LSN
	// Note is asked, of a replay, what it has taken in so far; last: with the
	// transaction that ends it. nil: it is none.
	Note func(last bool) *checkpoint.Replay
	// Passed is told of the rows of a split transaction that are published already.
	// nil: nobody asks.
	Passed  func(row *decode.Row)
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
		counters: c.Counters, observe: c.Observe, whole: c.Whole, until: c.Until, page: c.Page, held: c.Held,
		limit: c.Limit, note: c.Note, passed: c.Passed,
	}
}

// Full reports that no further frame may be taken until Kafka answers.
func (c *Core) Full() bool { return c.ledger.Full() }

// positions are what has been received, published and confirmed.
func (c *Core) positions() (received, published, confirmed pglogrepl.LSN) {
	if c.page != nil {
		return c.held, c.held, c.held
	}
	return c.received, c.ledger.Published().Covered, c.ledger.Confirmed()
}

// Reached reports that the transaction to end behind was taken in.
func (c *Core) Reached() bool { return c.reached }

// ErrPassed: the transaction to end behind is not in the stream. It is published,
// or passed, or there never was one.
var ErrPassed = errors.New("the stream does not hold the transaction")

// Drained reports that every transaction taken in is published and covered by a
// durable checkpoint. One whose end has not been read does not count, it comes
// again: of its rows only those on their way are waited for, none where the sink
// may hold them back until the end.
func (c *Core) Drained() bool {
	events, _ := c.ledger.InFlight()
	return (events == 0 || c.whole) && c.ledger.Covered() >= c.ledger.Newest()
}

// Partial reports that rows of a transaction were handed to a sink that publishes
// rows at once, and its end has not been read: stopped here, all of them come
// again.
func (c *Core) Partial() bool { return c.partial && !c.whole }

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
		if c.until != 0 && frame.LSN > c.until {
			return fmt.Errorf("%w of %s", ErrPassed, c.until)
		}
		if passed {
			c.ledger.Mark(frame.LSN)
			c.reached = c.reached || c.limit != 0 && frame.LSN > c.limit
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
	if c.until != 0 && (begin.CommitLSN > c.until || begin.CommitLSN == c.until && !c.admitted) {
		return fmt.Errorf("%w of %s", ErrPassed, c.until)
	}
	if c.limit != 0 && begin.CommitLSN > c.limit {
		c.admitted, c.reached = false, true
	}
	if !c.admitted {
		c.counters.Dropped++
		return nil
	}
	c.ledger.Begin(begin.CommitTime)
	c.sink.Begin(checkpoint.Edge{
		Covered: c.ledger.Newest(), CommitLSN: begin.CommitLSN,
		XID: begin.XID, CommitTime: begin.CommitTime, Replay: c.noted(false),
	})
	return nil
}

func (c *Core) onRow(row *decode.Row) error {
	if row.Position.Ordinal <= c.skip {
		if c.passed != nil {
			c.passed(row)
		}
		return nil
	}
	ok, err := c.mapper.Map(row, &c.event)
	if err != nil {
		return c.onBadRow(row, err)
	}
	if !ok {
		c.counters.OtherTable++
		return nil
	}
	size := c.event.Size()
	c.sink.Submit(&c.event, c.ledger.Track(size))
	c.partial = true
	c.counters.Events++
	c.counters.EventBytes += uint64(len(c.event.Key) + len(c.event.Value))
	return nil
}

// onBadRow keeps the place of a row that cannot become an event. A table that
// cannot be mapped has no good rows.
func (c *Core) onBadRow(row *decode.Row, err error) error {
	bad, ok := errors.AsType[*outbox.RowError](err)
	if !ok {
		return &BlockedError{Position: row.Position, Err: err}
	}
	c.sink.Reject(&c.event, bad, c.ledger.Track(c.event.Size()))
	c.partial = true // as a dead letter
	c.counters.Events++
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
	if c.page != nil {
		edge = c.pageEdge(edge)
	}
	edge.Replay = c.noted(c.page != nil && edge.Page == nil)
	before := c.ledger.Published()
	c.partial = false
	c.ledger.End(edge)
	c.sink.End(edge)
	c.counters.Transactions++
	c.reached = commit.CommitLSN == c.until
	c.published(before, now)
}

// noted is what a replay has taken in, of whole transactions.
func (c *Core) noted(last bool) *checkpoint.Replay {
	if c.note == nil {
		return nil
	}
	return c.note(last)
}

// pageEdge is the edge behind a page of a snapshot; behind the last one it is where
// the stream begins, with nothing before it that could come by as a proof.
func (c *Core) pageEdge(edge checkpoint.Edge) checkpoint.Edge {
	if edge.Page = c.page(edge.CommitLSN); edge.Page == nil {
		return checkpoint.Edge{Covered: edge.Covered, CommitLSN: edge.Covered}
	}
	return edge
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
