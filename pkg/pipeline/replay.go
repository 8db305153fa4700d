package pipeline

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/repeat"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
	"github.com/walstream/walstream/pkg/snapshot"
)

// Replay publishes rows once more, beside the pipeline: with transactional ids and a
// checkpoint of its own, under ReplayName, and without the pipeline's slot.
type Replay struct {
	// Of is the pipeline whose rows they are.
	Of string
	// Note is what was asked for; its numbers are 0.
	Note checkpoint.Replay
	// Rewind is the slot whose copy is read, between the LSNs From and To, for the
	// WAL's source; empty: the tables are read.
	Rewind   string
	From, To pglogrepl.LSN

	Topic       string // events of this topic only; empty: of all
	Key         *string
	TopicPrefix string
	Rate        int  // rows a second; 0: as fast as it goes
	Anew        bool // what another run has left is forgotten
	DryRun      bool // nothing is published, nor kept
	// Told hears, often, what is published. May be nil.
	Told func(checkpoint.Replay)
}

// ReplayName is the pipeline that a replay of another one is.
func ReplayName(pipeline string) string { return pipeline + ".replay" }

var (
	// ErrReplayRuns: another replay of the pipeline is at work.
	ErrReplayRuns = errors.New("another replay of this pipeline is at work")
	// ErrReplayBegun: another replay of the pipeline was begun, and is not complete.
	ErrReplayBegun = errors.New("another replay of this pipeline was begun and is not complete")
	// ErrReplayUncovered: what was to be replayed is no longer there in full.
	ErrReplayUncovered = errors.New("the rows to replay are not all to be had")
)

// Run publishes until the replay is complete, or ctx ends, or an error needs a
// person. What it returns says how far it came, also beside an error; Done tells
// that it is complete.
func (p *Replay) Run(ctx context.Context, cfg Config) (checkpoint.Replay, error) {
	cfg.Pipeline = ReplayName(p.Of)
	cfg.Kafka.Pipeline, cfg.Kafka.ClientID = cfg.Pipeline, "walstream."+cfg.Pipeline
	cfg.Kafka.HistoryRetention = 0 // what is published again is history already
	a := &again{Supervisor: NewSupervisor(cfg), Replay: p, anew: p.Anew, reached: p.Note}
	a.beside = true
	var pause time.Duration
	for {
		before := a.reached.Rows
		err := a.attempt(ctx)
		class := Classify(err)
		if errors.Is(err, ErrUnacknowledged) && ctx.Err() == nil {
			class = Class{Retry, "kafka"}
		}
		switch {
		case err == nil, ctx.Err() != nil && (class.Action != Stop || class.Reason == unknown):
			return a.reached, nil
		case errors.Is(err, sink.ErrFenced):
			return a.reached, fmt.Errorf("%w, and has taken over: %w", ErrReplayRuns, err)
		case class.Action != Retry:
			return a.reached, err
		}
		pause = nextPause(pause, a.reached.Rows > before, class)
		a.note(class, err)
		select {
		case <-ctx.Done():
		case <-time.After(jitter(pause)):
		}
	}
}

// again is what the attempts of a replay share.
type again struct {
	*Supervisor
	*Replay
	anew    bool
	reached checkpoint.Replay // durable, as far as this process knows
}

// attempt is one way from the checkpoint to the end.
func (a *again) attempt(ctx context.Context) error {
	r := &run{Supervisor: a.Supervisor}
	defer r.close()
	if err := r.connect(ctx); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := a.lock(ctx, r); err != nil {
		return err
	}
	record, err := a.begin(ctx, r)
	if err != nil || a.reached.Done {
		return err
	}
	m := &againMapper{Mapping: r.mapping, replay: a.Replay, sum: *record.Replay, prefixed: map[string]string{}}
	m.sum.Topics = maps.Clone(m.sum.Topics)
	if a.Rewind == "" {
		return a.fromTables(ctx, r, record, m)
	}
	return a.fromWAL(ctx, r, record, m)
}

// lock keeps two replays of a pipeline apart where they meet on one server. Kafka
// keeps apart those that do not.
func (a *again) lock(ctx context.Context, r *run) error {
	if a.DryRun {
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte("walstream replay " + a.Of)) // never fails
	var locked bool
	if err := r.session.Conn().QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(h.Sum64())).Scan(&locked); err != nil {
		return fmt.Errorf("keep other replays out: %w", replication.Classify(err))
	}
	if !locked {
		return fmt.Errorf("%w: wait for its end, or stop it; it can be resumed", ErrReplayRuns)
	}
	return nil
}

// begin claims the replay's own ids, and finds where it goes on.
func (a *again) begin(ctx context.Context, r *run) (record checkpoint.Record, err error) {
	if r.identity.Flushed, r.identity.Now, err = r.session.Flushed(ctx); err != nil {
		return record, err
	}
	if a.DryRun {
		return a.fresh(r), nil
	}
	r.claimed = r.kafka.NewClaim(nil)
	if err := claimLanes(ctx, r); err != nil {
		return record, err
	}
	record, found, err := r.load(ctx)
	if err != nil {
		return record, err
	}
	if found && !a.anew {
		if err := a.Fits(&record, r.identity.SystemID); err != nil {
			return record, err
		}
		if record.Replay.Request == a.Note.Request {
			a.reached = *record.Replay
			return record, nil
		}
	}
	record = a.fresh(r)
	if err := r.claimed.Write(ctx, record); err != nil {
		return record, err
	}
	a.anew, a.reached = false, *record.Replay
	return record, nil
}

// Fits tells whether the replay may go on from a checkpoint, or begin behind it.
func (p *Replay) Fits(record *checkpoint.Record, systemID string) error {
	const restart = "--restart begins anew"
	switch {
	case record.Replay == nil:
		return &checkpoint.Refusal{
			Kind:   checkpoint.RefuseOtherPipeline,
			Found:  fmt.Sprintf("the checkpoint of %q is that of a pipeline, not of a replay of %q", record.Pipeline, p.Of),
			Remedy: "give one of the two another name by --pipeline",
		}
	case record.Replay.Done && record.Replay.Request != p.Note.Request:
		return nil
	case record.Replay.Request != p.Note.Request:
		return fmt.Errorf("%w: %s published %d rows of %s; give it its own arguments again (%s), or %s",
			ErrReplayBegun, record.Replay.ID, record.Replay.Rows, record.Replay.Covers, record.Replay.Request, restart)
	case record.SystemID != systemID && !record.Replay.Done:
		return fmt.Errorf("%w: replay %s was begun on the server %s, this one is %s; %s", ErrReplayUncovered, record.Replay.ID, record.SystemID, systemID, restart)
	}
	return nil
}

// record of a replay has no slot: whatever takes it for a pipeline's is refused.
func (a *again) record(r *run) checkpoint.Record {
	record := r.record()
	record.Slot = "(none: a replay of " + a.Of + ")"
	return record
}

// fresh is the first checkpoint of a replay.
func (a *again) fresh(r *run) checkpoint.Record {
	note := a.Note
	record := a.record(r)
	record.Replay = &note
	if a.Rewind != "" {
		// Whatever was committed below From is left out; no transaction proves it.
		return record.With(checkpoint.Edge{Covered: a.From, CommitLSN: a.From, Replay: &note})
	}
	return record.With(checkpoint.Edge{Page: &checkpoint.Page{From: r.identity.Flushed}, Replay: &note})
}

// publish hands a stream's frames to the core until it has come to its end.
func (a *again) publish(ctx context.Context, r *run, stream Stream, m *againMapper, c CoreConfig, o sink.TransactionalOptions) error {
	if a.DryRun {
		r.sink, c.Whole = unread{sink.NewStdout(io.Discard)}, false
	} else {
		r.sink = r.publisher(a.record(r), o)
		c.Whole = r.cfg.Delivery == ExactlyOnce
	}
	c.Limits, c.Mapper, c.Sink, c.Counters, c.Note = r.cfg.Limits, m, r.sink, r.counters, m.note
	core := NewCore(c)
	if r.loop == nil {
		r.loop = &loop{ticker: time.NewTicker(tick), log: r.log, unread: repeat.Episode{Calm: calm}}
	}
	pace := pace{rate: float64(a.Rate), at: time.Now()}
	r.loop.held = func() bool { return pace.spent(m.mapped) }
	r.loop.stream, r.loop.pacer, r.loop.waitsFor, r.loop.draining = stream, c.Pacer, r.kafka.Trouble, func() {}
	r.loop.publish = func(core *Core, _ replication.Health, now time.Time) {
		if done := core.ledger.Published().Replay; done != nil {
			a.reached = *done
		}
		if a.Told != nil {
			a.Told(a.reached)
		}
	}
	err := r.loop.run(ctx, core, r.cfg.ShutdownGrace)
	r.loop.publish(core, r.loop.last, time.Now())
	if err == nil && !core.Reached() && ctx.Err() == nil {
		err = replication.ErrStreamEnded
	}
	return err
}

// unread is a sink that publishes nothing.
type unread struct{ *sink.Stdout }

func (unread) Close() {}

// fromTables reads the tables page by page, as a snapshot does.
func (a *again) fromTables(ctx context.Context, r *run, record checkpoint.Record, m *againMapper) error {
	r.conn.Close()
	r.conn = nil
	session, err := replication.OpenSession(ctx, r.cfg.Postgres)
	if err != nil {
		return err
	}
	defer session.Close()
	wanted, err := a.wanted(ctx, r, session)
	if err != nil {
		return err
	}
	limits := r.cfg.Limits
	if a.Rate > 0 { // pages of no more than a tenth of a second
		limits.Events = min(limits.Events, max(8, a.Rate/10*8))
	}
	source, err := snapshot.Open(ctx, session.Conn(), snapshot.Options{Tables: wanted, Page: *record.Snapshot, Binary: r.binary, Limits: limits})
	if err != nil {
		return err
	}
	defer source.Close()
	keys := snapshot.NewKeys()
	defer keys.Close()
	o := r.cfg.Transactions
	o.KeepWhole = true
	start := source.Start()
	start.Replay = record.Replay
	source.Run(ctx, keys)
	return a.publish(ctx, r, pages{source}, m, CoreConfig{
		Start: start, SlotConfirmed: start.Covered, Source: nowhere{}, Pacer: NewPacer(r.cfg.StatusInterval, 0, time.Now()),
		Until: source.End(), Page: source.Page, Held: source.End() + 1,
	}, o)
}

// wanted are the tables with a condition, with all of their columns to order by.
func (a *again) wanted(ctx context.Context, r *run, session *replication.Session) (wanted []snapshot.Wanted, err error) {
	tables := r.publication().Tables
	layouts, err := replication.Layouts(ctx, session.Conn(), "", tables)
	if err != nil {
		return nil, err
	}
	for _, layout := range layouts {
		for _, t := range tables {
			name := t.Schema + "." + t.Name
			where, ok := a.reached.Where[name]
			if !ok || t.Schema != layout.Namespace || t.Name != layout.Name {
				continue
			}
			w := snapshot.Wanted{Layout: layout, Columns: t.Columns, Where: where}
			if order := a.reached.Order[name]; order != "" {
				w.Order = []string{order}
			}
			wanted = append(wanted, w)
		}
	}
	return wanted, nil
}

// pages are the stream of a replay of tables.
type pages struct{ *snapshot.Source }

func (pages) HeardAt() time.Time                                  { return time.Now() }
func (pages) Lapsed() error                                       { return nil }
func (pages) SendStatus(pglogrepl.LSN, pglogrepl.LSN, bool) error { return nil }
func (pages) Finish(context.Context) error                        { return nil }

// pace lets no more rows through than it may.
type pace struct {
	rate  float64 // rows a second; 0: any number
	taken uint64
	left  float64 // rows that may go now
	at    time.Time
}

// spent tells that no row may go, with so many gone.
func (p *pace) spent(rows uint64) bool {
	if p.rate <= 0 {
		return false
	}
	now := time.Now()
	p.left = min(p.left+p.rate*now.Sub(p.at).Seconds(), p.rate) - float64(rows-p.taken)
	p.at, p.taken = now, rows
	return p.left <= 0
}
