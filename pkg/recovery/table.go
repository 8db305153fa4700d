package recovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/snapshot"
)

// table with what tells when a row was made.
type table struct {
	*snapshot.Table
	columns outbox.TableColumns
	time    string // column; empty: none is known
	zoned   bool   // of it: timestamptz
}

const (
	oidTimestamp, oidTimestamptz = 1114, 1184
	created                      = "created_at"
	// zones lie so far apart: a timestamp without one may be of any.
	zones = 14 * time.Hour
)

func (t *table) index(name string) int {
	return slices.IndexFunc(t.Relation.Columns, func(c decode.Column) bool { return c.Name == name })
}

func quote(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// addTable refuses one whose rows cannot be known again.
func (j *Judge) addTable(ctx context.Context, conn *pgx.Conn, own *snapshot.Table) error {
	t := table{Table: own, columns: j.mapping.ColumnsOf(own.Schema, own.Name)}
	if t.columns.EventID == "" {
		return &snapshot.TableError{
			Table: own.String(), Reason: "its rows have no event id, by which they would be known in the topics",
			Remedy: "walstream audit matches such rows by their number, and --missing-to lists what is in no topic; with --id-column they have an id from now on",
		}
	}
	for _, name := range []string{t.columns.Timestamp, created} {
		var oid uint32
		err := conn.QueryRow(ctx, typeQuery, quote(own.Schema, own.Name), name).Scan(&oid)
		if err != nil {
			return fmt.Errorf("look up column %q of %s: %w", name, own, replication.Classify(err))
		}
		if oid == oidTimestamp || oid == oidTimestamptz {
			t.time, t.zoned = name, oid == oidTimestamptz
			break
		}
	}
	j.tables = append(j.tables, t)
	return nil
}

const typeQuery = `SELECT coalesce((SELECT atttypid FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2 AND NOT attisdropped), 0)`

func (j *Judge) find(own *snapshot.Table) *table {
	for n := range j.tables {
		if j.tables[n].Schema == own.Schema && j.tables[n].Name == own.Name {
			return &j.tables[n]
		}
	}
	return nil
}

// Where is which rows of a table are in doubt, in SQL; empty: all are.
func (j *Judge) Where(own *snapshot.Table) string {
	t, doubt := j.find(own), &j.counts
	if t == nil || t.time == "" || doubt.Since.IsZero() {
		return ""
	}
	since, column, typeName := doubt.Since, quote(t.time), "timestamptz"
	if !t.zoned {
		since, typeName = since.Add(-zones), "timestamp"
	}
	conditions := []string{
		fmt.Sprintf("%s >= '%s'::%s", column, since.UTC().Format("2006-01-02 15:04:05.000000")+map[bool]string{true: "+00"}[t.zoned], typeName),
		column + " IS NULL",
	}
	if doubt.XID != 0 {
		conditions = append(conditions, fmt.Sprintf("age(xmin) <= age('%d'::xid)", doubt.XID))
	}
	if j.LateKnown {
		conditions = append(conditions, fmt.Sprintf("pg_xact_commit_timestamp(xmin) >= '%s+00'::timestamptz", doubt.CommitTime.UTC().Format("2006-01-02 15:04:05.000000")))
	}
	return strings.Join(conditions, " OR ")
}

// Outside counts the rows of a table that are not in doubt.
func (j *Judge) Outside(ctx context.Context, conn *pgx.Conn, n int) (rows uint64, err error) {
	t := &j.tables[n]
	where := j.Where(t.Table)
	if where == "" {
		return 0, nil
	}
	err = conn.QueryRow(ctx, "SELECT count(*) FROM "+quote(t.Schema, t.Name)+" WHERE NOT ("+where+")").Scan(&rows)
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s: %w", t, replication.Classify(err))
	}
	return rows, nil
}

// each calls do with the rows in doubt, in no order.
func (j *Judge) each(ctx context.Context, conn *pgx.Conn, do func(n int, formats []byte, values [][]byte) error) error {
	for n := range j.tables {
		t := &j.tables[n]
		columns := make([]string, len(t.Relation.Columns))
		for i, c := range t.Relation.Columns {
			columns[i] = quote(c.Name)
		}
		query := "SELECT " + strings.Join(columns, ", ") + " FROM " + quote(t.Schema, t.Name)
		if where := j.Where(t.Table); where != "" {
			query += " WHERE " + where
		}
		formats := slices.Repeat([]byte{decode.ValueText}, len(columns))
		result := conn.PgConn().ExecParams(ctx, query, nil, nil, nil, []int16{pgx.TextFormatCode})
		for result.NextRow() {
			if err := do(n, formats, result.Values()); err != nil {
				_ = conn.PgConn().Conn().Close() // to read the rest would take as long as its rows do
				_, _ = result.Close()
				return err
			}
		}
		if _, err := result.Close(); err != nil {
			return fmt.Errorf("read %s: %w", t, replication.Classify(err))
		}
	}
	return nil
}
