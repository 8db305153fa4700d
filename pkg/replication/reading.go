package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// BeginReading opens a transaction that reads one state of the tables, for as long
// as that takes: a broker that is away for a night must not end it, and a policy of a
// table must refuse rather than leave rows out in silence. The first query behind it
// fixes the state.
func BeginReading(ctx context.Context, conn *pgx.Conn) error {
	const begin = `SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET row_security = off;
		BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	if _, err := conn.Exec(ctx, begin); err != nil {
		return fmt.Errorf("begin to read the tables: %w", classify(err))
	}
	return nil
}

// EndReading gives the state up.
func EndReading(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("end the reading of the tables: %w", classify(err))
	}
	return nil
}

const keyQuery = `
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)
FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place), pg_attribute a
WHERE i.indrelid = $1 AND i.indisprimary AND a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.place <= i.indnkeyatts
ORDER BY k.place`

// PrimaryKey returns the columns of a table's primary key in its order, and their
// types as SQL names them; none: it has no such key.
func PrimaryKey(ctx context.Context, conn *pgx.Conn, table uint32) (columns, types []string, err error) {
	rows, err := conn.Query(ctx, keyQuery, table)
	if err == nil {
		var column, typeName string
		_, err = pgx.ForEachRow(rows, []any{&column, &typeName}, func() error {
			columns, types = append(columns, column), append(types, typeName)
			return nil
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look up the primary key: %w", classify(err))
	}
	return columns, types, nil
}
