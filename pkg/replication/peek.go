package replication

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/decode"
)

const peekQuery = `SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes($1, $2::text::pg_lsn, NULL, 'proto_version', '1', 'publication_names', $3)`

// Peek hands the stream of a slot that nobody holds, up to an LSN, to take as
// CopyData payloads in text format, and leaves the slot as it is.
func Peek(ctx context.Context, conn *pgx.Conn, slot, publication string, until pglogrepl.LSN, take func(payload []byte) error) error {
	rows, err := conn.Query(ctx, peekQuery, slot, until.String(), pgx.Identifier{publication}.Sanitize())
	if err == nil {
		var at string
		var data, payload []byte
		_, err = pgx.ForEachRow(rows, []any{&at, &data}, func() error {
			lsn, err := pglogrepl.ParseLSN(at)
			if err != nil {
				return err
			}
			payload = append(payload[:0], decode.FrameXLogData)
			for _, field := range [3]uint64{uint64(lsn), uint64(lsn), 0} {
				payload = binary.BigEndian.AppendUint64(payload, field)
			}
			payload = append(payload, data...)
			return take(payload)
		})
	}
	if err != nil {
		return fmt.Errorf("look at what slot %q still has: %w", slot, classify(err))
	}
	return nil
}
