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

// Config of one run.
type Config struct {
	Pipeline, Slot, Publication string
	Postgres                    replication.Options
	Kafka                       sink.Config
	Mapping                     []outbox.MappingConfig

	OlderThan time.Duration // of the age column, by the server's clock
	// AgeColumn is when a row was made; empty: the mapping's timestamp column, else
	// created_at.
	AgeColumn string
	Batch     int           // rows deleted in a transaction
	Wait      time.Duration // how long checkpoint and slot may take to come by

	// Progress is told now and then how far it is; nil is nobody.
	Progress func(text string)
}

// SetupError is something on the servers that stands in the way. Nothing was
// deleted.
type SetupError struct{ Found, Remedy string }

func (e *SetupError) Error() string { return e.Found + "; " + e.Remedy }

// Result of one table.
type Result struct {
	Table   string
	Deleted int64
	Left    int64 // seen, and locked by others for too long, or gone by themselves
}

// Prune is a state of the tables whose rows are published.
type Prune struct {
	cfg     Config
	reading *replication.Session // holds the state
	writing *replication.Session
	tables  []table
	before  string        // the cut, as text
	until   pglogrepl.LSN // every row seen was committed before it
}

const poll = 200 * time.Millisecond

// Open fixes a state of the tables and waits until all of it is published. Close it.
func Open(ctx context.Context, cfg Config) (p *Prune, err error) {
	p = &Prune{cfg: cfg}
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	mapping, err := outbox.NewMapping(cfg.Mapping)
	if err != nil {
		return p, err
	}
	if p.reading, err = replication.OpenSession(ctx, cfg.Postgres); err != nil {
		return p, err
	}
	if p.writing, err = replication.OpenSession(ctx, cfg.Postgres); err != nil {
		return p, err
	}
	conn := p.reading.Conn()
	var named []replication.PublishedTable
	for _, need := range mapping.Tables() {
		named = append(named, replication.PublishedTable(need))
	}
	layouts, err := replication.Layouts(ctx, conn, cfg.Publication, named)
	if err == nil {
		err = mapping.Resolve(layouts...)
	}
	if err != nil {
		return p, err
	}
	if err = p.see(ctx); err != nil { // 1
		return p, err
	}
	for _, t := range named {
		age := cfg.AgeColumn
		if age == "" {
			age = mapping.ColumnsOf(t.Schema, t.Name).Timestamp
		}
		found, err := lookUp(ctx, conn, t.Schema, t.Name, age)
		if err != nil {
			return p, err
		}
		p.tables = append(p.tables, found)
	}
	return p, p.await(ctx) // 2
}

// see fixes the state, and reads the WAL's end behind it.
func (p *Prune) see(ctx context.Context) error {
	conn := p.reading.Conn()
	if err := replication.BeginReading(ctx, conn); err != nil { // held while rows are deleted
		return err
	}
	err := conn.QueryRow(ctx, "SELECT (now() - make_interval(secs => $1))::text", p.cfg.OlderThan.Seconds()).Scan(&p.before)
	if err != nil {
		return fmt.Errorf("read the server's clock: %w", replication.Classify(err))
	}
	p.until, err = replication.Inserted(ctx, conn)
	return err
}

// await until what was seen is published: by the checkpoint, and by the slot of this
// very server.
func (p *Prune) await(ctx context.Context) error {
	kafka, err := sink.Open(p.cfg.Kafka)
	if err != nil {
		return err
	}
	defer kafka.Close()
	deadline := time.Now().Add(p.cfg.Wait)
	for {
		record, found, err := kafka.Load(ctx)
		if err != nil {
			return err
		}
		slot, err := replication.LookupSlot(ctx, p.writing.Conn(), p.cfg.Slot)
		if err != nil {
			return err
		}
		if err := p.fits(record, found, slot); err != nil {
			return err
		}
		if record.Covered >= p.until && slot.ConfirmedFlush >= p.until {
			return nil
		}
		if !time.Now().Before(deadline) {
			return &SetupError{
				fmt.Sprintf("rows seen in the table were committed up to %s, the checkpoint stands at %s and the slot at %s: not all of them are known to be published",
					p.until, record.Covered, slot.ConfirmedFlush),
				"see with walstream status that an instance streams; then run it again, with more --wait if need be",
			}
		}
		p.progress("waiting until the checkpoint, at %s, and the slot, at %s, have passed %s", record.Covered, slot.ConfirmedFlush, p.until)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

// fits: checkpoint and slot are of one pipeline, which publishes all that comes.
func (p *Prune) fits(record checkpoint.Record, found bool, slot replication.SlotInfo) error {
	const remedy = "check --pipeline, --slot and the connection"
	database := p.writing.Conn().Config().Database
	switch {
	case !found:
		return &SetupError{fmt.Sprintf("pipeline %q has no checkpoint", p.cfg.Pipeline), remedy}
	case !slot.Exists:
		return &SetupError{fmt.Sprintf("slot %q does not exist on this server", p.cfg.Slot), remedy}
	case record.Slot != p.cfg.Slot || slot.Database != record.Database || database != "" && database != record.Database:
		return &SetupError{fmt.Sprintf("the checkpoint of pipeline %q is of slot %q in database %q, not of slot %q in %q",
			p.cfg.Pipeline, record.Slot, record.Database, p.cfg.Slot, slot.Database), remedy}
	case record.Phase != checkpoint.PhaseStream:
		return &SetupError{
			fmt.Sprintf("the pipeline is in phase %q: rows from before the slot may not be published yet", record.Phase),
			"wait until walstream status says that it streams",
		}
	}
	return nil
}

func (p *Prune) progress(format string, args ...any) {
	if p.cfg.Progress != nil {
		p.cfg.Progress(fmt.Sprintf(format, args...))
	}
}

// Before is the time before which rows are deleted, as the server writes it.
func (p *Prune) Before() string { return p.before }

// Count returns how many rows of each table would be deleted.
func (p *Prune) Count(ctx context.Context) (counts []Result, err error) {
	for _, t := range p.tables {
		var n int64
		if err := p.reading.Conn().QueryRow(ctx, t.count(), p.before).Scan(&n); err != nil {
			return nil, fmt.Errorf("count the rows of %s: %w", t, replication.Classify(err))
		}
		counts = append(counts, Result{Table: t.String(), Deleted: n})
	}
	return counts, nil
}

// Delete the rows that were seen and are old enough.
func (p *Prune) Delete(ctx context.Context) (results []Result, err error) {
	for i := range p.tables {
		result, err := p.deleteFrom(ctx, &p.tables[i])
		results = append(results, result)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

func (p *Prune) deleteFrom(ctx context.Context, t *table) (Result, error) {
	result := Result{Table: t.String()}
	if _, err := p.writing.Conn().Exec(ctx, "SET lock_timeout = '2s'"); err != nil {
		return result, replication.Classify(err)
	}
	var after []string
	for {
		keys, err := p.page(ctx, t, after)
		if err != nil {
			return result, fmt.Errorf("read the rows of %s: %w", t, replication.Classify(err))
		}
		if len(keys) == 0 {
			return result, nil
		}
		n, err := p.deleteBatch(ctx, t, keys)
		if err != nil {
			return result, fmt.Errorf("delete from %s: %w", t, replication.Classify(err))
		}
		result.Deleted += n
		result.Left += int64(len(keys)) - n
		after = keys[len(keys)-1]
		p.progress("%s: %d rows deleted", t, result.Deleted)
	}
}

// page of primary keys, as text, behind after.
func (p *Prune) page(ctx context.Context, t *table, after []string) (keys [][]string, err error) {
	args := []any{p.before}
	for _, part := range after {
		args = append(args, part)
	}
	rows, err := p.reading.Conn().Query(ctx, t.page(after != nil, p.cfg.Batch), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (key []string, err error) {
		key = make([]string, len(t.key))
		into := make([]any, len(key))
		for i := range key {
			into[i] = &key[i]
		}
		return key, row.Scan(into...)
	})
}

// deleteBatch is one transaction. Rows that others hold are left for the next time.
func (p *Prune) deleteBatch(ctx context.Context, t *table, keys [][]string) (deleted int64, err error) {
	args := []any{p.before}
	for i := range t.key {
		column := make([]string, len(keys))
		for n := range keys {
			column[n] = keys[n][i]
		}
		args = append(args, column)
	}
	tag, err := p.writing.Conn().Exec(ctx, t.deletion(), args...)
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
}

// missing: nothing was found.
func missing(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
