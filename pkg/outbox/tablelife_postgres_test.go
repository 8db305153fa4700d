package outbox_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/outbox"
)

// TestC36ColumnBecomesADomain: a domain that is made while walstream streams is
// the type beneath it, and so is one that is gone from the catalogue before its
// rows are read.
func TestC36ColumnBecomesADomain(t *testing.T) {
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		for _, c := range []struct{ base, literal, want string }{
			{"bytea", `'\x00ff'`, "\x00\xff"},
			{"inet", `'::1'`, "::1/128"},
			{"bool", `true`, "true"},
			{"char(4)", `'a'`, "a"},
			{"int", `7`, "7"},
		} {
			t.Run(c.base, func(t *testing.T) {
				exec(t, conn, `CREATE TABLE outbox (id bigserial, k text, v text)`)
				defer exec(t, conn, `DROP TABLE outbox; DROP PUBLICATION bank_outbox_pub`)
				s := setUp(t, conn, outbox.MappingConfig{Schema: "public", Table: "outbox", Topic: "t", KeyColumn: "k", ValueColumn: "v"})
				exec(t, conn, `ALTER PUBLICATION bank_outbox_pub SET TABLE outbox; CREATE DOMAIN inner_d AS `+c.base+`; CREATE DOMAIN d AS inner_d;
					ALTER TABLE outbox ALTER k TYPE d USING NULL, ALTER v TYPE d USING NULL; INSERT INTO outbox (k, v) VALUES (`+c.literal+`, `+c.literal+`)`)
				check := func(when string) {
					t.Helper()
					events := s.mustEvents(false)
					if len(events) != 1 || !bytes.Equal(events[0].Key, []byte(c.want)) || !bytes.Equal(events[0].Value, []byte(c.want)) {
						t.Errorf("%s: %+v, want one with key and value %q", when, events, c.want)
					}
				}
				check("in the session that saw no domain")
				exec(t, conn, `ALTER TABLE outbox ALTER k TYPE text, ALTER v TYPE text; DROP DOMAIN d; DROP DOMAIN inner_d`)
				s.resolve()
				check("when the domain is gone")
			})
		}
	})
}
