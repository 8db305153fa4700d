package replication

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrOldPrimary: the server takes writes, but on a timeline that the one that was
// published from has left behind: a primary of before a failover.
var ErrOldPrimary = errors.New("the server is an old primary")

// ErrTwoServers: the two connections came to different servers, in a failover or
// behind a balancer.
var ErrTwoServers = errors.New("the two connections to PostgreSQL came to different servers")

// Published is the newest history that rows were published from. It is safe for
// several goroutines.
type Published struct {
	mu       sync.Mutex
	systemID string
	timeline uint32
}

// Note takes what a checkpoint or a stream stands on. Timelines of one system only
// rise; another system has its own.
func (p *Published) Note(systemID string, timeline uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.systemID != systemID {
		p.systemID, p.timeline = systemID, 0
	}
	p.timeline = max(p.timeline, timeline)
}

// orNewer is validate, and then passes over a server that is an old primary.
func (p *Published) orNewer(validate pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	if p == nil {
		return validate
	}
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := validate(ctx, conn); err != nil {
			return err
		}
		p.mu.Lock()
		systemID, timeline := p.systemID, p.timeline
		p.mu.Unlock()
		if systemID == "" {
			return nil
		}
		results, err := conn.Exec(ctx, whichQuery).ReadAll()
		if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
			return err
		}
		its, err := strconv.ParseUint(string(results[0].Rows[0][1]), 10, 32)
		if err == nil && string(results[0].Rows[0][0]) == systemID && its > 0 && uint32(its) < timeline {
			err = fmt.Errorf("%w: it is on timeline %d, and rows of timeline %d are published", ErrOldPrimary, its, timeline)
		}
		return err
	}
}

// whichQuery is how an ordinary session learns system and timeline: that of the
// WAL it writes, which pg_control_checkpoint learns of later. 0: in recovery.
const whichQuery = `
SELECT system_identifier::text,
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END
FROM pg_control_system()`

// SameServer holds the session against the server of the replication connection,
// where the address leads to several.
func (s *Session) SameServer(ctx context.Context, id Identity) error {
	if hosts(&s.conn.Config().Config) < 2 {
		return nil
	}
	var systemID string
	var timeline uint32
	err := s.conn.QueryRow(ctx, whichQuery, pgx.QueryExecModeSimpleProtocol).Scan(&systemID, &timeline)
	if err != nil {
		return fmt.Errorf("read which server the ordinary session is on: %w", classify(err))
	}
	if systemID != id.SystemID || timeline != 0 && timeline != id.Timeline {
		return fmt.Errorf("%w: system %s, timeline %d, and system %s, timeline %d", ErrTwoServers, systemID, timeline, id.SystemID, id.Timeline)
	}
	return nil
}

// InRecovery asks whether the server is a standby.
func (s *Session) InRecovery(ctx context.Context) (yes bool, err error) {
	return inRecovery(ctx, s.conn)
}

func inRecovery(ctx context.Context, conn *pgx.Conn) (yes bool, err error) {
	if err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&yes); err != nil {
		return false, fmt.Errorf("read whether the server is in recovery: %w", classify(err))
	}
	return yes, nil
}
