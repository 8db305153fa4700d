package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// Inserted is where the server's WAL ends, flushed or not: what is committed and can
// be seen was committed before it. An idle stream reaches it.
func Inserted(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (pglogrepl.LSN, error) {
	var text string
	var block uint64
	err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text, current_setting('wal_block_size')::int8").Scan(&text, &block)
	if sqlState(err) == stateNotInPrerequisite {
		return 0, fmt.Errorf("read the end of the WAL: %w: connect to its primary", ErrInRecovery)
	}
	if err != nil {
		return 0, fmt.Errorf("read the end of the WAL: %w", classify(err))
	}
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0, fmt.Errorf("read the end of the WAL: %w", err)
	}
	return boundary(lsn, block), nil
}

// boundary takes an insert position that lies right behind the header of a WAL
// page back to the page's begin: that is where the last record ends, and an idle
// server sends, and is confirmed, no further. (A record that reaches over the page's
// begin has its own begin, which is its commit LSN, before it.)
func boundary(lsn pglogrepl.LSN, block uint64) pglogrepl.LSN {
	const longHeader = 40
	if past := uint64(lsn) % block; past <= longHeader {
		return lsn - pglogrepl.LSN(past)
	}
	return lsn
}
