package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/repeat"
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
	from     checkpoint.Edge // where the stream begins
	binary   bool            // the format that the mapping can read
	text     bool            // the stream's is text all the same: a snapshot reads it
	rows     string          // fingerprint of what it carries
	loop     *loop
	watchers sync.WaitGroup // the session's goroutine, and the trailing slot's
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
		r.watchers.Wait()
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
	if err = r.openKafka(); err != nil {
		return err
	}
	return r.connectPostgres(ctx)
}

// prepare looks up, or registers, the schemas that settings name.
func (r *run) prepare(ctx context.Context) error {
	schemas, at := r.mapping.Schemas()
	return r.kafka.Prepare(ctx, schemas, at)
}

func (r *run) openKafka() (err error) {
	if r.kafka == nil {
		r.kafka, err = sink.Open(r.cfg.Kafka)
	}
	return err
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
	var standby bool
	if r.cfg.Postgres.FromStandby { // before the timeline is read, which rises with a promotion
		if standby, err = r.session.InRecovery(ctx); err != nil {
			return err
		}
	}
	if r.identity, err = r.conn.Identify(ctx); err != nil {
		return err
	}
	r.identity.InRecovery = standby
	if err = r.session.SameServer(ctx, r.identity); err != nil {
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
	if found {
		r.cfg.Postgres.Published.Note(record.SystemID, record.Timeline)
	}
	r.wantText = r.wantText || r.snapshots() && (!found || record.Phase == checkpoint.PhaseSetup) || found && record.Snapshot != nil || r.cfg.Recover != nil
	if r.identity.Flushed, r.identity.Now, err = r.session.Flushed(ctx); err != nil {
		return err
	}
	if r.cfg.Recover != nil {
		return r.lookToRecover(ctx, record, found, slot)
	}
	if slot.Exists && slot.Invalidated == "" {
		return r.refused(checkpoint.CompareIdentity(pointer(record, found), r.server(record), r.cfg.Slot, r.cfg.Accept))
	}
	decision, err := r.compareWith(record, found, slot)
	if err != nil {
		return err
	}
	if decision.Verdict == checkpoint.Fresh {
		if r.cfg.Kafka.OneShot != nil {
			return fmt.Errorf("%w: there is no slot %q yet", ErrNotBlocked, r.cfg.Slot)
		}
		return r.setUp(ctx)
	}
	return nil
}

// setUp makes checkpoint, publication and slot, in that order, and undoes what
// it made when it fails half-way. There is no slot, so nobody can be streaming:
// fencing first harms no one. Reading the checkpoint may have taken its time, so
// that is looked at once more.
func (r *run) setUp(ctx context.Context) error {
	if slot, err := r.slot(ctx); err != nil || slot.Exists {
		return err // another instance was faster, and may be streaming
	}
	// Step 2 follows, then the claim begins anew with step 3: what is fenced here
	// proves nothing about an instance that takes the slot meanwhile.
	defer func() {
		r.claimed.Close()
		r.claimed = nil
	}()
	if err := claimLanes(ctx, r); err != nil {
		return err
	}
	record, found, err := r.load(ctx)
	if err != nil {
		return err
	}
	slot, err := r.slot(ctx)
	if err != nil {
		return err
	}
	decision, err := r.compareWith(record, found, slot)
	if err != nil || decision.Verdict != checkpoint.Fresh {
		return err // another instance was faster
	}
	publication, err := r.publicationOfSetUp(ctx) // what stands in its way, before anything is made
	if err != nil {
		return err
	}
	setup := r.record()
	setup.Phase = checkpoint.PhaseSetup
	if err := r.claimed.Write(ctx, setup); err != nil {
		return fmt.Errorf("write the first checkpoint: %w", err)
	}
	if r.identity.InRecovery {
		r.log.Info().Str("slot", r.cfg.Slot).Msg(waitsForPrimary)
	}
	made, err := replication.EnsurePublication(ctx, r.session.Conn(), publication)
	if err != nil {
		return err
	}
	lsn, err := replication.CreateSlot(ctx, r.session.Conn(), r.cfg.Slot, r.cfg.SlotFailover, r.waitingForSlot)
	switch {
	case errors.Is(err, replication.ErrSlotExists):
		return nil // another instance was faster, and needs the publication
	case err != nil:
		if made {
			r.undoPublication(err)
		}
		return err
	}
	r.log.Info().Str("slot", r.cfg.Slot).Str("publication", r.cfg.Publication).Stringer("lsn", lsn).
		Msg("made the slot: rows committed from here on are published")
	return nil
}

// waitsForPrimary is what a standby server needs to make a slot.
const waitsForPrimary = "making a slot on a standby server waits for its primary to log what runs, which it does every few seconds while it is written to; at once with SELECT pg_log_standby_snapshot(); there"

// waitingForSlot says whom the making of the slot waits for: every transaction
// on the server that has written something. A standby server waits for its primary.
func (r *run) waitingForSlot(blockers []replication.Blocker) {
	if len(blockers) == 0 {
		r.board.state(Connecting, waitsForPrimary)
		return
	}
	r.log.Warn().Str("slot", r.cfg.Slot).Str("waits_for", fmt.Sprint(blockers)).Msg("making the slot waits for open transactions to end")
	r.board.state(Connecting, fmt.Sprintf("making slot %q waits for open transactions to end: %v", r.cfg.Slot, blockers))
}

// undoPublication removes the publication of a set-up that failed, unless the slot
// is there or may be: with a connection the answer may have gone, and a slot whose
// WAL begins without its publication is of no use to anybody. Its own context: the
// attempt's may be what ended it.
func (r *run) undoPublication(cause error) {
	if errors.Is(cause, replication.ErrUnreachable) || errors.Is(cause, replication.ErrServerStopping) {
		return // the next start takes it as it is
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	session, err := replication.OpenSession(ctx, r.cfg.Postgres) // the first one may have been cut off inside a statement
	if err == nil {
		defer session.Close()
		var slot replication.SlotInfo
		if slot, err = replication.LookupSlot(ctx, session.Conn(), r.cfg.Slot); err == nil && !slot.Exists {
			err = replication.DropPublication(ctx, session.Conn(), r.cfg.Publication)
		}
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
	r.text = !r.binary || r.wantText
	if err := r.makeFailover(ctx); err != nil {
		return err
	}
	if err := r.receive(ctx, r.cfg.Slot); err != nil {
		return err
	}
	if r.held, err = r.slot(ctx); err != nil {
		return err
	}
	if r.identity.Flushed, r.identity.Now, err = r.session.Flushed(ctx); err != nil {
		return err
	}
	if r.rows, err = replication.RowsFingerprint(ctx, r.session.Conn(), r.publication()); err != nil {
		return err
	}
	r.loop.rows = r.rows
	r.dropRewind(ctx)
	r.watch(ctx)
	return nil
}

// makeFailover does for a slot that is there what set-up does for a new one. It
// takes the slot for a moment, as only who may stream from it can.
func (r *run) makeFailover(ctx context.Context) error {
	if !r.cfg.SlotFailover {
		return nil
	}
	slot, err := replication.LookupSlot(ctx, r.session.Conn(), r.cfg.Slot)
	if err != nil || !slot.Exists || slot.Failover {
		return err
	}
	if err := r.conn.MakeFailover(ctx, r.cfg.Slot); err != nil {
		return err
	}
	r.log.Info().Str("slot", r.cfg.Slot).Msg("made the slot a failover slot: standby servers that copy slots have it from now on")
	return nil
}

// receive begins to stream from a slot. From here on the loop sends statuses.
func (r *run) receive(ctx context.Context, slot string) error {
	err := r.conn.Start(ctx, replication.Stream{
		Slot: slot, Publication: r.cfg.Publication, Binary: r.binary && !r.text, PassOver: r.cfg.Accept.Rows != "",
	})
	if err != nil {
		return err
	}
	r.loop = &loop{
		stream: r.conn, ticker: time.NewTicker(tick), log: r.log, unread: repeat.Episode{Calm: calm},
		pacer: NewPacer(r.cfg.StatusInterval, r.conn.WalSenderTimeout(), time.Now()), standby: r.identity.InRecovery,
	}
	r.loop.unanswered = func(since time.Duration) {
		reason := "waiting for Kafka to say what to start from"
		if why := r.kafka.Trouble(); why != "" {
			reason += ": " + why
		}
		r.log.Warn().Str("reason", reason).Stringer("for", since).Msg("not streaming yet")
		r.board.state(Connecting, reason)
	}
	r.loop.waitsFor = r.kafka.Trouble
	r.loop.draining = func() { r.board.state(Draining, "") }
	before := r.counters
	r.loop.publish = func(core *Core, last replication.Health, now time.Time) {
		r.counters = core.counters
		if t, ok := r.sink.(*sink.Transactional); ok {
			stats := t.Stats()
			r.counters.Commits, r.counters.Splits = before.Commits+stats.Commits, before.Splits+stats.Splits
		}
		if r.claimed != nil {
			r.counters.Buckets = before.Buckets + r.claimed.HistoryBuckets()
		}
		r.board.observe(core, r.counters, last, r.loop.blind, r.kafka.Trouble(), now)
		if last.Err == nil {
			r.board.heard(last.At)
		}
		r.board.heard(r.conn.HeardAt())
		r.board.poisoned(r.cfg.Kafka.Seen)
		if r.trouble.Over(now) {
			r.troubles(r.log.Info(), now).Msg("the failures before have not come back")
		}
	}
	return nil
}

// watch starts the session's goroutine; from here on it alone uses the session.
func (r *run) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	reports := make(chan health, 1)
	r.cancel, r.loop.health = cancel, reports
	watched := replication.Watched{Slot: r.cfg.Slot, Walsender: r.conn.PID(), Publication: r.publication()}
	r.watchers.Go(func() { r.keepRewind(ctx) })
	r.watchers.Go(func() {
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
	})
}

// hold runs the rest of the start beside the loop, which keeps the slot.
func (r *run) hold(ctx context.Context, rest func(ctx context.Context) error) error {
	restCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	var restErr error
	go func() {
		defer close(done)
		restErr = rest(restCtx)
	}()
	err := r.loop.hold(ctx, r.held.Confirmed, done)
	cancel()
	<-done
	return errors.Join(err, ignoreCanceled(err, restErr))
}

// ignoreCanceled leaves out the echo of our own cancellation.
func ignoreCanceled(cause, err error) error {
	if cause != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// claim is step 3.
func (r *run) claim(ctx context.Context, lane int) error {
	if r.claimed == nil {
		r.claimed = r.kafka.NewClaim(r.conn.Lapsed)
	}
	if err := r.claimed.Take(ctx, lane); err != nil {
		return fmt.Errorf("claim the pipeline in Kafka: %w", err)
	}
	return nil
}

// load is step 4.
func (r *run) load(ctx context.Context) (checkpoint.Record, bool, error) {
	return r.claimed.Load(ctx)
}

// compare is step 5.
func (r *run) compare(record checkpoint.Record, found bool) (checkpoint.Decision, error) {
	decision, err := r.compareWith(record, found, r.held)
	if err != nil {
		return decision, err
	}
	r.beginSnapshot(&decision, record, found)
	if err := r.beginRecovery(&decision, record, found); err != nil {
		return decision, err
	}
	event := r.atStart(time.Now()).Stringer("slot_confirmed", r.held.Confirmed).Stringer("server_flushed", r.identity.Flushed).
		Stringer("start", decision.Start.Covered)
	if found {
		event = event.Stringer("checkpoint", record.Covered).Str("phase", string(record.Phase)).Str("last_delivery", record.Delivery)
	}
	event.Msg("compared checkpoint, slot and server")
	return decision, nil
}

func (r *run) write(ctx context.Context, edge checkpoint.Edge) error {
	return r.claimed.Write(ctx, r.record().With(edge))
}

// core joins both ends, at the position decided on.
func (r *run) core(decision checkpoint.Decision) *Core {
	if decision.Accepted != "" {
		r.log.Warn().Str("accepted", decision.Accepted).Stringer("start", decision.Start.Covered).Msg("starting over a gap that an operator accepted")
	}
	r.from = decision.Start
	r.sink = r.publisher(r.record(), r.cfg.Transactions)
	r.counters.ProgressAt = time.Now() // a stall begins with the stream
	return NewCore(CoreConfig{
		Start: decision.Start, SlotConfirmed: r.held.Confirmed, Limits: r.cfg.Limits,
		Mapper: r.mapping, Sink: r.sink, Source: r.conn, Pacer: r.loop.pacer,
		Counters: r.counters, Observe: r.cfg.Observe, Whole: r.cfg.Delivery == ExactlyOnce, Until: r.until(),
	})
}

func (r *run) publisher(base checkpoint.Record, o sink.TransactionalOptions) publisher {
	if r.cfg.Delivery == ExactlyOnce {
		return r.claimed.NewTransactional(base, o)
	}
	return r.claimed.NewIdempotent(base)
}

func (r *run) stream(ctx context.Context, core *Core) error {
	r.cfg.Postgres.Published.Note(r.identity.SystemID, r.identity.Timeline)
	r.loop.publish(core, r.loop.last, time.Now()) // before the state: nothing of the run before may be read as this one's
	r.board.state(Streaming, "")
	now := time.Now()
	event := r.atStart(now).Str("slot", r.cfg.Slot).Uint32("walsender_pid", r.conn.PID()).Str("delivery", string(r.cfg.Delivery))
	if r.trouble.Open(now) {
		event = r.troubles(event, now)
	}
	r.trouble.Well(now)
	event.Msg("streaming")
	streaming, ended := r.untilPaused(ctx)
	err := r.loop.run(streaming, core, r.cfg.ShutdownGrace)
	if turned := ended(); turned && ctx.Err() == nil {
		err = r.drained(err)
	}
	r.loop.publish(core, r.loop.last, time.Now())
	if errors.Is(err, replication.ErrPublicationMissing) {
		err = fmt.Errorf("%w. If the slot was read through another publication so far, name that by --publication. "+
			"PostgreSQL 18 and newer can pass over what was written without it: --accept-publication=%s", err, r.rows)
	}
	if errors.Is(err, checkpoint.ErrOtherHistory) {
		record := r.record().With(r.from)
		err = fmt.Errorf("%w: it was restored from a copy; %s. Connect to the server that was published from; if this one stays, %s",
			err, record.Stands(r.server(record)), record.Anew(true))
	}
	return err
}
