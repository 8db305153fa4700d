package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/replication"
)

// Table is an outbox as a snapshot reads it.
type Table struct {
	Schema, Name string
	Relation     *decode.Relation // of what is read: what the mapping needs, and the key
	Key          []string         // columns by which it is ordered: the primary key's, behind Wanted.Order
	Estimate     int64            // rows, by the planner's statistics; -1: unknown
	where        string           // a condition on its rows, in SQL; empty: none
}

func (t Table) String() string { return t.Schema + "." + t.Name }

func (t Table) quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// TableError is a table that no snapshot can be made of.
type TableError struct{ Table, Reason, Remedy string }

func (e *TableError) Error() string {
	return fmt.Sprintf("snapshot of %s: %s; %s", e.Table, e.Reason, e.Remedy)
}

const (
	remedyKey = "put every column of the primary key into the publication's column list (ALTER PUBLICATION ... SET TABLE), " +
		"or go without the table's old rows by --snapshot never"
	remedyNoKey = "give it a primary key, or go without its old rows by --snapshot never"
)

const tableQuery = `
SELECT c.oid, has_table_privilege(c.oid, 'SELECT'), has_schema_privilege(n.oid, 'USAGE'),
       (SELECT CASE WHEN count(*) FILTER (WHERE p.reltuples < 0) > 0 THEN -1 ELSE sum(p.reltuples)::int8 END
        FROM pg_class p WHERE p.oid = c.oid AND c.relkind <> 'p'
           OR c.relkind = 'p' AND p.relkind <> 'p' AND p.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`

// Wanted is a table as the stream carries it, and the columns of it that are mapped.
type Wanted struct {
	Layout  *decode.Relation
	Columns []string
	// Order are columns that rows are ordered by before their primary key.
	Order []string
	// Where is a condition on the rows of this table, in SQL; empty: none.
	Where string
}

// tables finds out how they can be read.
func tables(ctx context.Context, conn *pgx.Conn, wanted []Wanted) ([]Table, error) {
	var tables []Table
	for _, w := range wanted {
		r := w.Layout
		t := Table{Schema: r.Namespace, Name: r.Name, where: w.Where}
		var oid uint32
		var readable, reachable bool
		var estimate *int64
		if err := conn.QueryRow(ctx, tableQuery, t.Schema, t.Name).Scan(&oid, &readable, &reachable, &estimate); err != nil {
			return nil, fmt.Errorf("snapshot of %s: look up the table: %w", t, replication.Classify(err))
		}
		if t.Estimate = -1; estimate != nil {
			t.Estimate = *estimate
		}
		var err error
		if t.Key, _, err = replication.PrimaryKey(ctx, conn, oid); err != nil {
			return nil, fmt.Errorf("snapshot of %s: %w", t, err)
		}
		switch {
		case !reachable:
			return nil, fmt.Errorf("snapshot of %s: %w", t, &replication.RightError{
				What: "USAGE on the schema", SQL: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", pgx.Identifier{t.Schema}.Sanitize(), pgx.Identifier{conn.Config().User}.Sanitize()),
			})
		case !readable:
			return nil, fmt.Errorf("snapshot of %s: %w", t, &replication.RightError{
				What: "SELECT on the table", SQL: fmt.Sprintf("GRANT SELECT ON %s TO %s;", t.quoted(), pgx.Identifier{conn.Config().User}.Sanitize()),
			})
		case len(t.Key) == 0:
			return nil, &TableError{t.String(), "it has no primary key, in whose order it would be read", remedyNoKey}
		}
		t.Key = append(slices.Clone(w.Order), slices.DeleteFunc(t.Key, func(name string) bool { return slices.Contains(w.Order, name) })...)
		for _, name := range t.Key {
			if columnIndex(r, name) < 0 {
				return nil, &TableError{t.String(), fmt.Sprintf("the publication does not carry column %s of the primary key", name), remedyKey}
			}
		}
		t.Relation = restricted(r, t.With(w.Columns))
		tables = append(tables, t)
	}
	return tables, nil
}

// restricted keeps these columns of a relation.
func restricted(r *decode.Relation, columns []string) *decode.Relation {
	kept := *r
	kept.Columns = slices.DeleteFunc(slices.Clone(r.Columns), func(c decode.Column) bool { return !slices.Contains(columns, c.Name) })
	return &kept
}

// Check says whether these tables can be read, with this condition on their rows,
// and how.
func Check(ctx context.Context, conn *pgx.Conn, wanted []Wanted, where string) ([]Table, error) {
	found, err := tables(ctx, conn, wanted)
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		// Nothing is read, but the server looks at all of it.
		if _, err := conn.Exec(ctx, t.query(where, false, 0)); err != nil {
			if where == "" || replication.Transient(replication.Classify(err)) {
				return nil, fmt.Errorf("snapshot of %s: %w", t, replication.Classify(err))
			}
			return nil, &TableError{t.String(), fmt.Sprintf("its rows cannot be read with the condition: %v", err), "mend --snapshot-where"}
		}
	}
	return found, nil
}

func columnIndex(r *decode.Relation, name string) int {
	return slices.IndexFunc(r.Columns, func(c decode.Column) bool { return c.Name == name })
}

// With returns columns and what of the key is not among them.
func (t Table) With(columns []string) []string {
	columns = slices.Clone(columns)
	for _, name := range t.Key {
		if !slices.Contains(columns, name) {
			columns = append(columns, name)
		}
	}
	return columns
}

// keyColumns are the key's places in the relation.
func (t Table) keyColumns() (places []int) {
	for _, name := range t.Key {
		places = append(places, columnIndex(t.Relation, name))
	}
	return places
}

// query reads the next rows in key order: behind the key in the parameters, or
// from the beginning. where is an operator's own condition, or empty.
func (t Table) query(where string, behind bool, limit int) string {
	columns := make([]string, len(t.Relation.Columns))
	for i, c := range t.Relation.Columns {
		columns[i] = pgx.Identifier{c.Name}.Sanitize()
	}
	keys, params := make([]string, len(t.Key)), make([]string, len(t.Key))
	for i, name := range t.Key {
		keys[i], params[i] = pgx.Identifier{name}.Sanitize(), fmt.Sprintf("$%d", i+1)
	}
	var conditions []string
	if behind {
		conditions = append(conditions, fmt.Sprintf("(%s) > (%s)", strings.Join(keys, ", "), strings.Join(params, ", ")))
	}
	for _, condition := range []string{t.where, where} {
		if condition != "" {
			conditions = append(conditions, "("+condition+"\n)") // a comment in it ends with its line
		}
	}
	text := "SELECT " + strings.Join(columns, ", ") + " FROM " + t.quoted()
	if len(conditions) > 0 {
		text += " WHERE " + strings.Join(conditions, " AND ")
	}
	return fmt.Sprintf("%s ORDER BY %s LIMIT %d", text, strings.Join(keys, ", "), limit)
}
