package outbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

// TestC41HeadersOfEveryForm: what PostgreSQL prints of each form that can hold
// headers is read, and what cannot hold any is refused at the start.
func TestC41HeadersOfEveryForm(t *testing.T) {
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		exec(t, conn, `CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('ok');
			CREATE DOMAIN stored AS hstore; CREATE DOMAIN stored_again AS stored; CREATE DOMAIN doc AS jsonb; CREATE DOMAIN pairs AS text[]`)
		const object, pairs, stored = `'{"a b": "1 \\ \" 2", "n": null}'`, `ARRAY['a b', E'1 \\ " 2', 'n', NULL]`, `hstore(` + `ARRAY['a b', E'1 \\ " 2', 'n', NULL])`
		for _, c := range []struct{ sqlType, value, refused string }{
			{"jsonb", object, ""},
			{"json", object, ""},
			{"text", object, ""},
			{"citext", object, ""},
			{"doc", object, ""},
			{"hstore", stored, ""},
			{"stored", stored, ""},
			{"stored_again", stored, ""},
			{"text[]", pairs, ""},
			{"varchar[]", pairs, ""},
			{"pairs", pairs, ""},
			{"text[]", `ARRAY[['a b', E'1 \\ " 2'], ['n', NULL]]`, ""},
			{"text[]", `'[5:8]={a b,"1 \\ \" 2",n,NULL}'`, ""},
			{"mood", "", "not from mood"},
			{"int", "", "not from int4"},
			{"uuid[]", "", "not from _uuid"},
			{"mood[]", "", "not from _mood"},
		} {
			t.Run(c.sqlType+c.value, func(t *testing.T) {
				exec(t, conn, fmt.Sprintf(`CREATE TABLE outbox (id bigserial, topic text, key text, payload text, headers %s)`, c.sqlType))
				defer exec(t, conn, `DROP TABLE outbox; DROP PUBLICATION IF EXISTS bank_outbox_pub`)
				config := outbox.MappingConfig{Schema: "public", Table: "outbox"}
				if c.refused != "" {
					mapping, err := outbox.NewMapping([]outbox.MappingConfig{config})
					if err != nil {
						t.Fatal(err)
					}
					layouts, err := replication.Layouts(t.Context(), conn, "none", []replication.PublishedTable{{Schema: "public", Name: "outbox"}})
					if err != nil {
						t.Fatal(err)
					}
					if err := mapping.Resolve(layouts...); err == nil || !strings.Contains(err.Error(), c.refused) ||
						!strings.Contains(err.Error(), `outbox public.outbox, column "headers" (headers-column): `) {
						t.Errorf("got %v", err)
					}
					return
				}
				s := setUp(t, conn, config)
				exec(t, conn, `INSERT INTO outbox (topic, key, payload, headers) VALUES ('t', 'k', 'v', `+c.value+`), ('t', 'k', 'v', NULL)`)
				for binary := range map[bool]bool{false: true, s.mapping.BinaryOK(): true} {
					events := s.mustEvents(binary)
					if len(events) != 2 || len(events[1].Headers) != 3 || len(events[0].Headers) != 5 {
						t.Fatalf("events %+v", events)
					}
					got := map[string]string{}
					for _, h := range events[0].Headers[3:] {
						got[h.Key] = fmt.Sprintf("%q %v", h.Value, h.Value == nil)
					}
					if got["a b"] != `"1 \\ \" 2" false` || got["n"] != `"" true` {
						t.Errorf("headers %v", got)
					}
				}
			})
		}
	})
}

// TestEveryTableIsNamed: the faults of all tables are reported together.
func TestEveryTableIsNamed(t *testing.T) {
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		exec(t, conn, `CREATE SCHEMA a; CREATE SCHEMA b; CREATE TABLE a.outbox (id bigserial, topic text); CREATE TABLE b.outbox (id uuid, payload text, shard text)`)
		mapping, err := outbox.NewMapping([]outbox.MappingConfig{
			{Schema: "a", Table: "outbox", Preset: "bank"},
			{Schema: "b", Table: "outbox", Preset: "debezium", PartitionColumn: "shard", EnvelopeColumns: []string{"region"}},
			{Schema: "c", Table: "outbox"},
		})
		if err != nil {
			t.Fatal(err)
		}
		var tables []replication.PublishedTable
		for _, need := range mapping.Tables() {
			tables = append(tables, replication.PublishedTable(need))
		}
		layouts, err := replication.Layouts(t.Context(), conn, "none", tables)
		if err != nil {
			t.Fatal(err)
		}
		err = mapping.Resolve(layouts...)
		if err == nil {
			t.Fatal("nothing was found")
		}
		for _, want := range []string{
			`outbox a.outbox, column "key" (key-column)`, `outbox a.outbox, column "payload" (value-column)`, `outbox a.outbox, column "aggregate_id" (header-columns)`,
			`outbox b.outbox, column "aggregatetype" (route-column)`, `outbox b.outbox, column "aggregateid" (key-column)`,
			`outbox b.outbox, column "shard" (partition-column): a partition is an integer, not text`, `outbox b.outbox, column "region" (envelope-columns)`,
			`outbox c.outbox: the table is not there`,
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no word of %s in\n%v", want, err)
			}
		}
	})
}
