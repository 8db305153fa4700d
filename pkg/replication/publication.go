package replication

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PublishedTable is a table and the columns of it that the stream must carry.
type PublishedTable struct {
	Schema, Name string
	Columns      []string
	Absent       []string          // done without, but of use where table and stream have them
	Settings     map[string]string // by column: the settings that name it, for messages
}

func (t PublishedTable) String() string { return t.Schema + "." + t.Name }

func (t PublishedTable) quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// PublicationSpec is the publication that walstream wants.
type PublicationSpec struct {
	Name   string
	Tables []PublishedTable
}

// SQL is the statement that makes it: inserts only, so that updates and deletes
// of outbox rows never leave the server; by the root's name, so that partitions
// come and go unseen; with the columns that are mapped.
func (s PublicationSpec) SQL() string {
	tables := make([]string, len(s.Tables))
	for i, t := range s.Tables {
		tables[i] = t.quoted()
		if len(t.Columns) > 0 {
			tables[i] += " (" + quoteAll(t.Columns) + ")"
		}
	}
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		quoteIdentifier(s.Name), strings.Join(tables, ", "))
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quoteIdentifier(name)
	}
	return strings.Join(quoted, ", ")
}

// EnsurePublication makes the publication unless one of that name exists, which
// is left as it is: Preflight says whether it will do.
func EnsurePublication(ctx context.Context, conn *pgx.Conn, spec PublicationSpec) (created bool, err error) {
	existing, err := LookupPublication(ctx, conn, spec.Name)
	if err != nil || existing.Exists {
		return false, err
	}
	_, err = conn.Exec(ctx, spec.SQL())
	switch sqlState(err) {
	case stateDuplicateObject, stateUniqueViolation: // another instance was quicker
		return false, nil
	case stateInsufficientRights:
		right := &RightError{What: "the rights to make publication " + spec.Name, SQL: spec.SQL() + ";", Err: err}
		if f, factsErr := readFacts(ctx, conn, Spec{Publication: spec}); factsErr == nil {
			for _, missing := range f.missingPublicationRights(spec) {
				right.What, right.SQL = missing.What, missing.SQL
				break
			}
		}
		return false, fmt.Errorf("create publication %q: %w", spec.Name, right)
	}
	if err != nil {
		return false, fmt.Errorf("create publication %q: %w", spec.Name, classify(err))
	}
	return true, nil
}

// DropPublication undoes EnsurePublication. One that is gone already is no error.
func DropPublication(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+quoteIdentifier(name)); err != nil {
		return fmt.Errorf("drop publication %q: %w", name, classify(err))
	}
	return nil
}

const (
	stateDuplicateObject = "42710"
	stateUniqueViolation = "23505"
)

// PublicationInfo is a publication as the catalogue has it.
type PublicationInfo struct {
	Exists                           bool
	Name, Owner                      string
	AllTables, ViaRoot               bool
	Insert, Update, Delete, Truncate bool
	GeneratedColumns                 bool // stored ones of tables without a column list (18+)
}

// Asking a column by to_jsonb yields NULL where the server is too old for it.
const publicationQuery = `
SELECT p.pubname, pg_get_userbyid(p.pubowner), p.puballtables, p.pubviaroot,
       p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
       coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)
FROM pg_publication p WHERE p.pubname = $1`

// LookupPublication reads a publication; one that is not there is no error.
func LookupPublication(ctx context.Context, conn *pgx.Conn, name string) (PublicationInfo, error) {
	p := PublicationInfo{Exists: true}
	err := conn.QueryRow(ctx, publicationQuery, name).Scan(&p.Name, &p.Owner, &p.AllTables, &p.ViaRoot,
		&p.Insert, &p.Update, &p.Delete, &p.Truncate, &p.GeneratedColumns)
	if errors.Is(err, pgx.ErrNoRows) {
		return PublicationInfo{Name: name}, nil
	}
	if err != nil {
		return PublicationInfo{}, fmt.Errorf("look up publication %q: %w", name, classify(err))
	}
	return p, nil
}

// ErrPublicationMissing: when a change in the WAL was made, the publication did
// not exist. Decoding looks at the catalogue as of each change, so one that was
// made later does not help.
var ErrPublicationMissing = errors.New("the publication did not exist when changes in the WAL were made")

// rowsQuery lists what decides which rows the stream carries. A publication that
// was dropped and made anew, or a table under the same name, has another OID;
// xmin tells a publication whose operations were switched off and on again. Tables
// are looked up in the catalogue: a name would take USAGE on its schema, which
// streaming does not.
const rowsQuery = `
SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
  SELECT format('publication %s %s %s %s %s', p.oid, p.xmin, p.pubinsert, p.pubviaroot, p.puballtables) AS line
  FROM pg_publication p WHERE p.pubname = $1
  UNION ALL
  SELECT format('table %s %s', r.oid, r.prrelid)
  FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1
  UNION ALL
  SELECT format('schema %s %s', n.oid, n.pnnspid)
  FROM pg_publication_namespace n JOIN pg_publication p ON p.oid = n.pnpubid WHERE p.pubname = $1
  UNION ALL
  SELECT format('name %s %s', t.name, coalesce(c.oid, 0)) FROM unnest($2::text[], $3::text[], $4::text[]) AS t(name, schema, relation)
  LEFT JOIN pg_namespace n ON n.nspname = t.schema LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relation
  UNION ALL
  SELECT format('not in the WAL: %s', p.oid)
  FROM unnest($3::text[], $4::text[]) AS t(schema, relation)
  JOIN pg_namespace n ON n.nspname = t.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relation,
  pg_partition_tree(c.oid) AS part JOIN pg_class p ON p.oid = part.relid
  WHERE p.relpersistence <> 'p' OR p.relkind = 'f'
  UNION ALL
  SELECT format('under a name of its own: %s', i.inhrelid)
  FROM unnest($3::text[], $4::text[]) AS t(schema, relation)
  JOIN pg_namespace n ON n.nspname = t.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relation
  JOIN pg_inherits i ON i.inhparent = c.oid WHERE c.relkind = 'r'
) lines`

// RowsFingerprint names what decides which rows the stream carries, and how they
// are counted within a transaction: the publication, what it publishes, and the
// tables behind the names. When it changes, rows committed about then may not be
// in the stream.
func RowsFingerprint(ctx context.Context, conn *pgx.Conn, spec PublicationSpec) (string, error) {
	var quoted, schemas, names []string
	for _, t := range spec.Tables {
		quoted, schemas, names = append(quoted, t.quoted()), append(schemas, t.Schema), append(names, t.Name)
	}
	var text string
	if err := conn.QueryRow(ctx, rowsQuery, spec.Name, quoted, schemas, names).Scan(&text); err != nil {
		return "", fmt.Errorf("read what publication %q carries: %w", spec.Name, classify(err))
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8]), nil
}
