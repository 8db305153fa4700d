package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// stream is a database with a slot, read by plain SQL.
type stream struct {
	t       *testing.T
	conn    *pgx.Conn
	slot    string
	mapping *outbox.Mapping
	spec    replication.PublicationSpec
}

func onEachMajor(t *testing.T, test func(t *testing.T, conn *pgx.Conn)) {
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			dsn := testenv.SharedPostgres(t, major).CreateDatabase(t)
			test(t, connect(t, dsn))
		})
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range replication.SessionSettings() {
		cfg.RuntimeParams[name] = value
	}
	cfg.AfterConnect = replication.NewerSettings
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// setUp does what walstream's start does: resolve, publication, slot.
func setUp(t *testing.T, conn *pgx.Conn, configs ...outbox.MappingConfig) *stream {
	t.Helper()
	ctx := t.Context()
	mapping, err := outbox.NewMapping(configs)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, conn: conn, mapping: mapping, slot: "s_" + conn.Config().Database[len(conn.Config().Database)-10:]}
	s.spec = replication.PublicationSpec{Name: "bank_outbox_pub"}
	s.resolve()
	if _, err := replication.EnsurePublication(ctx, conn, s.spec); err != nil {
		t.Fatal(err)
	}
	if found := replication.Refused(replication.Preflight(ctx, conn, replication.Spec{Slot: s.slot, Publication: s.spec, ApplicationName: "a"})); found != nil {
		t.Fatal(found)
	}
	if existing, err := replication.LookupSlot(ctx, conn, s.slot); err != nil {
		t.Fatal(err)
	} else if existing.Exists { // from here on
		exec(t, conn, `SELECT pg_replication_slot_advance('`+s.slot+`', pg_current_wal_lsn())`)
	} else if _, err := replication.CreateSlot(ctx, conn, s.slot, false, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stream) resolve() {
	s.t.Helper()
	s.spec.Tables = nil
	for _, need := range s.mapping.Tables() {
		s.spec.Tables = append(s.spec.Tables, replication.PublishedTable(need))
	}
	layouts, err := replication.Layouts(s.t.Context(), s.conn, s.spec.Name, s.spec.Tables)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.mapping.Resolve(layouts...); err != nil {
		s.t.Fatal(err)
	}
	s.spec.Tables = nil
	for _, need := range s.mapping.Tables() {
		s.spec.Tables = append(s.spec.Tables, replication.PublishedTable(need))
	}
}

// events maps everything the slot holds, without moving it. The first error ends
// it, as it ends a session.
func (s *stream) events(binary bool) (events []outbox.Event, err error) {
	s.t.Helper()
	rows, queryErr := s.conn.Query(s.t.Context(), fmt.Sprintf(`SELECT data FROM pg_logical_slot_peek_binary_changes('%s', NULL, NULL,
		'proto_version', '1', 'publication_names', '%s', 'binary', '%v')`, s.slot, s.spec.Name, binary))
	if queryErr != nil {
		s.t.Fatal(queryErr)
	}
	messages, queryErr := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if queryErr != nil {
		s.t.Fatal(queryErr)
	}
	assembler := decode.NewAssembler()
	for _, message := range messages {
		step, stepErr := assembler.Next(1, message)
		if stepErr != nil {
			s.t.Fatal(stepErr)
		}
		if step != decode.StepRow {
			continue
		}
		var e outbox.Event
		ok, err := s.mapping.Map(&assembler.Row, &e)
		if err != nil {
			return events, err
		}
		if !ok {
			continue
		}
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		for i := range e.Headers {
			e.Headers[i].Value = bytes.Clone(e.Headers[i].Value)
		}
		events = append(events, e)
	}
	return events, nil
}

func (s *stream) mustEvents(binary bool) []outbox.Event {
	s.t.Helper()
	events, err := s.events(binary)
	if err != nil {
		s.t.Fatal(err)
	}
	return events
}

// TestC38C40C41TextIsWhatSQLSays: whatever a column's type, key, header and value
// are col::text of the session, in both formats of the stream.
func TestC38C40C41TextIsWhatSQLSays(t *testing.T) {
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		exec(t, conn, `CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN digits AS int; CREATE DOMAIN doc AS jsonb;
			CREATE TABLE ok (id bigserial PRIMARY KEY, k text)`)
		for _, c := range []struct{ sqlType, literals string }{
			{"text", `('a'), (''), (NULL), (E'\u00e9\u20ac\n')`},
			{"varchar(20)", `('a b ')`},
			{"bytea", `('\x00ff'), (''), (NULL), ('abc')`},
			{"uuid", `('0F8FAD5B-D9CB-469F-A165-70867728950E')`},
			{"smallint", `(-32768), (0)`},
			{"int", `(-2147483648), (7)`},
			{"bigint", `(-9223372036854775808), (9223372036854775807)`},
			{"bool", `(true), (false), (NULL)`},
			{"json", `('{"n":12345678901234567890.0001,  "b":9007199254740993,"f":1.0,"a":1,"a":2,"s":"<>&\u2028"}'), ('null'), ('{}')`},
			{"jsonb", `('{"n":12345678901234567890.0001,"b":9007199254740993,"f":1.0,"s":"<>&\u2028"}'), ('null'), ('{}'), ('"x"'), (NULL)`},
			{"mood", `('ok')`},
			{"digits", `(5)`},
			{"doc", `('{"a": 1}')`},
			{"uuid[]", `('{0f8fad5b-d9cb-469f-a165-70867728950e,NULL}')`},
			{"text[]", `(ARRAY['a', NULL, 'b "c"', ''])`},
			{"numeric", `(1.50), ('NaN')`},
			{"float8", `(0.1::float8 + 0.2), ('infinity')`},
			{"timestamptz", `('2026-03-04 05:06:07.5+02'), ('infinity')`},
			{"timestamp", `('2026-03-04 05:06:07')`},
			{"date", `('2026-03-04')`},
			{"interval", `('1 year -2 days 03:04:05')`},
		} {
			t.Run(c.sqlType, func(t *testing.T) {
				exec(t, conn, fmt.Sprintf(`CREATE TABLE bank_outbox (seq bigserial, v %s)`, c.sqlType))
				defer exec(t, conn, `DROP TABLE bank_outbox; DROP PUBLICATION bank_outbox_pub`)
				s := setUp(t, conn, outbox.MappingConfig{
					Schema: "public", Table: "bank_outbox", Topic: "t", KeyColumn: "v", ValueColumn: "v", IDColumn: "seq", HeaderColumns: []string{"h=v"},
				})
				exec(t, conn, `INSERT INTO bank_outbox (v) VALUES `+c.literals)
				text := "v::text"
				if c.sqlType == "bytea" {
					text = "v"
				}
				rows, err := conn.Query(t.Context(), `SELECT `+text+` FROM bank_outbox ORDER BY seq`)
				if err != nil {
					t.Fatal(err)
				}
				want, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]byte, error) { return bytes.Clone(row.RawValues()[0]), nil })
				if err != nil {
					t.Fatal(err)
				}
				formats := []bool{false}
				if s.mapping.BinaryOK() {
					formats = append(formats, true)
				}
				for _, binary := range formats {
					events := s.mustEvents(binary)
					if len(events) != len(want) {
						t.Fatalf("%d events of %d rows", len(events), len(want))
					}
					for i, e := range events {
						for part, got := range map[string][]byte{"key": e.Key, "value": e.Value, "header": e.Headers[3].Value} {
							if !bytes.Equal(got, want[i]) || (got == nil) != (want[i] == nil) {
								t.Errorf("binary %v, row %d, %s: got %q, want %q", binary, i+1, part, got, want[i])
							}
						}
					}
				}
			})
		}
	})
}

// TestBinaryOnlyWhenExact: a type that needs the text format is not asked for in
// binary, and what BinaryOK allows is exactly what Map can read.
func TestBinaryOnlyWhenExact(t *testing.T) {
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		exec(t, conn, `CREATE DOMAIN digits AS int; CREATE TABLE outbox (id bigserial, key digits, topic text, payload bytea)`)
		s := setUp(t, conn, outbox.MappingConfig{Schema: "public", Table: "outbox"})
		if s.mapping.BinaryOK() {
			t.Error("a domain was taken for a type whose binary format we know")
		}
		exec(t, conn, `INSERT INTO outbox (key, topic, payload) VALUES (5, 't', '\x00')`)
		if e := s.mustEvents(false)[0]; string(e.Key) != "5" {
			t.Errorf("key %q", e.Key)
		}
		if _, err := s.events(true); err == nil || !strings.Contains(err.Error(), "text format") {
			t.Errorf("in binary: %v", err)
		}
	})
}

// TestC36AlteredWhileStreaming: each row is read by the layout sent before it.
func TestC36AlteredWhileStreaming(t *testing.T) {
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		exec(t, conn, `CREATE TABLE outbox (id bigserial, gone int, aggregate_id text, topic text, payload text)`)
		s := setUp(t, conn, outbox.MappingConfig{Schema: "public", Table: "outbox"})
		const insert = `INSERT INTO outbox (aggregate_id, topic, payload) VALUES ('a', 't', '{"n": 1}');`
		for _, refused := range []string{`ALTER payload TYPE jsonb USING payload::jsonb`, `DROP payload`} {
			if _, err := conn.Exec(t.Context(), `ALTER TABLE outbox `+refused); err == nil {
				t.Errorf("the server let somebody %s while the publication lists it", refused)
			}
		}
		exec(t, conn, insert+`ALTER TABLE outbox ADD extra int DEFAULT 5;`+insert+`ALTER TABLE outbox DROP gone;`+insert+
			`BEGIN;`+insert+`ALTER PUBLICATION bank_outbox_pub SET TABLE outbox;
				ALTER TABLE outbox ALTER payload TYPE jsonb USING payload::jsonb;
				ALTER PUBLICATION bank_outbox_pub SET TABLE outbox (id, aggregate_id, topic, payload);`+insert+`COMMIT;`)
		s.resolve()
		for _, binary := range []bool{false, true} {
			for i, e := range s.mustEvents(binary) {
				if e.Topic != "t" || string(e.Key) != "a" || string(e.Value) != `{"n": 1}` || e.RowID != fmt.Sprint(i+1) {
					t.Errorf("binary %v, row %d: %+v", binary, i+1, e)
				}
			}
		}

		exec(t, conn, `ALTER TABLE outbox RENAME payload TO body; INSERT INTO outbox (aggregate_id, topic, body) VALUES ('a', 't', '{}')`)
		events, err := s.events(false)
		if len(events) != 5 || err == nil || !strings.Contains(err.Error(), `public.outbox, column "payload"`) {
			t.Fatalf("%d events, then %v", len(events), err)
		}
		// The column restored, the rows written meanwhile still carry the other
		// name: the setting reads them.
		exec(t, conn, `ALTER TABLE outbox RENAME body TO payload;`+insert)
		if events, err = s.events(false); len(events) != 5 || err == nil {
			t.Errorf("%d events, then %v", len(events), err)
		}
	})
}

// TestPublicationSQL: the file's publication is the one that walstream makes, the
// file may be run again, its role may do what walstream does and no more.
func TestPublicationSQL(t *testing.T) {
	script, err := os.ReadFile("../../sql/publication.sql")
	if err != nil {
		t.Fatal(err)
	}
	onEachMajor(t, func(t *testing.T, conn *pgx.Conn) {
		ctx := t.Context()
		var had bool
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'walstream')`).Scan(&had); err != nil {
			t.Fatal(err)
		}
		describe := func() (all string) {
			t.Helper()
			err := conn.QueryRow(ctx, `SELECT (SELECT string_agg(to_jsonb(t)::text, ' ' ORDER BY tablename) FROM pg_publication_tables t) ||
				(SELECT string_agg((to_jsonb(p) - 'oid' - 'pubowner')::text, ' ') FROM pg_publication p) ||
				(SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull, ',' ORDER BY attnum) FROM pg_attribute
				 WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND NOT attisdropped)`).Scan(&all)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		exec(t, conn, string(script))
		byHand := describe()
		exec(t, conn, string(script))
		if again := describe(); again != byHand {
			t.Errorf("a second run made\n%s\nof\n%s", again, byHand)
		}
		if strings.Contains(byHand, "created_at") == false || strings.Contains(strings.SplitN(byHand, "]", 2)[0], "created_at") {
			t.Errorf("created_at is of the table, and not published: %s", byHand)
		}

		exec(t, conn, `DROP PUBLICATION bank_outbox_pub`)
		s := setUp(t, conn, outbox.MappingConfig{Schema: "public", Table: "outbox"})
		if ours := describe(); ours != byHand {
			t.Errorf("walstream makes\n%s\nthe file\n%s", ours, byHand)
		}

		var rights replication.Rights
		role := connectAs(t, conn.Config())
		if rights, err = replication.LookupRights(ctx, role); err != nil || !rights.Replication || !rights.ReadAllStats || rights.Superuser || rights.CreateDatabase {
			t.Errorf("the role's rights: %+v, %v", rights, err)
		}
		for _, f := range replication.Preflight(ctx, role, replication.Spec{Slot: s.slot, Publication: s.spec, ApplicationName: "a"}) {
			if f.Status != replication.StatusOK && f.Name != "fsync" {
				t.Errorf("preflight of the role: %+v", f)
			}
		}
		if _, err := role.Exec(ctx, `SELECT FROM outbox`); err == nil {
			t.Error("the role may read the table, which it need not")
		}
		exec(t, conn, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', 'acc-7', 'deposited', '{"cents":500}')`)
		if e := s.mustEvents(true); len(e) != 1 || e[0].Topic != "outbox.event.account" || string(e[0].Key) != "acc-7" || string(e[0].Value) != `{"cents":500}` ||
			!slices.ContainsFunc(e[0].Headers, func(h outbox.Header) bool { return h.Key == "event_type" && string(h.Value) == "deposited" }) {
			t.Errorf("got %+v", e)
		}
		_ = role.Close(ctx)
		if !had {
			exec(t, conn, `DROP OWNED BY walstream; DROP ROLE walstream`)
		}
	})
}

// connectAs opens a session of the role walstream. A test's server knows no
// password of it, so the superuser becomes it.
func connectAs(t *testing.T, cfg *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `SET SESSION AUTHORIZATION walstream`)
	return conn
}
