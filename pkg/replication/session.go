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
	// detailInterval is how often what changes slowly, or costs more, is read.
	detailInterval = 10 * time.Second
	// reconnectPause between attempts to open the ordinary session again.
	reconnectPause = time.Second
)

// Session is the ordinary connection beside the stream.
type Session struct {
	options  Options
	conn     *pgx.Conn
	detail   *SlotDetail // as read last
	detailAt time.Time
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

// walEnd is the end of the server's flushed WAL; of one in recovery, how far it has
// replayed: no further it decodes.
const walEnd = "CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_flush_lsn() END::text"

// Flushed is the end of the server's flushed WAL, and the time by its clock.
func (s *Session) Flushed(ctx context.Context) (end pglogrepl.LSN, now time.Time, err error) {
	var text string
	if err := s.conn.QueryRow(ctx, "SELECT "+walEnd+", clock_timestamp()").Scan(&text, &now); err != nil {
		return 0, now, fmt.Errorf("read the end of the WAL: %w", classify(err))
	}
	end, err = pglogrepl.ParseLSN(text)
	return end, now, err
}

// Close ends the session.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // only says that it was gone already
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
