package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

const rewindSuffix = "_rewind"

// RewindSlot is the name of the second slot, which trails the first one.
func RewindSlot(slot string) string { return slot + rewindSuffix }

// MaxSlotName is how long a slot's name may be.
const MaxSlotName = 63

// Rewind is a slot and the one that trails it, at one moment.
type Rewind struct {
	At     time.Time // by the server's clock
	WALEnd pglogrepl.LSN
	// Of the slot that is streamed from.
	Main                       bool // it exists
	MainConfirmed, MainRestart pglogrepl.LSN
	// Slot that trails it.
	Slot           SlotInfo
	CatalogXminAge int64 // transactions since its catalog_xmin
	IdleTimeout    bool  // the server gives up slots that nobody uses for a while
}

// Ours reports that the trailing slot is one that walstream made.
func (r *Rewind) Ours(database string) bool { return IsRewind(&r.Slot, database) }

// IsRewind tells the trailing slot by its plugin and its database; the name was what
// it was looked up by.
func IsRewind(s *SlotInfo, database string) bool {
	return s.Type == "logical" && s.Plugin == pgoutput && s.Database == database && !s.Temporary
}

// Lost reports that the server has given it up.
func (r *Rewind) Lost() bool { return r.Slot.WALStatus == "lost" || r.Slot.InvalidationReason != "" }

const rewindQuery = `
SELECT clock_timestamp(), CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_flush_lsn() END::text,
       m.slot_name IS NOT NULL, coalesce(m.confirmed_flush_lsn, '0/0')::text, coalesce(m.restart_lsn, '0/0')::text,
       r.slot_name IS NOT NULL, coalesce(r.plugin, ''), coalesce(r.slot_type, ''), coalesce(r.database, ''), coalesce(r.temporary, false),
       coalesce(r.active, false), coalesce(r.active_pid, 0), coalesce(r.confirmed_flush_lsn, '0/0')::text, coalesce(r.restart_lsn, '0/0')::text,
       coalesce(r.wal_status, ''), r.safe_wal_size,
       coalesce(to_jsonb(r) ->> 'invalidation_reason', CASE WHEN (to_jsonb(r) ->> 'conflicting')::bool THEN 'conflicting' ELSE '' END),
       coalesce(age(r.catalog_xmin), 0)::int8,
       coalesce((SELECT setting <> '0' FROM pg_settings WHERE name = 'idle_replication_slot_timeout'), false)
FROM (SELECT 1) one
LEFT JOIN pg_replication_slots m ON m.slot_name = $1
LEFT JOIN pg_replication_slots r ON r.slot_name = $2`

// ReadRewind reads both slots.
func ReadRewind(ctx context.Context, conn *pgx.Conn, slot string) (r Rewind, err error) {
	r.Slot.Name = RewindSlot(slot)
	s := &r.Slot
	var end, mainConfirmed, mainRestart, confirmed, restart string
	err = conn.QueryRow(ctx, rewindQuery, slot, s.Name).Scan(&r.At, &end, &r.Main, &mainConfirmed, &mainRestart,
		&s.Exists, &s.Plugin, &s.Type, &s.Database, &s.Temporary, &s.Active, &s.ActivePID, &confirmed, &restart,
		&s.WALStatus, &s.SafeWALSize, &s.InvalidationReason, &r.CatalogXminAge, &r.IdleTimeout)
	for _, p := range []struct {
		text string
		lsn  *pglogrepl.LSN
	}{{end, &r.WALEnd}, {mainConfirmed, &r.MainConfirmed}, {mainRestart, &r.MainRestart}, {confirmed, &s.ConfirmedFlush}, {restart, &s.Restart}} {
		if err == nil {
			*p.lsn, err = pglogrepl.ParseLSN(p.text)
		}
	}
	if err != nil {
		return r, fmt.Errorf("read slot %q: %w", s.Name, classify(err))
	}
	return r, nil
}

// CopyToRewind makes the trailing slot where the other one stands, which may be in
// use, and returns its position.
func CopyToRewind(ctx context.Context, conn *pgx.Conn, slot string) (lsn pglogrepl.LSN, err error) {
	var text string
	err = conn.QueryRow(ctx, "SELECT lsn::text FROM pg_copy_logical_replication_slot($1, $2, false)", slot, RewindSlot(slot)).Scan(&text)
	if err == nil {
		lsn, err = pglogrepl.ParseLSN(text)
	}
	switch {
	case err == nil:
		return lsn, nil
	case sqlState(err) == stateInsufficientRights:
		err = &RightError{What: "the REPLICATION attribute", SQL: alterRole(ctx, conn, "REPLICATION"), Err: err}
	case sqlState(err) == stateConfigLimitExceeded:
		err = fmt.Errorf("raise max_replication_slots or drop a slot that nobody uses: %w", err)
	default:
		err = classify(err)
	}
	return 0, fmt.Errorf("make slot %q as a copy of %q: %w", RewindSlot(slot), slot, err)
}

// AdvanceSlot moves a slot that nobody streams from, and returns where it came to.
// The server decodes what lies between, and nothing brings the slot back.
func AdvanceSlot(ctx context.Context, conn *pgx.Conn, name string, to pglogrepl.LSN) (lsn pglogrepl.LSN, err error) {
	var text string
	err = conn.QueryRow(ctx, "SELECT end_lsn::text FROM pg_replication_slot_advance($1, $2::pg_lsn)", name, to.String()).Scan(&text)
	if err == nil {
		lsn, err = pglogrepl.ParseLSN(text)
	}
	if err != nil {
		return 0, fmt.Errorf("advance slot %q to %s: %w", name, to, classify(err))
	}
	return lsn, nil
}
