package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/decode"
)

// TableInfo is an outbox table as the catalogue has it.
type TableInfo struct {
	Exists       bool
	Schema, Name string
	OID          uint32
	Kind         string // relkind: r ordinary, p partitioned
	Persistence  string // relpersistence: p permanent, u unlogged, t temporary
	Owner        string
	OwnedByUs    bool // by a role whose rights we have
	Columns      []TableColumn

	// Published: the publication names the table, its schema, or all tables.
	Published bool
	// ColumnList: the publication lists columns of it.
	ColumnList bool
	// RowFilter: the publication leaves rows out.
	RowFilter bool

	// Children are the partitions, and tables that inherit, whose rows we would
	// not get; at most a handful.
	Children []TableChild
}

// TableChild is a partition that is not permanent or is a foreign table, or a
// table that inherits from an ordinary one.
type TableChild struct {
	Schema, Name      string
	Parent            string // quoted
	Kind, Persistence string
}

func (c TableChild) String() string { return c.Schema + "." + c.Name }

func (c TableChild) quoted() string { return pgx.Identifier{c.Schema, c.Name}.Sanitize() }

// TableColumn of a table.
type TableColumn struct {
	Name      string
	TypeOID   uint32
	Base      uint32 // the type beneath its domains
	TypeName  string // the name of that, where the type was made in this database
	NotNull   bool
	Generated string // attgenerated: s stored, v virtual, else empty
	Listed    bool   // in the publication's column list
}

// publishable: a publication may list the column. Generated ones need PostgreSQL
// 18, and are stored.
func (c TableColumn) publishable(version int) bool {
	return c.Generated == "" || c.Generated != "v" && version >= 180000
}

// Carries reports whether the stream carries a column: the one that the
// publication makes, or, when it does not carry the table (yet), the one
// walstream would make; what is not mapped then would be left out of the remedy,
// too. Generated columns need a publication that asks for them.
func (t *TableInfo) Carries(c TableColumn, p PublicationInfo, version int) bool {
	switch {
	case !c.publishable(version):
		return false
	case !p.Exists || !t.Published:
		return true
	case t.ColumnList:
		return c.Listed
	}
	return c.Generated == "" || p.GeneratedColumns
}

// Layout is the table as the stream will describe it.
func (t *TableInfo) Layout(p PublicationInfo, version int) *decode.Relation {
	r := &decode.Relation{ID: t.OID, Namespace: t.Schema, Name: t.Name}
	for _, c := range t.Columns {
		if t.Carries(c, p, version) {
			r.Columns = append(r.Columns, decode.Column{Name: c.Name, TypeOID: c.TypeOID, Base: c.Base, TypeName: c.TypeName})
		}
	}
	return r
}

// The catalogues are read as they stand: pg_publication_tables and
// pg_partition_tree lock the tables they tell of, and would wait behind a lock
// on the outbox.
const tableQuery = `
SELECT c.oid, c.relkind::text, c.relpersistence::text, pg_get_userbyid(c.relowner),
       pg_has_role(c.relowner, 'USAGE'),
       pr.oid IS NOT NULL OR pn.oid IS NOT NULL OR coalesce(p.puballtables, false),
       coalesce(pr.prattrs IS NOT NULL, false), coalesce(pr.prqual IS NOT NULL, false)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication p ON p.pubname = $3
LEFT JOIN pg_publication_rel pr ON pr.prpubid = p.oid AND pr.prrelid = c.oid
LEFT JOIN pg_publication_namespace pn ON pn.pnpubid = p.oid AND pn.pnnspid = n.oid
WHERE n.nspname = $1 AND c.relname = $2`

const columnQuery = `
SELECT a.attname, a.atttypid, a.attnotnull, a.attgenerated::text,
       coalesce(a.attnum = ANY (pr.prattrs::int2[]), false)
FROM pg_attribute a
LEFT JOIN pg_publication p ON p.pubname = $2
LEFT JOIN pg_publication_rel pr ON pr.prpubid = p.oid AND pr.prrelid = a.attrelid
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

// typeQuery follows domains, which may be made of domains, to the type beneath.
const typeQuery = `
WITH RECURSIVE beneath AS (
  SELECT oid AS column_type, oid, typname, typbasetype FROM pg_type WHERE oid = ANY ($1)
  UNION ALL SELECT d.column_type, t.oid, t.typname, t.typbasetype FROM pg_type t JOIN beneath d ON t.oid = d.typbasetype)
SELECT column_type, oid, typname FROM beneath WHERE typbasetype = 0`

const childrenQuery = `
WITH RECURSIVE tree AS (
  SELECT inhrelid, inhparent FROM pg_inherits WHERE inhparent = $1
  UNION SELECT i.inhrelid, i.inhparent FROM pg_inherits i JOIN tree ON i.inhparent = tree.inhrelid)
SELECT n.nspname, c.relname, format('%I.%I', pn.nspname, p.relname), c.relkind::text, c.relpersistence::text
FROM tree JOIN pg_class c ON c.oid = tree.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = tree.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE c.relkind = 'f' OR c.relpersistence <> 'p' OR NOT c.relispartition ORDER BY 1, 2 LIMIT 5`

// LookupTable reads a table, and what a publication says about it; a table or
// publication that is not there is no error.
func LookupTable(ctx context.Context, conn *pgx.Conn, schema, name, publication string) (TableInfo, error) {
	t := TableInfo{Exists: true, Schema: schema, Name: name}
	err := conn.QueryRow(ctx, tableQuery, schema, name, publication).Scan(&t.OID, &t.Kind, &t.Persistence, &t.Owner,
		&t.OwnedByUs, &t.Published, &t.ColumnList, &t.RowFilter)
	if errors.Is(err, pgx.ErrNoRows) {
		return TableInfo{Schema: schema, Name: name}, nil
	}
	if err != nil {
		return TableInfo{}, fmt.Errorf("look up table %s.%s: %w", schema, name, classify(err))
	}
	rows, err := conn.Query(ctx, columnQuery, t.OID, publication)
	if err != nil {
		return TableInfo{}, fmt.Errorf("look up the columns of %s.%s: %w", schema, name, classify(err))
	}
	t.Columns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c TableColumn, err error) {
		err = row.Scan(&c.Name, &c.TypeOID, &c.NotNull, &c.Generated, &c.Listed)
		c.Base = c.TypeOID
		return c, err
	})
	if err == nil {
		err = lookupTypes(ctx, conn, t.Columns)
	}
	if err != nil {
		return TableInfo{}, fmt.Errorf("look up the columns of %s.%s: %w", schema, name, classify(err))
	}
	if rows, err = conn.Query(ctx, childrenQuery, t.OID); err == nil {
		t.Children, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c TableChild, err error) {
			err = row.Scan(&c.Schema, &c.Name, &c.Parent, &c.Kind, &c.Persistence)
			return c, err
		})
	}
	if err != nil {
		return TableInfo{}, fmt.Errorf("look up the partitions of %s.%s: %w", schema, name, classify(err))
	}
	return t, nil
}

// lookupTypes finds out what the types are that were made in this database.
func lookupTypes(ctx context.Context, conn *pgx.Conn, columns []TableColumn) error {
	const firstUserOID = 16384 // https://github.com/postgres/postgres/blob/master/src/include/access/transam.h
	var made []uint32
	for _, c := range columns {
		if c.TypeOID >= firstUserOID {
			made = append(made, c.TypeOID)
		}
	}
	if len(made) == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, typeQuery, made)
	if err != nil {
		return err
	}
	var column, base uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&column, &base, &name}, func() error {
		for i := range columns {
			if columns[i].TypeOID == column {
				columns[i].Base, columns[i].TypeName = base, name
			}
		}
		return nil
	})
	return err
}

// Layouts returns the named tables as the stream will describe them, for
// outbox.Mapping.Resolve. A table that is not there is left out.
func Layouts(ctx context.Context, conn *pgx.Conn, publication string, tables []PublishedTable) ([]*decode.Relation, error) {
	version, err := ServerVersion(ctx, conn)
	if err != nil {
		return nil, err
	}
	p, err := LookupPublication(ctx, conn, publication)
	if err != nil {
		return nil, err
	}
	var layouts []*decode.Relation
	for _, named := range tables {
		t, err := LookupTable(ctx, conn, named.Schema, named.Name, publication)
		if err != nil {
			return nil, err
		}
		if t.Exists {
			layouts = append(layouts, t.Layout(p, version))
		}
	}
	return layouts, nil
}

// ServerVersion is server_version_num: 150019 is 15.19.
func ServerVersion(ctx context.Context, conn *pgx.Conn) (int, error) {
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return 0, fmt.Errorf("read the server's version: %w", classify(err))
	}
	return version, nil
}
