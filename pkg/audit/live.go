package audit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/replication"
)

// moment is when the table was read.
type moment struct {
	at    time.Time
	next  uint32        // first xid not given out
	until pglogrepl.LSN // every row seen was committed before it
}

// begin opens the one snapshot that all tables are read from, and notes how far
// the WAL had got.
func begin(ctx context.Context, conn *pgx.Conn) (m moment, err error) {
	if err := replication.BeginReading(ctx, conn); err != nil {
		return m, err
	}
	var next string
	// The first query takes the snapshot; the WAL's end is read after it, so that
	// it lies behind every commit the snapshot shows.
	if err := conn.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text").Scan(&next); err != nil {
		return m, fmt.Errorf("take a snapshot: %w", err)
	}
	m.at = time.Now()
	full, err := strconv.ParseUint(next, 10, 64)
	if err != nil {
		return m, fmt.Errorf("take a snapshot: %w", err)
	}
	m.next = uint32(full)
	m.until, err = replication.Inserted(ctx, conn)
	return m, err
}

// progressOf the pipeline: how far it has published, and what its slot knows.
type progressOf struct {
	record  checkpoint.Record
	exists  bool
	covered bool // everything that was read of the table is due
	active  bool
	below   uint32
}

const (
	leastPoll = 100 * time.Millisecond
	mostPoll  = time.Second
	// abandoned: with nobody on the slot for so long the checkpoint will not move.
	abandoned = 5 * time.Second
)

// await waits until the checkpoint covers the moment, as long as it may.
func await(ctx context.Context, cfg *Config, conn *pgx.Conn, store checkpoint.Store, m moment) (progressOf, error) {
	var p progressOf
	began, lastActive := time.Now(), time.Now()
	target, told := m.until, false
	for pause := leastPoll; ; pause = min(2*pause, mostPoll) {
		var err error
		if p.record, p.exists, err = store.Load(ctx); err != nil {
			return p, err
		}
		if p.exists && p.record.Snapshot != nil {
			return p, &SetupError{
				fmt.Sprintf("a snapshot or a recovery is under way (%d rows so far): rows from before the slot are not all published yet", p.record.Snapshot.Rows),
				"compare when it is complete: /status shows how far it is",
			}
		}
		if err := p.look(ctx, conn, cfg.Slot, m, &target); err != nil {
			return p, err
		}
		if p.active {
			lastActive = time.Now()
		}
		if p.covered = p.exists && p.record.Covered >= target; p.covered {
			return p, nil
		}
		if time.Since(began) >= cfg.Wait || time.Since(lastActive) > min(abandoned, cfg.Wait) {
			return p, nil
		}
		if !told {
			told = true
			cfg.progress("waiting until the checkpoint, at %s, covers %s", p.record.Covered, m.until)
		}
		select {
		case <-ctx.Done():
			return p, ctx.Err()
		case <-time.After(pause):
		}
	}
}

const slotQuery = `
SELECT coalesce((SELECT active FROM pg_replication_slots WHERE slot_name = $1), false),
       coalesce((SELECT catalog_xmin FROM pg_replication_slots WHERE slot_name = $1)::text, '0'),
       pg_current_wal_flush_lsn()::text,
       extract(epoch FROM current_setting('wal_writer_delay')::interval)::float8`

// look asks the slot. It also lowers the target to what is flushed, once every
// commit that the table showed must be: of what lies behind, uncommitted or
// nothing at all, an idle server is told only when somebody writes again. (A
// commit is flushed before it is seen, or, with synchronous_commit = off, at most
// three times wal_writer_delay later.)
func (p *progressOf) look(ctx context.Context, conn *pgx.Conn, slot string, m moment, target *pglogrepl.LSN) error {
	var below, flushed string
	var delay float64
	if err := conn.QueryRow(ctx, slotQuery, slot).Scan(&p.active, &below, &flushed, &delay); err != nil {
		return fmt.Errorf("look at slot %q: %w", slot, err)
	}
	xid, err := strconv.ParseUint(below, 10, 32)
	if err != nil {
		return fmt.Errorf("look at slot %q: %w", slot, err)
	}
	p.below = uint32(xid)
	lsn, err := pglogrepl.ParseLSN(flushed)
	if err != nil {
		return fmt.Errorf("look at slot %q: %w", slot, err)
	}
	if settled := time.Duration(3*delay*float64(time.Second)) + time.Second; time.Since(m.at) > settled {
		*target = min(*target, lsn)
	}
	if p.exists && p.record.Covered > max(lsn, m.until) {
		return &SetupError{
			fmt.Sprintf("the checkpoint covers %s, and the server's WAL ends at %s: it is another server, or one restored from an older state", p.record.Covered, lsn),
			"connect to the server that the pipeline reads",
		}
	}
	return nil
}

// sameServer refuses a checkpoint of another pipeline or server: nothing that it
// says would be about this table.
func sameServer(ctx context.Context, conn *pgx.Conn, cfg *Config, record checkpoint.Record) error {
	var system, database string
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text, current_database() FROM pg_control_system()").Scan(&system, &database); err != nil {
		return fmt.Errorf("read the server's identifier: %w", err)
	}
	for _, c := range []struct{ what, ours, theirs string }{
		{"server", system, record.SystemID}, {"database", database, record.Database}, {"slot", cfg.Slot, record.Slot},
	} {
		if c.theirs != "" && c.ours != c.theirs {
			return &SetupError{
				fmt.Sprintf("the checkpoint of pipeline %q is of %s %q, not %q", cfg.Pipeline, c.what, c.theirs, c.ours),
				"check --pipeline, --slot and the connection",
			}
		}
	}
	return nil
}
