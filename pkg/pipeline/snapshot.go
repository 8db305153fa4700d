package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/snapshot"
)

// SnapshotMode says what becomes of rows that were there before the slot.
type SnapshotMode string

const (
	SnapshotNever   SnapshotMode = "never"   // they are not published
	SnapshotInitial SnapshotMode = "initial" // before the stream, at the pipeline's first start
	SnapshotOnly    SnapshotMode = "only"    // the same, and then the run ends
)

// SnapshotProgress of the snapshot under way.
type SnapshotProgress struct {
	Since    time.Time // of this run's first page
	Rows     uint64    // published, over all runs
	Resumed  uint64    // of them, by earlier runs
	Estimate int64     // of the tables' rows; -1: unknown
	Keys     int       // rows that the stream carries, and so are left to it
}

var (
	// errSnapshotDone: the next start finds the checkpoint and streams.
	errSnapshotDone = errors.New("the snapshot is complete")
	// errTextStream: the stream was taken in binary, before it was known that a
	// snapshot has to read it. The next start knows.
	errTextStream = errors.New("the snapshot reads the stream as text")
)

func (s *Supervisor) snapshots() bool {
	return s.cfg.Snapshot == SnapshotInitial || s.cfg.Snapshot == SnapshotOnly
}

// beginSnapshot turns the decision of a first start into that of its first page.
func (r *run) beginSnapshot(decision *checkpoint.Decision, record checkpoint.Record, found bool) {
	first := !found || record.Phase == checkpoint.PhaseSetup
	if first && r.snapshots() {
		decision.Start.Page = &checkpoint.Page{From: decision.Start.Covered, Where: r.cfg.SnapshotWhere}
	}
}

// publicationOfSetUp carries the whole primary key of tables that a snapshot reads.
func (r *run) publicationOfSetUp(ctx context.Context) (replication.PublicationSpec, error) {
	spec := r.publication()
	if !r.snapshots() {
		return spec, nil
	}
	wanted, err := r.wanted(ctx, r.session)
	if err != nil {
		return spec, err
	}
	tables, err := snapshot.Check(ctx, r.session.Conn(), wanted, r.cfg.SnapshotWhere)
	for _, t := range tables {
		for i := range spec.Tables {
			if named := &spec.Tables[i]; named.Schema == t.Schema && named.Name == t.Name {
				named.Columns = t.With(named.Columns)
			}
		}
	}
	return spec, err
}

// wanted are the tables of a snapshot, as the stream carries them.
func (r *run) wanted(ctx context.Context, conn *replication.Session) ([]snapshot.Wanted, error) {
	spec := r.publication()
	layouts, err := replication.Layouts(ctx, conn.Conn(), spec.Name, spec.Tables)
	if err != nil {
		return nil, err
	}
	var wanted []snapshot.Wanted
	for _, layout := range layouts {
		for _, t := range spec.Tables {
			if t.Schema == layout.Namespace && t.Name == layout.Name {
				if r.cfg.Delivery == AtLeastOnce && r.mapping.ColumnsOf(t.Schema, t.Name).EventID == "" {
					return nil, errNoEventID(t)
				}
				wanted = append(wanted, snapshot.Wanted{Layout: layout, Columns: t.Columns})
			}
		}
	}
	return wanted, nil
}

// errNoEventID: pages are counted anew behind the last checkpoint, and rows may have
// been deleted since. So in at-least-once delivery two rows can get the same
// position, which stands in for an event id that is not there.
func errNoEventID(t replication.PublishedTable) error {
	return &snapshot.TableError{
		Table: t.String(), Reason: "its rows have no event id, and in at-least-once delivery a crash may give two of them the same position",
		Remedy: "name a column by --id-column, or take --delivery exactly-once, or go without the old rows by --snapshot never",
	}
}

// snapshot publishes the rows that the stream will not carry, from where the
// checkpoint says; the slot is held, and keeps its position, meanwhile.
//
//  1. Fix a state of the tables, and the WAL's end behind it.
//  2. Read the stream up to there: what it inserts is left to it.
//  3. Publish the rest, page by page, down the road of every row.
func (r *run) snapshot(ctx context.Context, start checkpoint.Edge) error {
	if !r.text {
		r.wantText = true
		return errTextStream
	}
	if asked, began := r.cfg.SnapshotWhere, start.Page.Where; asked != "" && asked != began && start.Page.Recovery == nil {
		return &snapshot.TableError{
			Table: r.cfg.Pipeline, Reason: fmt.Sprintf("it began with the condition %q, not %q, and is not complete", began, asked),
			Remedy: "leave --snapshot-where as it was, or out, until it is",
		}
	}
	session, err := replication.OpenSession(ctx, r.cfg.Postgres)
	if err != nil {
		return err
	}
	defer session.Close()
	wanted, err := r.wanted(ctx, session)
	if err != nil {
		return err
	}
	source, err := snapshot.Open(ctx, session.Conn(), snapshot.Options{ // 1
		Tables: wanted, Page: *start.Page, Binary: r.binary, Limits: r.cfg.Limits,
	})
	if err != nil {
		return err
	}
	defer source.Close()
	keys := snapshot.NewKeys()
	defer keys.Close()
	inserted := snapshot.NewInserted(source.Tables(), keys, start.Page.From, source.Until())
	r.board.state(Snapshotting, fmt.Sprintf("reading the stream from %s to %s: its rows are left to it", r.held.Confirmed, source.Until()))
	if err := r.loop.collect(ctx, r.held.Confirmed, inserted.OnFrame); err != nil { // 2
		return err
	}
	keys.Seal()
	if start.Page.Recovery == nil {
		return r.publishSnapshot(ctx, source, keys) // 3
	}
	judge, err := r.compareWithTopics(ctx, session, source, wanted)
	if err != nil {
		return err
	}
	defer judge.Close()
	defer source.Close() // before what it asks
	source.Leave(judge)
	return r.recovered(r.publishSnapshot(ctx, source, keys), judge, start.Page.From)
}

func (r *run) publishSnapshot(ctx context.Context, source *snapshot.Source, keys *snapshot.Keys) error {
	start := source.Start()
	began := SnapshotProgress{Since: time.Now(), Rows: start.Page.Rows, Resumed: start.Page.Rows, Estimate: source.Estimate(), Keys: keys.Len()}
	word, what := "snapshot", "the rows from before the slot"
	if start.Page.Recovery != nil {
		word, what = "recovery", "the rows that are in no topic"
	}
	r.log.Info().Uint64("rows_published", began.Rows).Int64("rows_estimated", began.Estimate).Int("rows_left_to_the_stream", began.Keys).
		Stringer("stream_from", start.Page.From).Msg(word + ": publishing " + what)
	transactions := r.cfg.Transactions
	transactions.KeepWhole = true // a checkpoint names the last row of a page, not one inside it
	base := r.record()
	base.Phase = checkpoint.PhaseSnapshot // no history is kept of it: its rows are from before the stream
	r.sink = r.publisher(base, transactions)
	r.counters.ProgressAt = time.Now()
	until := source.End()
	if skip := r.until(); skip != 0 && skip < until {
		until = skip
	}
	core := NewCore(CoreConfig{
		Start: start, SlotConfirmed: start.Covered, Limits: r.cfg.Limits, Mapper: r.mapping, Sink: r.sink,
		Source: nowhere{}, Pacer: NewPacer(r.cfg.StatusInterval, 0, time.Now()), Counters: r.counters,
		Whole: r.cfg.Delivery == ExactlyOnce, Until: until, Page: source.Page, Held: r.held.Confirmed,
	})
	r.loop.stream = &snapshotStream{Source: source, conn: r.conn, loop: r.loop, slot: r.held.Confirmed, every: r.cfg.StatusInterval}
	observe, told := r.loop.publish, began.Since
	progress := began
	r.loop.publish = func(core *Core, last replication.Health, now time.Time) {
		if since := source.Waiting(); !since.IsZero() && since.Before(core.counters.ProgressAt) {
			core.counters.ProgressAt = since // with nothing in flight, PostgreSQL is who is waited for
		}
		observe(core, last, now)
		if page := core.ledger.Published().Page; page != nil { // else it is complete
			progress.Rows = page.Rows
		}
		r.board.snapshot(progress)
		if now.Sub(told) >= snapshotLogInterval {
			told = now
			r.logSnapshot(word, progress, now)
		}
	}
	r.loop.publish(core, r.loop.last, time.Now())
	r.board.state(Snapshotting, "")
	source.Run(ctx, keys)
	publishing, ended := r.untilPaused(ctx)
	err := r.loop.run(publishing, core, r.cfg.ShutdownGrace)
	if turned := ended(); turned && ctx.Err() == nil {
		err = r.drained(err)
	}
	if err != nil || !core.Reached() || until != source.End() {
		return err
	}
	r.log.Info().Uint64("rows_published", progress.Rows).Stringer("took", time.Since(began.Since).Round(time.Millisecond)).
		Stringer("stream_from", start.Page.From).Msg(word + ": complete")
	return errSnapshotDone
}

const snapshotLogInterval = 10 * time.Second

func (r *run) logSnapshot(word string, p SnapshotProgress, now time.Time) {
	event := r.log.Info().Uint64("rows_published", p.Rows).Int64("rows_estimated", p.Estimate).Float64("rows_per_second", math.Round(p.Rate(now)))
	if left, ok := p.Remaining(now); ok {
		event = event.Stringer("remaining", left.Round(time.Second))
	}
	event.Msg(word + ": under way")
}

// Rate in rows per second, of this run.
func (p SnapshotProgress) Rate(now time.Time) float64 {
	if took := now.Sub(p.Since).Seconds(); took > 0 {
		return float64(p.Rows-p.Resumed) / took
	}
	return 0
}

// Remaining time, as far as the estimate goes.
func (p SnapshotProgress) Remaining(now time.Time) (time.Duration, bool) {
	rate, left := p.Rate(now), float64(p.Estimate)-float64(p.Rows)
	if p.Estimate < 0 || rate <= 0 || left < 0 {
		return 0, false
	}
	return time.Duration(left / rate * float64(time.Second)), true
}

// snapshotStream is the stream of a snapshot. Beside its pages it keeps the slot:
// with statuses that confirm nothing but the slot's own position.
type snapshotStream struct {
	*snapshot.Source
	conn  *replication.Conn
	loop  *loop
	slot  pglogrepl.LSN
	every time.Duration
	told  time.Time
}

// HeardAt: nobody reads the connection; whether the slot is ours still says Lapsed,
// and the session's health.
func (s *snapshotStream) HeardAt() time.Time { return time.Now() }

// Lapsed is asked at every tick.
func (s *snapshotStream) Lapsed() error {
	if err := s.conn.Lapsed(); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(s.told) >= s.every {
		s.told = now
		if err := s.conn.SendStatus(s.slot, s.slot, false); err != nil {
			return fmt.Errorf("send status update: %w", err)
		}
	}
	return nil
}

// SendStatus of the core's: its LSNs count pages.
func (s *snapshotStream) SendStatus(pglogrepl.LSN, pglogrepl.LSN, bool) error { return nil }

// Finish leaves the stream as it is: nothing of it was confirmed.
func (s *snapshotStream) Finish(context.Context) error { return nil }

// nowhere is where the core's statuses go.
type nowhere struct{}

func (nowhere) SendStatus(pglogrepl.LSN, pglogrepl.LSN, bool) error { return nil }

// collect hands the stream's frames to take until it has what it wants. The slot's
// position is confirmed and no more.
func (l *loop) collect(ctx context.Context, slotConfirmed pglogrepl.LSN, take func(payload []byte) (done bool, err error)) error {
	ask := func() error { // for a keepalive, which says how far the server is
		l.pacer.Sent(slotConfirmed, slotConfirmed, time.Now())
		if err := l.stream.SendStatus(slotConfirmed, slotConfirmed, true); err != nil {
			return fmt.Errorf("send status update: %w", err)
		}
		return nil
	}
	if err := ask(); err != nil {
		return err
	}
	asked := time.Now()
	for {
		select {
		case batch, ok := <-l.stream.Batches():
			if !ok {
				return l.ended()
			}
			done, err := takeAll(batch, take)
			l.stream.Release(batch)
			if done || err != nil {
				return err
			}
		case now := <-l.ticker.C:
			if err := l.stream.Lapsed(); err != nil {
				return err
			}
			if now.Sub(asked) < askInterval {
				continue
			}
			asked = now
			if err := ask(); err != nil {
				return err
			}
		case h := <-l.health:
			if err := l.onHealth(h); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askInterval between requests for a keepalive.
const askInterval = 500 * time.Millisecond

func takeAll(batch *decode.Batch, take func([]byte) (bool, error)) (done bool, err error) {
	for {
		payload, ok := batch.Next()
		if !ok {
			return false, nil
		}
		if done, err = take(payload); done || err != nil {
			return done, err
		}
	}
}
