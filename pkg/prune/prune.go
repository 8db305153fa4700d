package prune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Config says what is done.
type Config struct {
	Pipeline, Slot, Publication string
	Postgres                    replication.Options
	Kafka                       sink.Config // holds the checkpoint; a Keeper does without
	Mapping                     []outbox.MappingConfig

	// Delete rows that are older than OlderThan, by the server's clock.
	Delete    bool
	OlderThan time.Duration
	// AgeColumn is when a row was made; empty: the mapping's timestamp column, else
	// created_at. AgeSetting names the setting, for messages.
	AgeColumn, AgeSetting string
	// DropPartitions of a table that is partitioned by range, in place of its rows;
	// those of its default partition are deleted.
	DropPartitions bool
	// Stamp is the column that is set to the time where it is NULL; empty: none.
	Stamp string

	Batch int           // rows of a transaction
	Wait  time.Duration // how long checkpoint and slot may take to come by

	// Progress is told now and then how far it is; nil is nobody.
	Progress func(text string)
}

// SetupError is something on the servers that stands in the way. What was done was
// right.
type SetupError struct {
	Found, Remedy string
	late          bool // not everything seen was published in time
}

func (e *SetupError) Error() string { return e.Found + "; " + e.Remedy }

// Result of one table.
type Result struct {
	Table   string
	Deleted int64
	Left    int64 // seen, and locked by others for too long, or gone by themselves
	Stamped int64
	Dropped []string // partitions
}

// Prune knows which rows are published.
type Prune struct {
	cfg     Config
	reading *replication.Session // holds a state of the tables
	writing *replication.Session
	kafka   *sink.Kafka
	tables  []*table
	base    string        // the database
	before  string        // the cut, as text
	until   pglogrepl.LSN // every row of the state was committed before it

	// published is how far the pipeline has come, durably.
	published func(ctx context.Context) (pglogrepl.LSN, error)
	// between batches it may be asked to wait; nil: at full speed.
	between func(ctx context.Context, took time.Duration) error
	limit   time.Duration // of one reading; 0: none
	read    time.Duration // spent reading so far
	results map[string]*Result
}

const (
	poll = 200 * time.Millisecond
	// pagesOfState are read before a state is given up and waited for: an idle slot
	// is confirmed every few seconds only. So many keys are in memory.
	pagesOfState = 10
)

// Open looks at the tables, and waits until all that is in them is published. Close it.
func Open(ctx context.Context, cfg Config) (p *Prune, err error) {
	p = &Prune{cfg: cfg}
	p.published = p.checkpoint
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	if p.kafka, err = sink.Open(cfg.Kafka); err != nil {
		return p, err
	}
	if err = p.connect(ctx); err != nil {
		return p, err
	}
	if err = p.see(ctx); err != nil {
		return p, err
	}
	return p, p.await(ctx)
}

// connect opens the sessions and looks the tables up.
func (p *Prune) connect(ctx context.Context) (err error) {
	mapping, err := outbox.NewMapping(p.cfg.Mapping)
	if err != nil {
		return err
	}
	if p.reading, err = replication.OpenSession(ctx, p.cfg.Postgres); err != nil {
		return err
	}
	if p.writing, err = replication.OpenSession(ctx, p.cfg.Postgres); err != nil {
		return err
	}
	// What is lost of it in a crash of the server is done again.
	const settings = `SET lock_timeout = '1s'; SET synchronous_commit = off; SET statement_timeout = '60s'; SET row_security = off`
	if _, err := p.writing.Conn().Exec(ctx, settings); err != nil {
		return fmt.Errorf("prepare to write: %w", replication.Classify(err))
	}
	const where = "SELECT current_database(), (now() - make_interval(secs => $1))::text"
	if err := p.writing.Conn().QueryRow(ctx, where, p.cfg.OlderThan.Seconds()).Scan(&p.base, &p.before); err != nil {
		return fmt.Errorf("read the server's clock, and which database this is: %w", replication.Classify(err))
	}
	p.tables, err = p.cfg.lookUpAll(ctx, p.reading.Conn(), mapping)
	p.results = map[string]*Result{}
	for _, t := range p.tables {
		p.results[t.String()] = &Result{Table: t.String()}
	}
	return err
}

func (cfg *Config) lookUpAll(ctx context.Context, conn *pgx.Conn, mapping *outbox.Mapping) (tables []*table, err error) {
	var named []replication.PublishedTable
	for _, need := range mapping.Tables() {
		named = append(named, replication.PublishedTable(need))
	}
	layouts, err := replication.Layouts(ctx, conn, cfg.Publication, named)
	if err == nil {
		err = mapping.Resolve(layouts...)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range named {
		age := noTime
		if cfg.Delete {
			if age = cfg.AgeColumn; age == "" {
				age = mapping.ColumnsOf(t.Schema, t.Name).Timestamp
			}
			if age == "" {
				age = "created_at"
			}
		}
		found, err := cfg.lookUp(ctx, conn, t.Schema, t.Name, age)
		if err != nil {
			return nil, err
		}
		tables = append(tables, found)
	}
	return tables, nil
}

// see fixes a state, and reads the WAL's end behind it.
func (p *Prune) see(ctx context.Context) error {
	conn := p.reading.Conn()
	if err := replication.BeginReading(ctx, conn); err != nil {
		return err
	}
	if p.limit > 0 {
		if _, err := conn.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", p.limit.Milliseconds())); err != nil {
			return fmt.Errorf("limit the reading: %w", replication.Classify(err))
		}
	}
	var err error
	p.until, err = replication.Inserted(ctx, conn)
	return err
}

// unsee gives the state up: it holds vacuum back, and locks that a partition needs.
func (p *Prune) unsee(ctx context.Context) error {
	return replication.EndReading(ctx, p.reading.Conn())
}

// await until what was seen is published: by the pipeline, and by the slot of this
// very server.
func (p *Prune) await(ctx context.Context) error {
	deadline := time.Now().Add(p.cfg.Wait)
	for {
		published, err := p.published(ctx)
		if err != nil {
			return err
		}
		slot, err := replication.LookupSlot(ctx, p.writing.Conn(), p.cfg.Slot)
		switch {
		case err != nil:
			return err
		case !slot.Exists:
			return p.misfit("slot %q does not exist on this server", p.cfg.Slot)
		case slot.Database != p.base:
			return p.misfit("slot %q is of database %q, not of %q", p.cfg.Slot, slot.Database, p.base)
		}
		if published >= p.until && slot.ConfirmedFlush >= p.until {
			return nil
		}
		if !time.Now().Before(deadline) {
			return &SetupError{
				late: true,
				Found: fmt.Sprintf("rows seen in the table were committed up to %s, the pipeline stands at %s and the slot at %s: not all of them are known to be published",
					p.until, published, slot.ConfirmedFlush),
				Remedy: "see with walstream status that an instance streams; then run it again, with more --wait if need be",
			}
		}
		p.progress("waiting until the pipeline, at %s, and the slot, at %s, have passed %s", published, slot.ConfirmedFlush, p.until)
		if err := sleep(ctx, poll); err != nil {
			return err
		}
	}
}

func (p *Prune) misfit(format string, args ...any) error {
	return &SetupError{Found: fmt.Sprintf(format, args...), Remedy: "check --pipeline, --slot and the connection"}
}

// checkpoint is how far the pipeline has come by its own record, which has to be of
// this slot, and of a stream that publishes all that comes.
func (p *Prune) checkpoint(ctx context.Context) (pglogrepl.LSN, error) {
	record, found, err := p.kafka.Load(ctx)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, p.misfit("pipeline %q has no checkpoint", p.cfg.Pipeline)
	case record.Slot != p.cfg.Slot || record.Database != p.base:
		return 0, p.misfit("the checkpoint of pipeline %q is of slot %q in database %q, not of slot %q in %q",
			p.cfg.Pipeline, record.Slot, record.Database, p.cfg.Slot, p.base)
	case record.Phase != checkpoint.PhaseStream:
		return 0, &SetupError{
			Found:  fmt.Sprintf("the pipeline is in phase %q: rows from before the slot may not be published yet", record.Phase),
			Remedy: "wait until walstream status says that it streams",
		}
	}
	return record.Covered, nil
}

func (p *Prune) progress(format string, args ...any) {
	if p.cfg.Progress != nil {
		p.cfg.Progress(fmt.Sprintf(format, args...))
	}
}

// Before is the time before which rows are deleted, as the server writes it.
func (p *Prune) Before() string { return p.before }

// Results so far, table by table.
func (p *Prune) Results() (results []Result) {
	for _, t := range p.tables {
		results = append(results, *p.results[t.String()])
	}
	return results
}

// Count returns what Run would do to each table, as it was seen by Open.
func (p *Prune) Count(ctx context.Context) (counts []Result, err error) {
	for _, t := range p.tables {
		n := Result{Table: t.String()}
		conn := p.reading.Conn()
		if p.cfg.Stamp != "" {
			if err := conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", t.quoted(), t.unstamped(p.cfg.Stamp).condition)).Scan(&n.Stamped); err != nil {
				return nil, fmt.Errorf("count the rows of %s: %w", t, replication.Classify(err))
			}
		}
		if p.cfg.Delete {
			rest := []*table{t}
			if p.cfg.DropPartitions {
				if rest, n.Dropped, err = p.parts(ctx, t); err != nil {
					return nil, err
				}
			}
			for _, part := range rest {
				var rows int64
				if err := conn.QueryRow(ctx, part.count(), p.before).Scan(&rows); err != nil {
					return nil, fmt.Errorf("count the rows of %s: %w", part, replication.Classify(err))
				}
				n.Deleted += rows
			}
		}
		counts = append(counts, n)
	}
	return counts, p.unsee(ctx)
}

// Run does it. Whatever the error, Results are what was done.
func (p *Prune) Run(ctx context.Context) error {
	for _, t := range p.tables {
		if p.cfg.Stamp != "" {
			if err := p.sweep(ctx, t.unstamped(p.cfg.Stamp), &p.results[t.String()].Stamped, nil); err != nil {
				return err
			}
		}
		if !p.cfg.Delete {
			continue
		}
		rest := []*table{t}
		if p.cfg.DropPartitions {
			var err error
			if rest, err = p.dropPartitions(ctx, t); err != nil {
				return err
			}
		}
		for _, part := range rest {
			if err := p.sweep(ctx, part.old(p.before), &p.results[t.String()].Deleted, &p.results[t.String()].Left); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep through a table once, in the order of the work.
func (p *Prune) sweep(ctx context.Context, w work, done, left *int64) error {
	var after []string
	for {
		rows, err := p.look(ctx, &w, after)
		if err != nil {
			return fmt.Errorf("%s %s: %w", w.what, &w, err)
		}
		for begin := 0; begin < len(rows); begin += p.cfg.Batch {
			batch := rows[begin:min(begin+p.cfg.Batch, len(rows))]
			began := time.Now()
			n, err := p.change(ctx, &w, batch)
			if err != nil {
				return fmt.Errorf("%s %s: %w", w.what, &w, replication.Classify(err))
			}
			*done += n
			if left != nil {
				*left += int64(len(batch)) - n
			}
			p.progress("%s: %s %d rows", &w, w.what, *done)
			if p.between != nil {
				if err := p.between(ctx, time.Since(began)); err != nil {
					return err
				}
			}
		}
		if len(rows) < pagesOfState*p.cfg.Batch {
			return nil
		}
		after = rows[len(rows)-1]
	}
}

// look at the next rows, in a state of their own, and wait until it is published: 1
// and 2.
func (p *Prune) look(ctx context.Context, w *work, after []string) (rows [][]string, err error) {
	began := time.Now()
	if err := p.see(ctx); err != nil {
		return nil, err
	}
	for range pagesOfState {
		page, err := p.page(ctx, w, after)
		if err != nil {
			hint := ""
			if p.cfg.Delete && !w.indexed {
				hint = fmt.Sprintf(" (an index on %s makes that short)", w.age)
			}
			return nil, fmt.Errorf("read its rows%s: %w", hint, replication.Classify(err))
		}
		if rows = append(rows, page...); len(page) < p.cfg.Batch {
			break
		}
		after = rows[len(rows)-1]
	}
	p.read += time.Since(began)
	if err := p.unsee(ctx); err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows, p.await(ctx)
}

// page of rows behind after: what they are ordered by, as text.
func (p *Prune) page(ctx context.Context, w *work, after []string) ([][]string, error) {
	args := append([]any{}, w.args...)
	for _, part := range after {
		args = append(args, part)
	}
	rows, err := p.reading.Conn().Query(ctx, w.page(after != nil, p.cfg.Batch), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
		values := make([]string, len(w.order))
		into := make([]any, len(values))
		for i := range values {
			into[i] = &values[i]
		}
		return values, row.Scan(into...)
	})
}

// change is one transaction: 3. Rows that others hold are left for the next time.
func (p *Prune) change(ctx context.Context, w *work, rows [][]string) (changed int64, err error) {
	args := append([]any{}, w.args...)
	for i := range w.key {
		column := make([]string, len(rows))
		for n := range rows {
			column[n] = rows[n][len(w.order)-len(w.key)+i]
		}
		args = append(args, column)
	}
	tag, err := p.writing.Conn().Exec(ctx, w.statement(), args...)
	if replication.LockTimeout(err) {
		return 0, nil
	}
	return tag.RowsAffected(), err
}

// Close gives the connections back.
func (p *Prune) Close() {
	for _, s := range []*replication.Session{p.reading, p.writing} {
		if s != nil {
			s.Close()
		}
	}
	if p.kafka != nil {
		p.kafka.Close()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// missing: nothing was found.
func missing(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
