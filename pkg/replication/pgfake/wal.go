package pgfake

import (
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// Row of the outbox table: one Go value per column, as pgtype encodes it; nil is
// NULL.
type Row []any

// Transaction is one that was committed.
type Transaction struct {
	XID       uint32
	CommitLSN pglogrepl.LSN
	EndLSN    pglogrepl.LSN
	Time      time.Time
	Rows      int

	rows    []Row
	encoded [2][][]byte // by format: pgoutput's Insert messages
}

// record is a stretch of WAL: a transaction, or what others wrote.
type record struct {
	start, end pglogrepl.LSN
	tx         *Transaction
}

// rowSize is how much WAL a row takes, commitSize a commit's record.
const (
	rowSize    = 128
	commitSize = 48
)

// firstLSN is where the WAL begins.
const firstLSN = pglogrepl.LSN(0x1_5000_0028)

// inserts are the transaction's rows as pgoutput sends them.
func (t *Transaction) inserts(types *pgtype.Map, table *decode.Relation, format int16) [][]byte {
	if t.encoded[format] != nil {
		return t.encoded[format]
	}
	messages := make([][]byte, 0, len(t.rows))
	for _, row := range t.rows {
		values := make([]decode.Value, len(row))
		for i, v := range row {
			data, err := types.Encode(table.Columns[i].TypeOID, format, v, []byte{})
			switch {
			case err != nil:
				panic("pgfake: column " + table.Columns[i].Name + ": " + err.Error())
			case data == nil:
				values[i] = decodetest.Null()
			case format == pgtype.BinaryFormatCode:
				values[i] = decodetest.Binary(string(data))
			default:
				values[i] = decodetest.Text(string(data))
			}
		}
		messages = append(messages, decodetest.Insert(table.ID, values...))
	}
	t.encoded[format] = messages
	return messages
}
