package replication

import (
	"slices"
	"strings"
	"testing"
)

// A remedy lists no column that the table cannot give, and takes none away that the
// publication carries: with a misspelt column, the one that was meant is among those.
func TestRemediesListColumnsThatAreThere(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(outboxDDL + `; ALTER TABLE outbox ADD made text GENERATED ALWAYS AS ('t.' || topic) STORED`)
		columns := []string{"id", "payload", "nocol"}
		if e.server.Major < 18 {
			columns = append(columns, "made")
		}
		spec := e.spec(columns...)
		for _, publication := range []string{
			`WITH (publish = 'insert')`,
			`FOR TABLE outbox (id) WITH (publish = 'insert')`,
			`FOR TABLE outbox (id, payload, topic) WITH (publish = 'insert')`,
			`FOR TABLE outbox (id, topic) WITH (publish = 'insert')`,
			`FOR TABLE outbox (id, topic) WHERE (id > 5) WITH (publish = 'insert')`,
			`FOR TABLE outbox WHERE (id > 5) WITH (publish = 'insert')`,
			`FOR ALL TABLES WITH (publish = 'insert')`,
		} {
			e.exec(`CREATE PUBLICATION p ` + publication)
			before := e.carried()
			for _, f := range Preflight(t.Context(), e.conn, spec) {
				if sql, _, _ := strings.Cut(f.Remedy, "--"); strings.Contains(sql, "PUBLICATION") {
					e.exec(sql)
				}
			}
			after := e.carried()
			for _, column := range append(before, "id", "payload") {
				if !slices.Contains(after, column) {
					t.Errorf("%s: the remedies took %q away", publication, column)
				}
			}
			if got := e.preflight(e.conn, spec); slices.ContainsFunc(got, func(line string) bool {
				return strings.HasPrefix(line, "warn") && !strings.Contains(line, "that nothing maps") || strings.Contains(line, "carry table") || strings.Contains(line, "is mapped: payload")
			}) {
				t.Errorf("%s: still\n%s", publication, strings.Join(got, "\n"))
			}
			e.exec(`DROP PUBLICATION p`)
		}
		// Who makes the publication instead of us is told no other columns either.
		conn := e.connect(e.role("REPLICATION"))
		for _, f := range Preflight(t.Context(), conn, spec) {
			if strings.Contains(f.Remedy, "CREATE PUBLICATION") && strings.Contains(f.Remedy, "nocol") {
				t.Errorf("remedy %s", f.Remedy)
			}
		}
	})
}

// carried are the columns of all tables in publication p.
func (e *env) carried() (columns []string) {
	e.t.Helper()
	if err := e.conn.QueryRow(e.t.Context(), `SELECT coalesce(array_agg(c::text), '{}') FROM pg_publication_tables, unnest(attnames) c WHERE pubname = 'p'`).
		Scan(&columns); err != nil {
		e.t.Fatal(err)
	}
	return columns
}
