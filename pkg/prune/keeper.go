package prune

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/repeat"
	"github.com/walstream/walstream/pkg/replication"
)

// Stream says how far this process has published, durably, and confirmed; or why
// nothing is to be done beside it at the moment.
type Stream func() (confirmed pglogrepl.LSN, waits string)

// Keeper prunes beside a stream, pass after pass. It gives way: to a stream that is
// behind, and to the server, which it asks for a small part of the time only. What
// goes wrong with it never touches the stream.
type Keeper struct {
	cfg    Config
	every  time.Duration
	stream Stream
	log    zerolog.Logger

	report  atomic.Pointer[Report]
	trouble repeat.Episode
	told    Report // as of the last line of the log
	toldAt  time.Time
}

// Report of a Keeper: counts are those of the process.
type Report struct {
	Deleted, Stamped int64 // rows
	Dropped          int64 // partitions
	Left             int64 // rows that others held: they are met again
	// Oldest row there is, by the age column; zero where no index tells.
	Oldest   time.Time
	PassedAt time.Time // the end of the last whole pass
	Waits    string    // why nothing is done at the moment
	Err      string    // why the last pass ended early; empty when it did not
	ErrAt    time.Time
}

const (
	keeperRest   = 2 * time.Second // between two looks at a stream that it gives way to
	keeperWait   = time.Minute     // for rows that were seen to be published
	keeperLimit  = 2 * time.Minute // for one reading of a table
	keeperShare  = 20              // of so many parts of the time, one is spent reading
	keeperPause  = 50 * time.Millisecond
	keeperSilent = time.Hour // one line in the log sums up so much
)

// NewKeeper returns one that has not begun.
func NewKeeper(cfg Config, every time.Duration, stream Stream, log zerolog.Logger) *Keeper {
	cfg.Postgres.ApplicationName = "retention of " + cfg.Pipeline
	cfg.Wait = keeperWait
	k := &Keeper{cfg: cfg, every: every, stream: stream, log: log, trouble: repeat.Episode{Calm: keeperSilent}}
	k.report.Store(&Report{})
	return k
}

// Report is the newest one.
func (k *Keeper) Report() *Report { return k.report.Load() }

func (k *Keeper) update(change func(*Report)) {
	next := *k.report.Load()
	change(&next)
	k.report.Store(&next)
}

// Run until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	defer func() {
		k.toldAt = time.Time{}
		k.tell(time.Now())
	}()
	rest := min(keeperRest, k.every)
	for sleep(ctx, rest) == nil {
		_, waits := k.stream()
		k.update(func(r *Report) { r.Waits = waits })
		if rest = min(keeperRest, k.every); waits != "" {
			continue
		}
		read, err := k.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		k.note(err)
		rest = max(k.every, (keeperShare-1)*read)
	}
}

// errGaveWay ends a pass, and is nothing wrong.
var errGaveWay = errors.New("gave way to the stream")

func (k *Keeper) note(err error) {
	now := time.Now()
	switch {
	case errors.Is(err, errGaveWay):
		return
	case err == nil:
		k.update(func(r *Report) { r.PassedAt, r.Err = now, "" })
		if k.trouble.Well(now) {
			k.log.Info().Int("failures", k.trouble.Count()).Msg("retention works again")
		}
	default:
		k.update(func(r *Report) { r.Err, r.ErrAt = err.Error(), now })
		if k.trouble.Trouble(err.Error(), now) {
			k.log.Warn().Err(err).Int("failures", k.trouble.Count()).Msg("retention: a pass ended early, the next one tries again; the stream goes on")
		}
	}
	k.tell(now)
}

// tell sums up what was done since the last line.
func (k *Keeper) tell(now time.Time) {
	r := *k.Report()
	deleted, stamped, dropped := r.Deleted-k.told.Deleted, r.Stamped-k.told.Stamped, r.Dropped-k.told.Dropped
	if deleted+stamped+dropped == 0 || now.Sub(k.toldAt) < keeperSilent {
		return
	}
	event := k.log.Info().Int64("rows_deleted", deleted).Int64("rows_stamped", stamped).Int64("partitions_dropped", dropped)
	if !r.Oldest.IsZero() {
		event = event.Time("oldest_row", r.Oldest)
	}
	event.Msg("retention: done since the last such line")
	k.told, k.toldAt = r, now
}

// pass goes through all tables once.
func (k *Keeper) pass(ctx context.Context) (read time.Duration, err error) {
	before := *k.Report()
	p := &Prune{cfg: k.cfg, limit: keeperLimit}
	p.published = func(context.Context) (pglogrepl.LSN, error) {
		confirmed, waits := k.stream()
		if waits != "" {
			return 0, k.gaveWay(waits)
		}
		return confirmed, nil
	}
	count := func() {
		k.update(func(r *Report) {
			r.Deleted, r.Stamped, r.Dropped, r.Left = before.Deleted, before.Stamped, before.Dropped, before.Left
			for _, t := range p.Results() {
				r.Deleted += t.Deleted
				r.Stamped += t.Stamped
				r.Dropped += int64(len(t.Dropped))
				r.Left += t.Left
			}
		})
	}
	p.between = func(ctx context.Context, took time.Duration) error {
		count()
		if _, waits := k.stream(); waits != "" {
			return k.gaveWay(waits)
		}
		return sleep(ctx, max(keeperPause, took)) // half of the time at the most
	}
	defer p.Close()
	if err := p.connect(ctx); err != nil {
		return 0, err
	}
	err = p.Run(ctx)
	count()
	if late, ok := errors.AsType[*SetupError](err); ok && late.late {
		err = k.gaveWay("what was seen in the table is not published yet")
	}
	if err == nil && k.cfg.Delete {
		err = k.oldest(ctx, p)
	}
	return p.read, err
}

func (k *Keeper) gaveWay(waits string) error {
	k.update(func(r *Report) { r.Waits = waits })
	return errGaveWay
}

// oldest row of all tables, where an index tells.
func (k *Keeper) oldest(ctx context.Context, p *Prune) error {
	var oldest time.Time
	for _, t := range p.tables {
		if !t.indexed {
			return nil
		}
		var at *time.Time
		err := p.writing.Conn().QueryRow(ctx, fmt.Sprintf("SELECT min(%s)::timestamptz FROM %s", quote(t.age), t.quoted())).Scan(&at)
		if err != nil {
			return fmt.Errorf("look up the oldest row of %s: %w", t, replication.Classify(err))
		}
		if at != nil && (oldest.IsZero() || at.Before(oldest)) {
			oldest = *at
		}
	}
	k.update(func(r *Report) { r.Oldest = oldest })
	return nil
}
