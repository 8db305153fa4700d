package testenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// StandbyOptions says how a server follows another.
type StandbyOptions struct {
	// Params are server settings over ours, as in PGOptions.
	Params map[string]string
	// Slot is the physical slot on the primary, made when it is not there; empty:
	// walstream_standby.
	Slot string
	// SyncSlots (17+) copies the primary's failover slots: that takes a Database
	// to connect to, and hot_standby_feedback.
	SyncSlots bool
	Database  string
	// Port as in PGOptions: that of a server that ended is free for the one that is
	// rebuilt in its place.
	Port int
}

const standbySlot = "walstream_standby"

// StartStandby copies the running server, whatever is written meanwhile, and starts
// the copy as a standby that streams from it. It takes data that can be read, and
// says so as an UnavailableError where it cannot.
func (p *Postgres) StartStandby(ctx context.Context, o StandbyOptions) (*Postgres, error) {
	m, native := p.server.(*postmaster)
	if !native {
		return nil, &UnavailableError{What: "standby server", Reasons: []string{p.From + ": its data cannot be copied"}}
	}
	if o.Slot == "" {
		o.Slot = standbySlot
	}
	temp, err := newTempDir(ctx, fmt.Sprintf("pg%d-standby", p.Major), m.as)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(temp.path, "data")
	if err := p.backUp(ctx, data, o.Slot, m.as); err != nil {
		temp.remove()
		return nil, fmt.Errorf("copy PostgreSQL on port %d: %w", p.Port, err)
	}
	conninfo := fmt.Sprintf("host=%s port=%d user=%s password=%s application_name=%s", p.Host, p.Port, p.User, p.Password, o.Slot)
	if o.Database != "" {
		conninfo += " dbname=" + o.Database
	}
	params := map[string]string{"primary_conninfo": conninfo, "primary_slot_name": o.Slot, "hot_standby_feedback": "on"}
	if o.SyncSlots {
		params["sync_replication_slots"] = "on"
	}
	maps.Copy(params, o.Params)
	standby, err := nativePostgres(ctx, PGOptions{Major: p.Major, DataDir: data, Params: params, Port: o.Port})
	if err != nil {
		temp.remove()
		return nil, fmt.Errorf("start a standby of PostgreSQL on port %d: %w", p.Port, err)
	}
	standby.server.(*postmaster).temp = temp // it goes with the server
	return standby, nil
}

// backUp is a base backup by the low-level calls, in a session that stays open.
// https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-LOWLEVEL-BASE-BACKUP
func (p *Postgres) backUp(ctx context.Context, to, slot string, owner *identity) error {
	conn, err := pgx.Connect(ctx, p.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// The slot keeps the WAL that the copy needs, from before it is begun.
	_, err = conn.Exec(ctx, `SELECT pg_create_physical_replication_slot($1, true)
		WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, slot)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_backup_start('walstream test', true)`); err != nil {
		return err
	}
	if err := copyLive(p.DataDir, to, owner); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, `SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
		return err
	}
	for name, text := range map[string]string{"backup_label": label, "standby.signal": ""} {
		path := filepath.Join(to, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := owner.own(path); err != nil {
			return err
		}
	}
	return nil
}

// copyLive copies the data of a running server but for what a backup leaves out.
// Files may go meanwhile.
func copyLive(from, to string, owner *identity) error {
	contents := map[string]bool{"pg_wal": true, "pg_replslot": true, "pg_dynshmem": true, "pg_notify": true, "pg_serial": true, "pg_snapshots": true, "pg_stat_tmp": true, "pg_subtrans": true}
	files := map[string]bool{"postmaster.pid": true, "postmaster.opts": true, serverLog: true, "standby.signal": true, "backup_label": true}
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		top, below, _ := strings.Cut(filepath.ToSlash(rel), "/")
		if contents[top] && below != "" {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		target := filepath.Join(to, rel)
		switch {
		case files[rel] || strings.HasPrefix(entry.Name(), "pgsql_tmp"):
			return nil
		case entry.IsDir():
			err = os.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			if err = copyFile(path, target, 0o600); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
		return owner.own(target)
	})
	for _, dir := range []string{"pg_wal/archive_status", "pg_wal/summaries"} {
		path := filepath.Join(to, filepath.FromSlash(dir))
		if err == nil {
			err = os.MkdirAll(path, 0o700)
		}
		if err == nil {
			err = owner.own(path)
		}
	}
	return err
}

// NewStandby is StartStandby for a test: it ends with it.
func NewStandby(t testing.TB, p *Postgres, o StandbyOptions) *Postgres {
	t.Helper()
	standby, err := p.StartStandby(t.Context(), o)
	if err != nil {
		SkipOrFail(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standby PostgreSQL %d on port %d: %s", standby.Major, standby.Port, standby.Log())
		}
		standby.Close()
	})
	return standby
}

// Promote ends the server's recovery, and returns when it takes writes.
func (p *Postgres) Promote(ctx context.Context) error {
	return p.Exec(ctx, "", `SELECT pg_promote(true, 60)`)
}

// CaughtUp waits until a standby has applied all that its primary has flushed now.
func (p *Postgres) CaughtUp(ctx context.Context, primary *Postgres) error {
	from, err := pgx.Connect(ctx, primary.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close(context.WithoutCancel(ctx)) }()
	var end string
	if err := from.QueryRow(ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&end); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		var there bool
		if err := conn.QueryRow(ctx, `SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`, end).Scan(&there); err != nil || there {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the standby on port %d has not come to %s: %w", p.Port, end, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
