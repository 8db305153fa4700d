package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/recovery"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/snapshot"
)

// Recovery is what an operator asks for.
type Recovery struct {
	// Window is how long before the last commit published rows are in doubt; All:
	// every row is.
	Window time.Duration
	All    bool
	// NewSlot: the slot is made anew also where it looks well.
	NewSlot bool
	// TrustIDs: an event id in the topics is enough, whatever its value.
	TrustIDs bool
	Earlier  []string // pipelines whose records count too
	Topics   []string // to read beside those that settings and rows name
	Wait     time.Duration
	Progress func(text string)

	expected uint64 // rows to be published, as the survey counted them
	judge    *recovery.Judge
	from     pglogrepl.LSN // where the stream takes over
}

// ErrNothingToRecover: a start has nothing to say against it, or anything but a
// recovery is the way out.
var ErrNothingToRecover = errors.New("there is nothing to recover")

// plan says whether the slot is made anew, and which rows are in doubt.
func (r *run) plan(record checkpoint.Record, found bool, slot checkpoint.Slot) (anew bool, doubt checkpoint.Recovery, err error) {
	asked, server := r.cfg.Recover, r.server(record)
	if err := r.refused(checkpoint.CompareIdentity(pointer(record, found), server, r.cfg.Slot, r.cfg.Accept)); err != nil {
		return false, doubt, err
	}
	known := found && record.SystemID == server.SystemID
	switch {
	case !found && !slot.Exists:
		return false, doubt, fmt.Errorf("%w: there is no checkpoint and no slot; a start with --snapshot initial publishes all rows", ErrNothingToRecover)
	case found && record.Phase == checkpoint.PhaseSetup:
		return false, doubt, fmt.Errorf("%w: nothing was published yet; start walstream, which finishes the set-up", ErrNothingToRecover)
	case !slot.Exists, slot.Invalidated != "":
		anew = true
	case found && record.Phase == checkpoint.PhaseRecover: // it was made anew
	case asked.NewSlot, known && record.Timeline != server.Timeline && server.SwitchUnknown, known && record.Timeline == server.Timeline && record.Reach() > server.Flushed:
		anew = true
	case found && record.Phase == checkpoint.PhaseSnapshot:
		return false, doubt, fmt.Errorf("%w: a first snapshot is under way and can go on; start walstream, which finishes it", ErrNothingToRecover)
	case found && record.Ordinal > 0:
		return false, doubt, fmt.Errorf("%w yet: the last transaction is published in part, and the slot still has the rest; start walstream, which publishes it, stop it, and then recover",
			ErrNothingToRecover)
	}
	if found {
		doubt = record.Recover(server, asked.Window, asked.All)
	}
	if asked.NewSlot && !(found && record.Phase == checkpoint.PhaseRecover) { // the history is another, whatever it looks like
		doubt.Forked, doubt.XID = true, 0
	}
	doubt.TrustIDs = doubt.TrustIDs || asked.TrustIDs
	doubt.Earlier, doubt.Topics = merged(doubt.Earlier, asked.Earlier), merged(doubt.Topics, asked.Topics)
	doubt.Expected = asked.expected
	return anew, doubt, nil
}

func merged(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// lookToRecover is step 1 of a recovery: where the slot is of no use any more, it is
// made anew.
func (r *run) lookToRecover(ctx context.Context, record checkpoint.Record, found bool, slot checkpoint.Slot) error {
	anew, doubt, err := r.plan(record, found, slot)
	if err != nil || !anew {
		return err
	}
	return r.makeAnew(ctx, record, found, slot, doubt)
}

// makeAnew drops what is left of the slot, which is the lock, writes down what is in
// doubt, and makes the slot. Cut short before the checkpoint is written, it begins
// anew; behind it, the next one finds an unmade recovery and goes on.
func (r *run) makeAnew(ctx context.Context, before checkpoint.Record, found bool, slot checkpoint.Slot, doubt checkpoint.Recovery) error {
	if slot.Exists {
		if err := replication.DropSlot(ctx, r.session.Conn(), r.cfg.Slot); err != nil {
			return err
		}
		r.log.Warn().Str("slot", r.cfg.Slot).Str("was", slot.Invalidated).Stringer("confirmed", slot.Confirmed).Msg("recovery: dropped the slot")
	}
	defer func() { // as in setUp: what is fenced here proves nothing about whoever takes the slot meanwhile
		r.claimed.Close()
		r.claimed = nil
	}()
	if err := claimLanes(ctx, r); err != nil {
		return err
	}
	record, still, err := r.load(ctx)
	if err != nil {
		return err
	}
	now, err := r.slot(ctx)
	if err != nil {
		return err
	}
	if still != found || record.Phase != before.Phase || record.Covered != before.Covered || now.Exists {
		return fmt.Errorf("%w: checkpoint or slot have changed while the recovery began", ErrInUse)
	}
	spec := r.publication()
	unmade := doubt.Begin(0)
	unmade.Page.Recovery = &doubt
	if record.Snapshot != nil {
		unmade.Page.Number, unmade.Page.Where = record.Snapshot.Number, record.Snapshot.Where
	}
	if !record.Unmade() {
		if err := r.claimed.Write(ctx, r.record().With(unmade)); err != nil {
			return fmt.Errorf("write down what is in doubt: %w", err)
		}
	}
	if _, err := replication.EnsurePublication(ctx, r.session.Conn(), spec); err != nil {
		return err
	}
	lsn, err := replication.CreateSlot(ctx, r.session.Conn(), r.cfg.Slot, r.cfg.SlotFailover, r.waitingForSlot)
	if errors.Is(err, replication.ErrSlotExists) {
		return nil
	}
	if err != nil {
		return err
	}
	r.log.Info().Str("slot", r.cfg.Slot).Stringer("lsn", lsn).Msg("recovery: made the slot anew: rows committed from here on come from it")
	return nil
}

// beginRecovery turns the decision into that of a recovery's first page, where the
// slot is there and none has begun.
func (r *run) beginRecovery(decision *checkpoint.Decision, record checkpoint.Record, found bool) error {
	if r.cfg.Recover == nil || decision.Start.Page != nil {
		return nil
	}
	anew, doubt, err := r.plan(record, found, r.held)
	if err != nil {
		return err
	}
	if anew {
		return fmt.Errorf("%w: the slot has to be made anew, and was not", ErrInUse)
	}
	decision.Start = doubt.Begin(decision.Start.Covered)
	decision.Accepted = "recover"
	return nil
}

// compareWithTopics reads what they hold, while the slot is kept.
func (r *run) compareWithTopics(ctx context.Context, session *replication.Session, source *snapshot.Source, wanted []snapshot.Wanted) (judge *recovery.Judge, err error) {
	works := func() { r.board.update(func(p *Progress) { p.Counters.ProgressAt = time.Now() }) }
	works()
	r.board.state(Snapshotting, "recovery: reading what the topics hold")
	cfg := r.comparison(*source.Start().Page.Recovery, wanted)
	cfg.Read = works
	err = r.hold(ctx, func(ctx context.Context) (err error) {
		judge, err = recovery.Open(ctx, session.Conn(), source.Tables(), cfg)
		return err
	})
	if err != nil && judge != nil {
		judge.Close()
	}
	return judge, err
}

func (r *run) comparison(doubt checkpoint.Recovery, wanted []snapshot.Wanted) recovery.Config {
	cfg := recovery.Config{
		Pipeline: r.cfg.Pipeline, Kafka: r.kafka, Mapping: r.cfg.Mapping, Tables: wanted, Doubt: doubt, Wait: recoveryWait,
	}
	if asked := r.cfg.Recover; asked != nil {
		cfg.Wait, cfg.Progress = asked.Wait, asked.Progress
	}
	return cfg
}

// recoveryWait is how long open Kafka transactions may take to end, of other
// pipelines: our own were ended by the claim.
const recoveryWait = 30 * time.Second

// recovered tells what has become of the rows, in the log and to the command.
func (r *run) recovered(err error, judge *recovery.Judge, from pglogrepl.LSN) error {
	if !errors.Is(err, errSnapshotDone) {
		return err
	}
	c := judge.Counted()
	r.log.Info().Uint64("rows_read", c.Read).Uint64("found_in_topics", c.Found).Uint64("left_to_the_stream", c.Left).
		Uint64("published", c.Read-c.Found-c.Left).Uint64("ids_in_use_again", c.Reused).Stringer("stream_from", from).Msg("recovery: what has become of the rows in doubt")
	if asked := r.cfg.Recover; asked != nil {
		asked.judge, asked.from = judge, from
	}
	return err
}

// SurveyRecovery says which rows are in doubt, and what a recovery would do. It
// changes nothing.
func SurveyRecovery(ctx context.Context, cfg Config) (*recovery.Report, error) {
	began := time.Now()
	cfg.Snapshot = SnapshotNever
	r := &run{Supervisor: NewSupervisor(cfg)}
	defer r.close()
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	if r.identity.InRecovery {
		return nil, fmt.Errorf("%w: a recovery reads and makes what only a primary has; name that by --postgres, without --from-standby", replication.ErrInRecovery)
	}
	info, err := replication.LookupSlot(ctx, r.session.Conn(), cfg.Slot)
	if err != nil {
		return nil, err
	}
	if info.Active {
		return nil, fmt.Errorf("%w: slot %q is held by %s; stop it first (walstream audit compares beside a pipeline at work)", ErrInUse, cfg.Slot, info.Holder())
	}
	slot, err := r.slot(ctx)
	if err != nil {
		return nil, err
	}
	record, found, err := r.kafka.Load(ctx)
	if err != nil {
		return nil, err
	}
	if r.identity.Flushed, r.identity.Now, err = r.session.Flushed(ctx); err != nil {
		return nil, err
	}
	if r.rows, err = replication.RowsFingerprint(ctx, r.session.Conn(), r.publication()); err != nil {
		return nil, err
	}
	anew, doubt, err := r.plan(record, found, slot)
	if err != nil {
		return nil, err
	}
	report := r.begunReport(record, found, slot, anew)
	from := pglogrepl.LSN(0)
	if !anew {
		decision, err := r.compareWith(record, found, slot)
		if err != nil {
			return nil, err
		}
		from = decision.Start.Covered
		report.Window.StreamFrom = from.String()
	}
	if err := r.survey(ctx, report, doubt, from); err != nil {
		return nil, err
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

func (r *run) begunReport(record checkpoint.Record, found bool, slot checkpoint.Slot, anew bool) *recovery.Report {
	server := r.server(record)
	report := &recovery.Report{
		Pipeline: r.cfg.Pipeline, Slot: r.cfg.Slot, NewSlot: anew, SlotNow: "at " + slot.Confirmed.String(),
		Server: recovery.Place{LSN: server.Flushed.String(), Timeline: server.Timeline, SystemID: server.SystemID},
	}
	switch {
	case !slot.Exists:
		report.SlotNow = "missing"
	case slot.Invalidated != "":
		report.SlotNow = "invalidated (" + slot.Invalidated + "), confirmed up to " + slot.Confirmed.String()
	}
	if found {
		report.Checkpoint = recovery.Place{
			LSN: record.Covered.String(), CommitTime: record.CommitTime, Timeline: record.Timeline, SystemID: record.SystemID, Phase: string(record.Phase),
		}
		if server.SwitchPoint != 0 {
			report.Switch = server.SwitchPoint.String()
		}
	}
	_, err := checkpoint.Compare(pointer(record, found), slot, server, r.cfg.Slot, r.cfg.Accept)
	if refusal, ok := errors.AsType[*checkpoint.Refusal](err); ok {
		report.Refused = refusal.Found
	}
	return report
}

// survey compares the rows in doubt; from is where an existing slot's stream takes
// over, 0: the slot is made anew.
func (r *run) survey(ctx context.Context, report *recovery.Report, doubt checkpoint.Recovery, from pglogrepl.LSN) error {
	session, err := replication.OpenSession(ctx, r.cfg.Postgres)
	if err != nil {
		return err
	}
	defer session.Close()
	wanted, err := r.wanted(ctx, session)
	if err != nil {
		return err
	}
	source, err := snapshot.Open(ctx, session.Conn(), snapshot.Options{Tables: wanted})
	if err != nil {
		return err
	}
	defer source.Close()
	carried := snapshot.NewKeys()
	defer carried.Close()
	if from != 0 {
		inserted := snapshot.NewInserted(source.Tables(), carried, from, source.Until())
		err := replication.Peek(ctx, r.session.Conn(), r.cfg.Slot, r.cfg.Publication, source.Until(), func(payload []byte) error {
			_, err := inserted.OnFrame(payload)
			return err
		})
		if err != nil {
			return err
		}
	}
	carried.Seal()
	judge, err := recovery.Open(ctx, session.Conn(), source.Tables(), r.comparison(doubt, wanted))
	if err != nil {
		return err
	}
	defer judge.Close()
	if err := judge.Survey(ctx, session.Conn(), carried); err != nil {
		return err
	}
	for n := range source.Tables() {
		outside, err := judge.Outside(ctx, session.Conn(), n)
		if err != nil {
			return err
		}
		report.AddTable(judge, n, outside)
	}
	report.Fill(judge)
	return nil
}

// Recover publishes what the survey, just made, has found to be in no topic, and
// what else is by then; and returns the report of that.
func Recover(ctx context.Context, cfg Config, survey *recovery.Report) (*recovery.Report, error) {
	began := time.Now()
	asked := *cfg.Recover
	asked.expected = survey.Published
	cfg.Recover, cfg.Snapshot = &asked, SnapshotNever
	s := NewSupervisor(cfg)
	if err := s.Run(ctx); err != nil {
		return nil, err
	}
	if asked.judge == nil {
		return nil, fmt.Errorf("interrupted: %w; another walstream recover --execute, or the service, goes on where it was", context.Cause(ctx))
	}
	report := *survey
	lost, lostIDs, missing := report.Lost, report.LostIDs, report.PublishedIDs
	report.Fill(asked.judge)
	report.Lost, report.LostIDs = lost, lostIDs // one that was resumed has not seen all rows
	if len(report.PublishedIDs) < len(missing) {
		report.PublishedIDs = missing
	}
	report.Executed, report.Window.StreamFrom, report.Seconds = true, asked.from.String(), time.Since(began).Seconds()
	return &report, nil
}
