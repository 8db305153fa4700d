package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// Health is one reading of the ordinary session. All positions are of the same
// moment.
type Health struct {
	At              time.Time // by our clock
	WALEnd          pglogrepl.LSN
	Confirmed       pglogrepl.LSN
	Restart         pglogrepl.LSN
	WALStatus       string // reserved, extended, unreserved, lost
	SafeWALSize     *int64 // bytes until the slot may be lost; nil without a limit
	WalsenderActive bool   // our PID still holds the slot
	SyncState       string // async, sync, potential, quorum; empty without the right to see it
	SyncNames       string // synchronous_standby_names
	InRecovery      bool   // the server is a standby
	Rows            string // fingerprint of what the stream carries
	// Detail is read less often; nil before the first time.
	Detail *SlotDetail
	// Err is set when nothing could be read; the rest is then empty but At.
	Err error
}

// SlotDetail is what a slot costs, and what holds it back.
type SlotDetail struct {
	At             time.Time // by the server's clock
	CatalogXminAge int64     // transactions since catalog_xmin, which vacuum of the catalogue waits for
	InactiveSince  time.Time // 17+; zero while somebody reads it
	Failover       *bool     // standby servers copy the slot; nil before 17
	Synced         *bool     // it is a copy, or was one before this server was promoted; nil before 17
	WalsenderState string    // startup, catchup, streaming, backup, stopping; empty without one, or the right
	WaitEvent      string    // what the walsender waits for
	StandbySlots   string    // synchronized_standby_slots, 17+
	Decoding       DecodingStats
	// Oldest is the oldest transaction that has written, prepared ones among them:
	// restart_lsn stays before its begin. Nil when there is none.
	Oldest *Blocker
}

// DecodingStats are those of pg_stat_replication_slots, since the slot was made or
// they were reset. Streamed is what the server sent before its commit, which
// walstream does not ask for.
type DecodingStats struct {
	SpillTxns, SpillCount, SpillBytes    int64
	StreamTxns, StreamCount, StreamBytes int64
	TotalTxns, TotalBytes                int64
}

// WaitsForStandby reports that the walsender sends nothing until standby servers
// have what synchronized_standby_slots names.
func (d *SlotDetail) WaitsForStandby() bool {
	return d != nil && d.WaitEvent == "WaitForStandbyConfirmation"
}

const healthQuery = `
SELECT ` + walEnd + `, s.confirmed_flush_lsn::text, s.restart_lsn::text,
       s.wal_status, s.safe_wal_size, coalesce(s.active_pid = $2, false),
       coalesce((SELECT r.sync_state FROM pg_stat_replication r WHERE r.pid = $2), ''),
       current_setting('synchronous_standby_names'), pg_is_in_recovery()
FROM pg_replication_slots s WHERE s.slot_name = $1`

// Columns that not every version has are asked for by way of JSON.
const detailQuery = `
SELECT clock_timestamp(), coalesce(age(s.catalog_xmin), 0)::int8, (j ->> 'inactive_since')::timestamptz,
       (j ->> 'failover')::bool, (j ->> 'synced')::bool,
       coalesce(r.state, ''), coalesce(a.wait_event, ''), coalesce(current_setting('synchronized_standby_slots', true), ''),
       coalesce(t.spill_txns, 0), coalesce(t.spill_count, 0), coalesce(t.spill_bytes, 0),
       coalesce(t.stream_txns, 0), coalesce(t.stream_count, 0), coalesce(t.stream_bytes, 0),
       coalesce(t.total_txns, 0), coalesce(t.total_bytes, 0)
FROM pg_replication_slots s
CROSS JOIN LATERAL to_jsonb(s) j
LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
LEFT JOIN pg_stat_replication_slots t ON t.slot_name = s.slot_name
WHERE s.slot_name = $1`

// As with blockerQuery, whose it is takes pg_read_all_stats.
const oldestQuery = `
SELECT coalesce(h.pid, 0), coalesce(p.gid, ''), coalesce(a.usename, ''), coalesce(a.application_name, ''),
       coalesce(a.state, ''), coalesce(a.xact_start, p.prepared)
FROM pg_locks h
LEFT JOIN pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = h.transactionid
WHERE h.locktype = 'transactionid' AND h.granted
ORDER BY age(h.transactionid) DESC LIMIT 1`

// Watched is what the session looks after.
type Watched struct {
	Slot        string
	Walsender   uint32 // PID
	Publication PublicationSpec
}

// Read takes one reading. The fingerprint is read last: what it vouches for
// reaches at least to WALEnd.
func (s *Session) Read(ctx context.Context, w Watched) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h, err := s.readSlot(ctx, w)
	if err == nil {
		h.Rows, err = RowsFingerprint(ctx, s.conn, w.Publication)
	}
	if err != nil {
		return Health{At: h.At}, err
	}
	return h, nil
}

// ReadSlot is Read without the publication, for when nothing is streamed.
func (s *Session) ReadSlot(ctx context.Context, slot string) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return s.readSlot(ctx, Watched{Slot: slot})
}

func (s *Session) readSlot(ctx context.Context, w Watched) (Health, error) {
	h := Health{At: time.Now()}
	var end, confirmed, restart *string
	var status *string
	err := s.conn.QueryRow(ctx, healthQuery, w.Slot, int32(w.Walsender)).Scan(&end, &confirmed, &restart,
		&status, &h.SafeWALSize, &h.WalsenderActive, &h.SyncState, &h.SyncNames, &h.InRecovery)
	if err != nil {
		return Health{At: h.At}, fmt.Errorf("read the health of slot %q: %w", w.Slot, classify(err))
	}
	for _, p := range []struct {
		text *string
		lsn  *pglogrepl.LSN
	}{{end, &h.WALEnd}, {confirmed, &h.Confirmed}, {restart, &h.Restart}} {
		if p.text == nil {
			continue // a lost slot has no positions any more
		}
		if *p.lsn, err = pglogrepl.ParseLSN(*p.text); err != nil {
			return Health{At: h.At}, fmt.Errorf("read the health of slot %q: %w", w.Slot, err)
		}
	}
	if status != nil {
		h.WALStatus = *status
	}
	if time.Since(s.detailAt) >= detailInterval {
		if s.detail, err = s.readDetail(ctx, w.Slot); err != nil {
			return Health{At: h.At}, err
		}
		s.detailAt = time.Now()
	}
	h.Detail = s.detail
	return h, nil
}

func (s *Session) readDetail(ctx context.Context, slot string) (*SlotDetail, error) {
	d := &SlotDetail{}
	var inactive *time.Time
	c := &d.Decoding
	err := s.conn.QueryRow(ctx, detailQuery, slot).Scan(&d.At, &d.CatalogXminAge, &inactive, &d.Failover, &d.Synced, &d.WalsenderState, &d.WaitEvent, &d.StandbySlots,
		&c.SpillTxns, &c.SpillCount, &c.SpillBytes, &c.StreamTxns, &c.StreamCount, &c.StreamBytes, &c.TotalTxns, &c.TotalBytes)
	if err != nil {
		return nil, fmt.Errorf("read what slot %q costs: %w", slot, classify(err))
	}
	if inactive != nil {
		d.InactiveSince = *inactive
	}
	var oldest Blocker
	var since *time.Time
	err = s.conn.QueryRow(ctx, oldestQuery).Scan(&oldest.PID, &oldest.Prepared, &oldest.User, &oldest.ApplicationName, &oldest.State, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return d, nil
	case err != nil:
		return nil, fmt.Errorf("look up the oldest transaction: %w", classify(err))
	}
	if since != nil {
		oldest.Since = *since
	}
	d.Oldest = &oldest
	return d, nil
}
