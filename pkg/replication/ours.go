package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Ownership says whether a publication is one that walstream made for the tables,
// as far as the catalogue can tell.
type Ownership struct {
	Exists bool
	Ours   bool
	Why    string // it is not
}

const carriedQuery = `
SELECT coalesce(string_agg(name, ', ' ORDER BY name), '') FROM (
  SELECT format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1 
    AND NOT EXISTS (SELECT FROM unnest($2::text[], $3::text[]) AS t(schema, relation) WHERE n.nspname = t.schema AND c.relname = t.relation)
  UNION ALL
  SELECT format('all tables of schema %I', n.nspname)
  FROM pg_publication_namespace r JOIN pg_namespace n ON n.oid = r.pnnspid
  JOIN pg_publication p ON p.oid = r.pnpubid WHERE p.pubname = $1) carried`

// OwnPublication looks whether the publication is ours to drop: the session's role
// owns it, and it carries nothing but the tables.
func OwnPublication(ctx context.Context, conn *pgx.Conn, spec PublicationSpec) (o Ownership, err error) {
	p, err := LookupPublication(ctx, conn, spec.Name)
	if err != nil || !p.Exists {
		return o, err
	}
	o.Exists = true
	rights, err := LookupRights(ctx, conn)
	if err != nil {
		return o, err
	}
	var schemas, names []string
	for _, t := range spec.Tables {
		schemas, names = append(schemas, t.Schema), append(names, t.Name)
	}
	var others string
	if err := conn.QueryRow(ctx, carriedQuery, spec.Name, schemas, names).Scan(&others); err != nil {
		return o, fmt.Errorf("look up what publication %q carries: %w", spec.Name, classify(err))
	}
	switch {
	case p.Owner != rights.Role:
		o.Why = "it belongs to " + p.Owner
	case p.AllTables:
		o.Why = "it is for all tables"
	case others != "":
		o.Why = "it carries " + others
	default:
		o.Ours = true
	}
	return o, nil
}
