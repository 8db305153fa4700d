package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

const (
	// pgoutput is the only plugin whose output walstream reads.
	pgoutput = "pgoutput"
	// waitInterval is how often a wait for writing transactions is told of.
	waitInterval = 3 * time.Second
	// cancelTimeout bounds how long a cancelled slot creation may take to end.
	cancelTimeout = 5 * time.Second
)

// SlotInfo is a replication slot as the server shows it.
type SlotInfo struct {
	Name   string
	Exists bool

	Plugin, Type, Database      string
	Temporary, TwoPhase         bool
	Failover, Synced            bool // 17+
	InRecovery                  bool // the server is a standby
	ConfirmedFlush, Restart     pglogrepl.LSN
	WALStatus                   string // reserved, extended, unreserved, lost
	SafeWALSize                 *int64 // bytes until the slot may be lost; nil without a limit
	InvalidationReason          string // 17+; before it "conflicting" on 16
	InactiveSince               time.Time
	Active                      bool
	ActivePID                   int32
	ActiveSince                 time.Time // zero without the right to see it, as the two below
	ClientAddr, ApplicationName string
}

const slotQuery = `
SELECT coalesce(s.plugin, ''), s.slot_type, coalesce(s.database, ''), s.temporary, coalesce(s.two_phase, false),
       coalesce((j ->> 'failover')::bool, false), coalesce((j ->> 'synced')::bool, false), pg_is_in_recovery(),
       coalesce(s.confirmed_flush_lsn::text, '0/0'), coalesce(s.restart_lsn::text, '0/0'),
       coalesce(s.wal_status, ''), s.safe_wal_size,
       coalesce(j ->> 'invalidation_reason', CASE WHEN (j ->> 'conflicting')::bool THEN 'conflicting' ELSE '' END),
       (j ->> 'inactive_since')::timestamptz,
       s.active, coalesce(s.active_pid, 0), a.backend_start, coalesce(host(a.client_addr), ''),
       coalesce(a.application_name, '')
FROM pg_replication_slots s
CROSS JOIN LATERAL to_jsonb(s) j
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = $1`

// LookupSlot reads a slot; one that is not there is no error.
func LookupSlot(ctx context.Context, conn *pgx.Conn, name string) (SlotInfo, error) {
	s := SlotInfo{Name: name, Exists: true}
	var confirmed, restart string
	var inactive, active *time.Time
	err := conn.QueryRow(ctx, slotQuery, name).Scan(&s.Plugin, &s.Type, &s.Database, &s.Temporary, &s.TwoPhase,
		&s.Failover, &s.Synced, &s.InRecovery, &confirmed, &restart, &s.WALStatus, &s.SafeWALSize, &s.InvalidationReason,
		&inactive, &s.Active, &s.ActivePID, &active, &s.ClientAddr, &s.ApplicationName)
	if errors.Is(err, pgx.ErrNoRows) {
		return SlotInfo{Name: name}, nil
	}
	if err == nil {
		s.ConfirmedFlush, err = pglogrepl.ParseLSN(confirmed)
	}
	if err == nil {
		s.Restart, err = pglogrepl.ParseLSN(restart)
	}
	if err != nil {
		return SlotInfo{}, fmt.Errorf("look up slot %q: %w", name, classify(err))
	}
	if inactive != nil {
		s.InactiveSince = *inactive
	}
	if active != nil {
		s.ActiveSince = *active
	}
	return s, nil
}

// Holder says who has the slot, for messages.
func (s SlotInfo) Holder() string {
	text := fmt.Sprintf("PID %d", s.ActivePID)
	if s.ClientAddr != "" {
		text += " at " + s.ClientAddr
	}
	if s.ApplicationName != "" {
		text += fmt.Sprintf(" (%s)", s.ApplicationName)
	}
	if !s.ActiveSince.IsZero() {
		text += " since " + s.ActiveSince.UTC().Format(time.RFC3339)
	}
	return text
}

// HeldBySomebodyElse tells a holder that is known to be no instance of ours. Only one
// that is has our time-out and goes by itself.
func (s SlotInfo) HeldBySomebodyElse(applicationName string) bool {
	return s.Active && s.ApplicationName != "" && s.ApplicationName != applicationName[:min(len(applicationName), 63)]
}

// Refusal says why walstream may not stream from an existing slot, as a
// *SlotError; nil when it may.
func (s SlotInfo) Refusal(database string) error {
	if refusal := s.refusal(database); refusal != nil {
		return refusal
	}
	return nil
}

func (s SlotInfo) refusal(database string) *SlotError {
	refuse := func(err error, reason, remedy string) *SlotError {
		return &SlotError{Slot: s.Name, Reason: reason, Remedy: remedy, Err: err}
	}
	const other = "choose another name by --slot"
	switch {
	case s.Synced && s.InRecovery:
		return refuse(ErrSlotUnusable, "it is a copy of the primary's slot, which a server in recovery lets nobody read",
			"stream from the primary; to stream from this server, "+other+" and --pipeline, which makes a slot here")
	case s.Type != "logical":
		return refuse(ErrSlotUnusable, "it is a physical slot", other)
	case s.Plugin != pgoutput:
		return refuse(ErrSlotUnusable, fmt.Sprintf("its plugin is %s, not pgoutput", s.Plugin), other)
	case s.Database != database:
		return refuse(ErrSlotUnusable, fmt.Sprintf("it belongs to database %s, not %s", s.Database, database),
			"connect to that database, or "+other)
	case s.Temporary:
		return refuse(ErrSlotUnusable, "it is temporary and goes with the session that made it", other)
	case s.WALStatus == "lost" || s.InvalidationReason != "":
		reason := "it was invalidated"
		if s.InvalidationReason != "" {
			reason += " (" + s.InvalidationReason + ")"
		}
		return refuse(ErrSlotLost, fmt.Sprintf("%s; it had confirmed %s, and what was committed since is no longer to be had from it",
			reason, s.ConfirmedFlush), "find what is missing by comparing the table with the topics, then drop the slot and set up anew")
	case s.TwoPhase:
		return refuse(ErrSlotUnusable, "it was made with two_phase: the server sends prepared rows before their commit and never again",
			fmt.Sprintf("drop it: SELECT pg_drop_replication_slot(%s); and start walstream, which makes it; or %s", quoteLiteral(s.Name), other))
	}
	return nil
}

// Blocker is a transaction that slot creation waits for.
type Blocker struct {
	PID             int32  // 0 for a prepared transaction
	Prepared        string // its global identifier
	User            string
	ApplicationName string
	State           string
	Since           time.Time // start of the transaction; zero without the right to see it
}

func (b Blocker) String() string {
	if b.Prepared != "" {
		return fmt.Sprintf("prepared transaction %q", b.Prepared)
	}
	text := fmt.Sprintf("PID %d", b.PID)
	if b.User != "" {
		text += fmt.Sprintf(" (%s, %s, %s)", b.User, b.ApplicationName, b.State)
	}
	if !b.Since.IsZero() {
		text += " since " + b.Since.UTC().Format(time.RFC3339)
	}
	return text
}

// CreateSlot makes a logical slot and returns the position its stream begins at.
// The server waits for every open writing transaction to end, of any database;
// meanwhile waiting is told every few seconds for which, on another goroutine; for
// none on a standby server, which waits for its primary to log what runs. It may
// be nil. When ctx ends, the server is told to stop, which leaves no slot
// behind.
func CreateSlot(ctx context.Context, conn *pgx.Conn, name string, failover bool, waiting func([]Blocker)) (pglogrepl.LSN, error) {
	version, err := ServerVersion(ctx, conn)
	if err != nil {
		return 0, err
	}
	query := "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput', false, false)"
	if failover {
		if version < 170000 {
			return 0, fmt.Errorf("create slot %q: failover slots need PostgreSQL 17 or newer, this server is %d: do without --slot-failover", name, version/10000)
		}
		query = "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput', false, false, true)"
	}
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0; SET lock_timeout = 0"); err != nil { // NewerSettings lifts the rest
		return 0, fmt.Errorf("create slot %q: lift the session's limits: %w", name, classify(err))
	}
	text, err := createSlot(ctx, conn, query, name, waiting)
	if !conn.IsClosed() {
		if _, resetErr := conn.Exec(context.WithoutCancel(ctx), "RESET statement_timeout; RESET lock_timeout"); err == nil && resetErr != nil {
			err = resetErr
		}
	}
	switch {
	case err == nil:
		return pglogrepl.ParseLSN(text)
	case ctx.Err() != nil:
		return 0, fmt.Errorf("create slot %q: %w", name, ctx.Err())
	case sqlState(err) == stateInsufficientRights:
		err = &RightError{What: "the REPLICATION attribute", SQL: alterRole(ctx, conn, "REPLICATION"), Err: err}
	case sqlState(err) == stateDuplicateObject:
		err = fmt.Errorf("%w: %w", ErrSlotExists, err)
	case sqlState(err) == stateConfigLimitExceeded:
		err = fmt.Errorf("raise max_replication_slots or drop a slot that nobody uses: %w", err)
	default:
		err = classify(err)
	}
	return 0, fmt.Errorf("create slot %q: %w", name, err)
}

// createSlot runs the query. pgx would close the connection when ctx ends, and
// the server, which does not notice while it waits, would make the slot later
// and leave it behind: so the query is cancelled instead, and waited for.
func createSlot(ctx context.Context, conn *pgx.Conn, query, name string, waiting func([]Blocker)) (lsn string, err error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	cancel := context.AfterFunc(ctx, func() {
		cancelling, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer done()
		_ = conn.PgConn().CancelRequest(cancelling) // the time-out below ends what it does not
		time.AfterFunc(cancelTimeout, stop)
	})
	defer cancel()
	if waiting != nil {
		watched := make(chan struct{})
		watching, unwatch := context.WithCancel(running)
		defer func() { unwatch(); <-watched }()
		go func() {
			defer close(watched)
			watchBlockers(watching, conn.Config(), conn.PgConn().PID(), waiting)
		}()
	}
	err = conn.QueryRow(running, query, name).Scan(&lsn)
	return lsn, err
}

// Everyone sees in pg_locks who holds a transaction ID; who that is and since
// when takes pg_read_all_stats.
const blockerQuery = `
SELECT DISTINCT coalesce(h.pid, 0), coalesce(p.gid, ''), coalesce(a.usename, ''), coalesce(a.application_name, ''),
       coalesce(a.state, ''), coalesce(a.xact_start, p.prepared)
FROM pg_locks w
JOIN pg_locks h ON h.locktype = 'transactionid' AND h.granted AND h.transactionid IS DISTINCT FROM NULL
LEFT JOIN pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = h.transactionid
WHERE w.pid = $1 AND w.locktype = 'transactionid' AND NOT w.granted
  AND (h.transactionid = w.transactionid OR coalesce(a.xact_start, p.prepared) < $2)
ORDER BY 6 NULLS FIRST LIMIT 20`

// watchBlockers asks on a connection of its own, since the one that waits can do
// nothing else. What goes wrong here costs the message only.
func watchBlockers(ctx context.Context, cfg *pgx.ConnConfig, waiter uint32, report func([]Blocker)) {
	began, standby := time.Now(), false
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
				continue
			}
			standby, _ = inRecovery(ctx, conn) // the next query says what is wrong
		}
		rows, err := conn.Query(ctx, blockerQuery, int32(waiter), began)
		if err != nil {
			continue
		}
		blockers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Blocker, err error) {
			var since *time.Time
			err = row.Scan(&b.PID, &b.Prepared, &b.User, &b.ApplicationName, &b.State, &since)
			if since != nil {
				b.Since = *since
			}
			return b, err
		})
		if err == nil && (len(blockers) > 0 || standby) {
			report(blockers)
		}
	}
}

// DropSlot undoes CreateSlot. One that is gone already is no error; one that is
// in use is ErrSlotBusy.
func DropSlot(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", name)
	if err != nil && sqlState(err) != stateUndefinedObject {
		return fmt.Errorf("drop slot %q: %w", name, classify(err))
	}
	return nil
}
