package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// Standing is what an ordinary session can read of server and slot, without a
// replication connection: it disturbs nobody.
type Standing struct {
	Version    int // server_version_num
	SystemID   string
	Timeline   uint32
	Database   string
	InRecovery bool
	Slot       SlotInfo
	Instances  []Instance
	Rewind     Rewind // its slot exists or not
}

// Instance is an ordinary session of a walstream that works on the pipeline, or
// waits to.
type Instance struct {
	PID   int32
	Addr  string // empty for a Unix socket
	Since time.Time
}

const standingQuery = `
SELECT current_setting('server_version_num')::int, (SELECT system_identifier::text FROM pg_control_system()),
       (SELECT timeline_id FROM pg_control_checkpoint()), current_database(), pg_is_in_recovery()`

// Sessions of other roles are seen with pg_read_all_stats only.
const instancesQuery = `
SELECT pid, coalesce(host(client_addr), ''), backend_start FROM pg_stat_activity
WHERE application_name = left($1, 63) AND backend_type = 'client backend' AND pid <> pg_backend_pid()
ORDER BY backend_start, pid`

// ReadStanding reads them. applicationName is that of the pipeline's instances.
func ReadStanding(ctx context.Context, conn *pgx.Conn, slot, applicationName string) (s Standing, err error) {
	if s.Slot, err = LookupSlot(ctx, conn, slot); err != nil {
		return s, err
	}
	err = conn.QueryRow(ctx, standingQuery).Scan(&s.Version, &s.SystemID, &s.Timeline, &s.Database, &s.InRecovery)
	if err != nil {
		return s, fmt.Errorf("read which server this is: %w", classify(err))
	}
	if s.Rewind, err = ReadRewind(ctx, conn, slot); err != nil {
		return s, err
	}
	rows, err := conn.Query(ctx, instancesQuery, applicationName)
	if err == nil {
		s.Instances, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (i Instance, err error) {
			err = row.Scan(&i.PID, &i.Addr, &i.Since)
			return i, err
		})
	}
	if err != nil {
		return s, fmt.Errorf("look for instances of %s: %w", applicationName, classify(err))
	}
	return s, nil
}

// WALEnd is how far the server's WAL reaches, as one in recovery has it too, and
// the server's time then.
func WALEnd(ctx context.Context, conn *pgx.Conn) (end pglogrepl.LSN, at time.Time, err error) {
	var text string
	err = conn.QueryRow(ctx, "SELECT "+walEnd+", clock_timestamp()").Scan(&text, &at)
	if err != nil {
		return 0, at, fmt.Errorf("read the end of the WAL: %w", classify(err))
	}
	end, err = pglogrepl.ParseLSN(text)
	return end, at, err
}
