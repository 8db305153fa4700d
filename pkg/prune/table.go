package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/replication"
)

// table whose rows are looked after.
type table struct {
	oid          uint32
	schema, name string
	age, ageType string // column that says when a row was made
	indexed      bool   // by that column
	partitioned  bool
	key, types   []string // of the primary key, in its order
}

func (t *table) String() string { return t.schema + "." + t.name }

func (t *table) quoted() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

const tableQuery = `
SELECT c.oid, c.relkind = 'p', has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'DELETE'), pg_has_role(c.relowner, 'USAGE'),
       has_schema_privilege(n.oid, 'USAGE'),
       coalesce((SELECT has_column_privilege(c.oid, a.attnum, 'UPDATE') FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = $3 AND a.attnum > 0), true),
       (SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT array_agg(format_type(a.atttypid, NULL)) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
               JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
               WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree' AND a.attname = $4)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`

const noTime = "" // no age is asked for

var timeTypes = []string{"timestamp with time zone", "timestamp without time zone", "date"}

// lookUp how rows of a table can be named and dated, and what may be done to them.
func (cfg *Config) lookUp(ctx context.Context, conn *pgx.Conn, schema, name, age string) (*table, error) {
	t := &table{schema: schema, name: name, age: age}
	var mayRead, mayDelete, mayStamp, owner, reachable bool
	var columns, types []string
	err := conn.QueryRow(ctx, tableQuery, schema, name, cfg.Stamp, age).Scan(&t.oid, &t.partitioned, &mayRead, &mayDelete, &owner, &reachable, &mayStamp, &columns, &types, &t.indexed)
	if missing(err) {
		return nil, &SetupError{Found: fmt.Sprintf("table %s does not exist", t), Remedy: "check --table and the connection"}
	}
	if err == nil {
		t.key, t.types, err = replication.PrimaryKey(ctx, conn, t.oid)
	}
	if err != nil {
		return nil, fmt.Errorf("look up table %s: %w", t, replication.Classify(err))
	}
	role := quote(conn.Config().User)
	var grants []string
	for _, right := range []struct {
		has  bool
		name string
	}{
		{mayRead, "SELECT"},
		{mayDelete || !cfg.Delete, "DELETE"},
		{mayStamp, "UPDATE (" + quote(cfg.Stamp) + ")"},
	} {
		if !right.has {
			grants = append(grants, right.name)
		}
	}
	switch {
	case !reachable:
		return nil, &replication.RightError{What: "USAGE on schema " + schema, SQL: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", quote(schema), role)}
	case len(grants) > 0:
		list := strings.Join(grants, ", ")
		return nil, &replication.RightError{What: fmt.Sprintf("%s on table %s", list, t), SQL: fmt.Sprintf("GRANT %s ON %s TO %s;", list, t.quoted(), role)}
	case cfg.Delete && cfg.DropPartitions && !owner:
		return nil, &replication.RightError{
			What: fmt.Sprintf("the ownership of table %s, which detaching a partition takes (--drop-partitions)", t),
			SQL:  fmt.Sprintf("-- GRANT <the table's owner> TO %s; or do without --drop-partitions", role),
		}
	case len(t.key) == 0:
		return nil, &SetupError{Found: fmt.Sprintf("table %s has no primary key, by which a row could be named", t), Remedy: "give it one"}
	case cfg.Stamp != "" && !slices.Contains(columns, cfg.Stamp):
		return nil, &SetupError{Found: fmt.Sprintf("table %s has no column %s to write down when a row was published", t, cfg.Stamp), Remedy: "add it, a timestamptz that may be NULL, or name another by --stamp"}
	}
	if age == noTime {
		return t, nil
	}
	at := slices.Index(columns, age)
	if at < 0 || !slices.Contains(timeTypes, types[at]) {
		return nil, &SetupError{Found: fmt.Sprintf("table %s has no column %s of a type timestamp or date, that says when a row was made", t, age), Remedy: "name one by " + cfg.AgeSetting}
	}
	t.ageType = types[at]
	return t, nil
}

// work is what is done to some rows of a table.
type work struct {
	*table
	what        string // for messages
	condition   string // which rows
	args        []any  // of the condition
	change      string // the statement's begin
	order, cast []string
}

// old rows are deleted. Where an index has their age, they are read by it, and
// nothing but them.
func (t *table) old(before string) work {
	w := work{table: t, what: "delete from", condition: t.isOld(), args: []any{before}, change: "DELETE FROM " + t.quoted(), order: t.key, cast: t.types}
	if t.indexed {
		w.order, w.cast = append([]string{t.age}, t.key...), append([]string{t.ageType}, t.types...)
	}
	return w
}

func (t *table) isOld() string { return quote(t.age) + " < $1::text::timestamptz" }

// unstamped rows are those whose column has no time yet.
func (t *table) unstamped(column string) work {
	return work{
		table: t, what: "stamp rows of", condition: quote(column) + " IS NULL",
		change: "UPDATE " + t.quoted() + " SET " + quote(column) + " = now()", order: t.key, cast: t.types,
	}
}

func (t *table) count() string {
	return fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", t.quoted(), t.isOld())
}

// page of rows in their order: what the order is by, and the key is the end of it.
func (w *work) page(behind bool, limit int) string {
	var names, texts, params []string
	for i, name := range w.order {
		names = append(names, quote(name))
		texts = append(texts, quote(name)+"::text")
		params = append(params, fmt.Sprintf("$%d::text::%s", len(w.args)+i+1, w.cast[i]))
	}
	order, condition := strings.Join(names, ", "), w.condition
	if behind {
		condition += fmt.Sprintf(" AND (%s) > (%s)", order, strings.Join(params, ", "))
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %d", strings.Join(texts, ", "), w.quoted(), condition, order, limit)
}

// statement for the rows with these keys. The condition is asked once more.
func (w *work) statement() string {
	var names, arrays, casts, columns []string
	for i, name := range w.key {
		names = append(names, quote(name))
		arrays = append(arrays, fmt.Sprintf("$%d::text[]", len(w.args)+i+1))
		casts = append(casts, fmt.Sprintf("k%d::%s", i, w.types[i]))
		columns = append(columns, fmt.Sprintf("k%d", i))
	}
	return fmt.Sprintf("%s WHERE (%s) IN (SELECT %s FROM unnest(%s) AS keys(%s)) AND %s",
		w.change, strings.Join(names, ", "), strings.Join(casts, ", "), strings.Join(arrays, ", "), strings.Join(columns, ", "), w.condition)
}
