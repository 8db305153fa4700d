package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/replication"
)

// table whose rows are deleted.
type table struct {
	schema, name string
	age          string   // column
	key, types   []string // of the primary key, in its order
}

func (t table) String() string { return t.schema + "." + t.name }

const tableQuery = `
SELECT c.oid, has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'DELETE'),
       (SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`

// lookUp how rows of a table can be named and dated.
func lookUp(ctx context.Context, conn *pgx.Conn, schema, name, age string) (table, error) {
	t := table{schema: schema, name: name, age: age}
	if t.age == "" {
		t.age = "created_at"
	}
	var oid uint32
	var mayRead, mayDelete bool
	var columns []string
	err := conn.QueryRow(ctx, tableQuery, schema, name).Scan(&oid, &mayRead, &mayDelete, &columns)
	if err == nil {
		t.key, t.types, err = replication.PrimaryKey(ctx, conn, oid)
	}
	switch {
	case missing(err):
		return t, &SetupError{fmt.Sprintf("table %s does not exist", t), "check --table and the connection"}
	case err != nil:
		return t, fmt.Errorf("look up table %s: %w", t, replication.Classify(err))
	case !mayRead || !mayDelete:
		return t, &replication.RightError{
			What: fmt.Sprintf("SELECT and DELETE on table %s", t),
			SQL:  fmt.Sprintf("GRANT SELECT, DELETE ON %s TO %s;", t.quoted(), pgx.Identifier{conn.Config().User}.Sanitize()),
		}
	case len(t.key) == 0:
		return t, &SetupError{fmt.Sprintf("table %s has no primary key, by which a row could be deleted", t), "give it one"}
	case !slices.Contains(columns, t.age):
		return t, &SetupError{fmt.Sprintf("table %s has no column %s that says when a row was made", t, t.age), "name one by --age-column"}
	}
	return t, nil
}

func (t table) quoted() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// old is the condition that rows have to meet.
func (t table) old() string { return quote(t.age) + " < $1::text::timestamptz" }

func (t table) count() string {
	return fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", t.quoted(), t.old())
}

// page of keys in their order.
func (t table) page(behind bool, limit int) string {
	var names, texts, params []string
	for i, name := range t.key {
		names = append(names, quote(name))
		texts = append(texts, quote(name)+"::text")
		params = append(params, fmt.Sprintf("$%d::text::%s", i+2, t.types[i]))
	}
	order, condition := strings.Join(names, ", "), t.old()
	if behind {
		condition += fmt.Sprintf(" AND (%s) > (%s)", order, strings.Join(params, ", "))
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %d", strings.Join(texts, ", "), t.quoted(), condition, order, limit)
}

// deletion of the rows with these keys. That they are old is asked once more.
func (t table) deletion() string {
	var names, arrays, casts []string
	for i, name := range t.key {
		names = append(names, quote(name))
		arrays = append(arrays, fmt.Sprintf("$%d::text[]", i+2))
		casts = append(casts, fmt.Sprintf("k%d::%s", i, t.types[i]))
	}
	columns := make([]string, len(t.key))
	for i := range columns {
		columns[i] = fmt.Sprintf("k%d", i)
	}
	return fmt.Sprintf("DELETE FROM %s WHERE (%s) IN (SELECT %s FROM unnest(%s) AS keys(%s)) AND %s",
		t.quoted(), strings.Join(names, ", "), strings.Join(casts, ", "), strings.Join(arrays, ", "), strings.Join(columns, ", "), t.old())
}
