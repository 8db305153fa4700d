package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// healthInterval is how often the slot's health is read.
	healthInterval = 2 * time.Second
	// healthTimeout bounds one reading.
	healthTimeout = 5 * time.Second
	// reconnectPause between attempts to open the ordinary session again.
	reconnectPause = time.Second
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
	Rows            string // fingerprint of what the stream carries
	// Err is set when nothing could be read; the rest is then empty but At.
	Err error
}

// Session is the ordinary connection beside the stream.
type Session struct {
	options Options
	conn    *pgx.Conn
}

// OpenSession connects. A server that shuts down or is not up yet is
// ErrServerStopping.
func OpenSession(ctx context.Context, o Options) (*Session, error) {
	s := &Session{options: o}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Session) connect(ctx context.Context) error {
	cfg, err := s.options.config()
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("open the ordinary session: %w", classify(err))
	}
	s.conn = conn
	return nil
}

// Conn is the connection, for what is asked before streaming begins.
func (s *Session) Conn() *pgx.Conn { return s.conn }

// WalSenderTimeout is the setting an ordinary session of this role sees.
func (s *Session) WalSenderTimeout(ctx context.Context) (time.Duration, error) {
	var text string
	if err := s.conn.QueryRow(ctx, "SHOW wal_sender_timeout").Scan(&text); err != nil {
		return 0, fmt.Errorf("read wal_sender_timeout: %w", classify(err))
	}
	return parsePGDuration(text)
}

// Flushed is the end of the server's flushed WAL.
func (s *Session) Flushed(ctx context.Context) (pglogrepl.LSN, error) {
	var text string
	if err := s.conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&text); err != nil {
		return 0, fmt.Errorf("read the end of the WAL: %w", classify(err))
	}
	return pglogrepl.ParseLSN(text)
}

// Close ends the session.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // only says that it was gone already
}

const healthQuery = `
SELECT pg_current_wal_flush_lsn()::text, s.confirmed_flush_lsn::text, s.restart_lsn::text,
       s.wal_status, s.safe_wal_size, coalesce(s.active_pid = $2, false),
       coalesce((SELECT r.sync_state FROM pg_stat_replication r WHERE r.pid = $2), ''),
       current_setting('synchronous_standby_names')
FROM pg_replication_slots s WHERE s.slot_name = $1`

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
	h := Health{At: time.Now()}
	var end, confirmed, restart *string
	var status *string
	err := s.conn.QueryRow(ctx, healthQuery, w.Slot, int32(w.Walsender)).Scan(&end, &confirmed, &restart,
		&status, &h.SafeWALSize, &h.WalsenderActive, &h.SyncState, &h.SyncNames)
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
	if h.Rows, err = RowsFingerprint(ctx, s.conn, w.Publication); err != nil {
		return Health{At: h.At}, err
	}
	return h, nil
}

// Watch reads the slot's health until ctx ends or the server says that it is
// stopping, and hands each reading to report. Between readings it listens, so a
// shutdown is heard at once. A session that breaks for another reason is opened
// again; meanwhile the readings carry the error. The returned error wraps
// ErrServerStopping, or is the context's.
func (s *Session) Watch(ctx context.Context, w Watched, report func(Health)) error {
	for {
		h, err := s.Read(ctx, w)
		h.Err = err
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrServerStopping) {
			return err
		}
		report(h)
		if err == nil {
			err = s.Listen(ctx, healthInterval)
		}
		for err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, ErrServerStopping) {
				return err
			}
			err = s.reopen(ctx)
		}
	}
}

// Listen waits for d, or until the session ends: ErrServerStopping when the
// server says so.
func (s *Session) Listen(ctx context.Context, d time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		_, err := s.conn.WaitForNotification(waiting)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded):
			return nil
		default:
			return classify(err)
		}
	}
}

func (s *Session) reopen(ctx context.Context) error {
	s.Close()
	connectCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := s.connect(connectCtx)
	if err == nil || errors.Is(err, ErrServerStopping) {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(reconnectPause):
	}
	return err
}
