package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// run is what one attempt holds; close gives all of it back.
type run struct {
	*Supervisor
	mapping  *outbox.Mapping
	session  *replication.Session
	conn     *replication.Conn
	kafka    *sink.Kafka
	claimed  *sink.Claim
	sink     publisher
	identity replication.Identity
	held     checkpoint.Slot // the slot as it stood when we took it
	binary   bool            // the stream's format
	rows     string          // fingerprint of what it carries
	loop     *loop
	watching chan struct{} // closed when the session's goroutine has ended
	cancel   context.CancelFunc
}

// publisher is a sink that is given back.
type publisher interface {
	Sink
	Close()
}

func (r *run) close() {
	if r.conn != nil {
		r.conn.Close() // first: the slot is free for the next
	}
	if r.cancel != nil {
		r.cancel()
		<-r.watching
	}
	if r.session != nil {
		r.session.Close()
	}
	if r.sink != nil {
		r.sink.Close()
	}
	if r.claimed != nil {
		r.claimed.Close()
	}
	if r.kafka != nil {
		r.kafka.Close()
	}
	if r.loop != nil {
		r.loop.ticker.Stop()
	}
}

// connect opens both connections to PostgreSQL and checks what must hold before
// streaming.
func (r *run) connect(ctx context.Context) (err error) {
	r.board.state(Connecting, r.Progress().Reason)
	if r.kafka, err = sink.Open(r.cfg.Kafka); err != nil {
		return err
	}
	return r.connectPostgres(ctx)
}

func (r *run) connectPostgres(ctx context.Context) (err error) {
	if r.mapping, err = outbox.NewMapping(r.cfg.Mapping); err != nil {
		return err
	}
	if r.session, err = replication.OpenSession(ctx, r.cfg.Postgres); err != nil {
		return err
	}
	timeout, err := r.session.WalSenderTimeout(ctx)
	if err != nil {
		return err
	}
	if r.conn, err = replication.Connect(ctx, r.cfg.Postgres, timeout); err != nil {
		return err
	}
	if r.identity, err = r.conn.Identify(ctx); err != nil {
		return err
	}
	r.mapping.SetTimeline(r.identity.Timeline)
	return r.preflight(ctx)
}

// look is step 1. The slot is read before the checkpoint: a slot is never ahead
// of its checkpoint, so in this order another instance at work cannot make it
// seem so.
func (r *run) look(ctx context.Context) error {
	slot, err := r.slot(ctx)
	if err != nil {
		return err
	}
	record, found, err := r.kafka.Load(ctx)
	if err != nil {
		return err
	}
	switch {
	case slot.Exists && slot.Invalidated == "":
		return checkpoint.CompareIdentity(pointer(record, found), r.server(record), r.cfg.Slot, r.cfg.Accept)
	case slot.Exists:
		_, err = r.compare(record, found, slot)
		return err
	}
	decision, err := r.compare(record, found, slot)
	if err != nil {
		return err
	}
	if decision.Verdict == checkpoint.Fresh {
		return r.setUp(ctx)
	}
	return nil
}

// setUp makes checkpoint, publication and slot, in that order, and undoes what
// it made when it fails half-way. There is no slot, so nobody can be streaming:
// fencing first harms no one.
func (r *run) setUp(ctx context.Context) error {
	if err := r.fence(ctx); err != nil {
		return err
	}
	// Step 2 follows, then the claim begins anew with step 3: what is fenced here
	// proves nothing about an instance that takes the slot meanwhile.
	defer func() {
		r.claimed.Close()
		r.claimed = nil
	}()
	record, found, err := r.claimed.Load(ctx)
	if err != nil {
		return err
	}
	slot, err := r.slot(ctx)
	if err != nil {
		return err
	}
	decision, err := r.compare(record, found, slot)
	if err != nil || decision.Verdict != checkpoint.Fresh {
		return err // another instance was faster
	}
	setup := r.record()
	setup.Phase = checkpoint.PhaseSetup
	if err := r.claimed.Write(ctx, setup); err != nil {
		return fmt.Errorf("write the first checkpoint: %w", err)
	}
	made, err := replication.EnsurePublication(ctx, r.session.Conn(), r.publication())
	if err != nil {
		return err
	}
	lsn, err := replication.CreateSlot(ctx, r.session.Conn(), r.cfg.Slot, false, r.waitingForSlot)
	switch {
	case errors.Is(err, replication.ErrSlotExists):
		return nil // another instance was faster, and needs the publication
	case err != nil:
		if made {
			r.undoPublication()
		}
		return err
	}
	r.log.Info().Str("slot", r.cfg.Slot).Str("publication", r.cfg.Publication).Stringer("lsn", lsn).
		Msg("made the slot: rows committed from here on are published")
	return nil
}

// waitingForSlot says whom the making of the slot waits for: every transaction
// on the server that has written something.
func (r *run) waitingForSlot(blockers []replication.Blocker) {
	r.log.Warn().Str("slot", r.cfg.Slot).Str("waits_for", fmt.Sprint(blockers)).Msg("making the slot waits for open transactions to end")
	r.board.state(Connecting, fmt.Sprintf("making slot %q waits for open transactions to end: %v", r.cfg.Slot, blockers))
}

// undoPublication removes the publication of a set-up that failed. Its own
// context: the attempt's may be what ended it.
func (r *run) undoPublication() {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	session, err := replication.OpenSession(ctx, r.cfg.Postgres) // the first one may have been cut off inside a statement
	if err == nil {
		err = replication.DropPublication(ctx, session.Conn(), r.cfg.Publication)
		session.Close()
	}
	if err != nil {
		r.log.Warn().Err(err).Str("publication", r.cfg.Publication).Msg("could not remove the publication again; the next start takes it as it is")
	}
}

const undoTimeout = 5 * time.Second

// take is step 2. What the slot and the WAL's end are is read now: nobody but us
// moves the slot any more, and the checkpoint of an instance that held it until
// a moment ago may be beyond an earlier reading of the WAL.
func (r *run) take(ctx context.Context) (err error) {
	if err := r.start(ctx, r.cfg.Slot); err != nil {
		return err
	}
	if r.held, err = r.slot(ctx); err != nil {
		return err
	}
	if r.identity.Flushed, err = r.session.Flushed(ctx); err != nil {
		return err
	}
	if r.rows, err = replication.RowsFingerprint(ctx, r.session.Conn(), r.publication()); err != nil {
		return err
	}
	r.loop.rows = r.rows
	r.watch(ctx)
	return nil
}

// start begins to stream from a slot. From here on the loop sends statuses.
func (r *run) start(ctx context.Context, slot string) error {
	err := r.conn.Start(ctx, replication.Stream{
		Slot: slot, Publication: r.cfg.Publication, Binary: r.binary,
	})
	if err != nil {
		return err
	}
	r.loop = &loop{
		stream: r.conn, ticker: time.NewTicker(tick), log: r.log,
		pacer: NewPacer(r.cfg.StatusInterval, r.conn.WalSenderTimeout(), time.Now()),
	}
	r.loop.draining = func() { r.board.state(Draining, "") }
	before := r.counters
	r.loop.publish = func(core *Core, last replication.Health, now time.Time) {
		r.counters = core.counters
		if t, ok := r.sink.(*sink.Transactional); ok {
			stats := t.Stats()
			r.counters.Commits, r.counters.Splits = before.Commits+stats.Commits, before.Splits+stats.Splits
		}
		r.board.observe(core, r.counters, last, r.loop.blind, r.kafka.Trouble(), now)
	}
	return nil
}

// watch starts the session's goroutine; from here on it alone uses the session.
func (r *run) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	reports := make(chan health, 1)
	r.cancel, r.watching, r.loop.health = cancel, make(chan struct{}), reports
	watched := replication.Watched{Slot: r.cfg.Slot, Walsender: r.conn.PID(), Publication: r.publication()}
	go func() {
		defer close(r.watching)
		send := func(h health) {
			select {
			case <-reports: // the newest counts
			default:
			}
			select {
			case reports <- h:
			case <-ctx.Done():
			}
		}
		err := r.session.Watch(ctx, watched, func(h replication.Health) { send(health{Health: h}) })
		if ctx.Err() == nil {
			send(health{err: err})
		}
	}()
}

// claim is steps 3 to 5, while the loop keeps the slot.
func (r *run) claim(ctx context.Context) (*Core, error) {
	claimCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	claimed := make(chan struct{})
	var decision checkpoint.Decision
	var claimErr error
	go func() {
		defer close(claimed)
		decision, claimErr = r.decide(claimCtx)
	}()
	err := r.loop.hold(ctx, r.held.Confirmed, claimed)
	cancel()
	<-claimed
	if err = errors.Join(err, ignoreCanceled(err, claimErr)); err != nil {
		return nil, err
	}
	base := r.record()
	if decision.Accepted != "" {
		r.log.Warn().Str("accepted", decision.Accepted).Stringer("start", decision.Start.Covered).Msg("starting over a gap that an operator accepted")
	}
	r.sink = r.publisher(base)
	r.counters.ProgressAt = time.Now() // a stall begins with the stream
	return NewCore(CoreConfig{
		Start: decision.Start, SlotConfirmed: r.held.Confirmed, Limits: r.cfg.Limits,
		Mapper: r.mapping, Sink: r.sink, Source: r.conn, Pacer: r.loop.pacer,
		Counters: r.counters, Observe: r.cfg.Observe, Whole: r.cfg.Delivery == ExactlyOnce,
	}), nil
}

func (r *run) publisher(base checkpoint.Record) publisher {
	if r.cfg.Delivery == ExactlyOnce {
		return r.claimed.NewTransactional(base, r.cfg.Transactions)
	}
	return r.claimed.NewIdempotent(base)
}

// ignoreCanceled leaves out the echo of our own cancellation.
func ignoreCanceled(cause, err error) error {
	if cause != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (r *run) decide(ctx context.Context) (checkpoint.Decision, error) {
	if err := r.fence(ctx); err != nil {
		return checkpoint.Decision{}, err
	}
	record, found, err := r.claimed.Load(ctx)
	if err != nil {
		return checkpoint.Decision{}, err
	}
	decision, err := r.compare(record, found, r.held)
	if err != nil {
		return decision, err
	}
	event := r.log.Info().Stringer("slot_confirmed", r.held.Confirmed).Stringer("server_flushed", r.identity.Flushed).
		Stringer("start", decision.Start.Covered)
	if found {
		event = event.Stringer("checkpoint", record.Covered).Str("phase", string(record.Phase)).Str("last_delivery", record.Delivery)
	}
	event.Msg("compared checkpoint, slot and server")
	if !found || record.Phase == checkpoint.PhaseSetup || decision.Accepted != "" {
		// What the start counts on becomes durable before anything is confirmed.
		err = r.claimed.Write(ctx, r.record().With(decision.Start))
	}
	return decision, err
}

// fence is step 3.
func (r *run) fence(ctx context.Context) (err error) {
	if r.claimed, err = r.kafka.Claim(ctx); err != nil {
		return fmt.Errorf("claim the pipeline in Kafka: %w", err)
	}
	return nil
}

func (r *run) stream(ctx context.Context, core *Core) error {
	r.loop.publish(core, r.loop.last, time.Now()) // before the state: nothing of the run before may be read as this one's
	r.board.state(Streaming, "")
	r.noted = "" // what ends this stream is news, also when it ended the last one
	r.log.Info().Str("slot", r.cfg.Slot).Uint32("walsender_pid", r.conn.PID()).Str("delivery", string(r.cfg.Delivery)).Msg("streaming")
	err := r.loop.run(ctx, core, r.cfg.ShutdownGrace)
	r.loop.publish(core, r.loop.last, time.Now())
	return err
}
