package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/testenv"
)

// onEachMajor runs a test on the oldest and the newest PostgreSQL, each in a
// database of its own.
func onEachMajor(t *testing.T, test func(t *testing.T, e *env)) {
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			server := testenv.SharedPostgres(t, major)
			e := &env{t: t, server: server, dsn: server.CreateDatabase(t)}
			e.conn = e.connect("")
			test(t, e)
		})
	}
}

// env is a database for one test.
type env struct {
	t      *testing.T
	server *testenv.Postgres
	dsn    string
	conn   *pgx.Conn // superuser
}

// connect opens an ordinary session as walstream would, of the superuser or of
// a role.
func (e *env) connect(role string) *pgx.Conn {
	e.t.Helper()
	cfg, err := pgx.ParseConfig(e.dsn)
	if err != nil {
		e.t.Fatal(err)
	}
	if role != "" {
		cfg.User, cfg.Password = role, role
	}
	for name, value := range SessionSettings() {
		cfg.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(e.t.Context(), cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (e *env) exec(sql string) {
	e.t.Helper()
	if _, err := e.conn.Exec(e.t.Context(), sql); err != nil {
		e.t.Fatalf("%s: %v", sql, err)
	}
}

// role makes a role of the test's own; roles belong to the server, not to the
// database.
func (e *env) role(attributes string) string {
	e.t.Helper()
	name := e.name("r")
	e.exec(fmt.Sprintf(`CREATE ROLE %s LOGIN %s PASSWORD '%s'`, name, attributes, name))
	e.t.Cleanup(func() {
		_, err := e.conn.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %s CASCADE; DROP ROLE %s`, name, name))
		if err != nil {
			e.t.Errorf("drop role %s: %v", name, err)
		}
	})
	return name
}

// name is unique on the server.
func (e *env) name(prefix string) string {
	var database string
	if err := e.conn.QueryRow(e.t.Context(), "SELECT current_database()").Scan(&database); err != nil {
		e.t.Fatal(err)
	}
	names++
	return fmt.Sprintf("%s%d_%s", prefix, names, database[len(database)-10:])
}

var names int

func (e *env) slot(name string, arguments string) {
	e.exec(fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', %s)`, name, arguments))
}

const outboxDDL = `CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text, "Key" text, payload bytea NOT NULL, lease timestamptz)`

var outboxTable = PublishedTable{Schema: "public", Name: "outbox", Columns: []string{"id", "topic", "Key", "payload"}}

func TestEnsurePublication(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.exec(outboxDDL)
		e.exec(`CREATE TABLE "Other" (a int, b int)`)
		spec := PublicationSpec{Name: `my "pub"`, Tables: []PublishedTable{outboxTable, {Schema: "public", Name: "Other"}}}
		created, err := EnsurePublication(ctx, e.conn, spec)
		if err != nil || !created {
			t.Fatalf("created %v, error %v", created, err)
		}
		p, err := LookupPublication(ctx, e.conn, spec.Name)
		if err != nil || !p.Exists || !p.Insert || p.Update || p.Delete || p.Truncate || !p.ViaRoot || p.AllTables {
			t.Fatalf("got %+v, %v", p, err)
		}
		var list string
		if err := e.conn.QueryRow(ctx, `SELECT string_agg(tablename || attnames::text, ' ' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = $1`, spec.Name).Scan(&list); err != nil {
			t.Fatal(err)
		}
		if want := "Other{a,b} outbox{id,topic,Key,payload}"; list != want {
			t.Errorf("published %s, want %s", list, want)
		}

		// One that exists is left as it is.
		e.exec(`ALTER PUBLICATION "my ""pub""" SET (publish = 'update')`)
		if created, err = EnsurePublication(ctx, e.conn, spec); err != nil || created {
			t.Fatalf("a second time: created %v, error %v", created, err)
		}
		if p, _ = LookupPublication(ctx, e.conn, spec.Name); p.Insert || !p.Update {
			t.Errorf("the publication was altered: %+v", p)
		}
		for range 2 {
			if err := DropPublication(ctx, e.conn, spec.Name); err != nil {
				t.Fatal(err)
			}
		}
		if p, err = LookupPublication(ctx, e.conn, spec.Name); err != nil || p.Exists {
			t.Errorf("after the drop: %+v, %v", p, err)
		}
	})
}

// TestC22RightsForThePublication: each missing right is named with its SQL, and
// that SQL is enough.
func TestC22RightsForThePublication(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.exec(outboxDDL)
		role := e.role("")
		conn := e.connect(role)
		spec := PublicationSpec{Name: "p", Tables: []PublishedTable{outboxTable}}

		_, err := EnsurePublication(ctx, conn, spec)
		var right *RightError
		if !errors.Is(err, ErrMissingRight) || !errors.As(err, &right) || !strings.Contains(right.What, "ownership of table public.outbox") {
			t.Fatalf("not the owner: %v", err)
		}
		if !strings.HasPrefix(right.SQL, "CREATE PUBLICATION") {
			t.Errorf("its SQL is %s", right.SQL)
		}

		e.exec(`ALTER TABLE outbox OWNER TO ` + role)
		if _, err = EnsurePublication(ctx, conn, spec); !errors.As(err, &right) || !strings.Contains(right.What, "CREATE on database") {
			t.Fatalf("without CREATE on the database: %v", err)
		}
		e.exec(right.SQL)
		if created, err := EnsurePublication(ctx, conn, spec); err != nil || !created {
			t.Fatalf("with every right: created %v, error %v", created, err)
		}
	})
}

func TestCreateSlot(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		name := e.name("s")
		s, err := LookupSlot(ctx, e.conn, name)
		if err != nil || s.Exists {
			t.Fatalf("before: %+v, %v", s, err)
		}
		lsn, err := CreateSlot(ctx, e.conn, name, false, nil)
		if err != nil || lsn == 0 {
			t.Fatalf("created at %s, error %v", lsn, err)
		}
		if s, err = LookupSlot(ctx, e.conn, name); err != nil {
			t.Fatal(err)
		}
		if !s.Exists || s.Plugin != "pgoutput" || s.Type != "logical" || s.TwoPhase || s.Temporary || s.Active || s.Failover ||
			s.ConfirmedFlush != lsn || s.Restart == 0 || s.WALStatus != "reserved" || s.InvalidationReason != "" {
			t.Errorf("got %+v", s)
		}
		if err := s.Refusal(s.Database); err != nil {
			t.Errorf("our own slot is refused: %v", err)
		}
		if _, err := CreateSlot(ctx, e.conn, name, false, nil); sqlState(err) != stateDuplicateObject {
			t.Errorf("a second one of the name: %v", err)
		}
		if got := setting(t, e.conn, "statement_timeout"); got != "30s" {
			t.Errorf("statement_timeout afterwards is %s", got)
		}
		for range 2 {
			if err := DropSlot(ctx, e.conn, name); err != nil {
				t.Fatal(err)
			}
		}

		_, err = CreateSlot(ctx, e.conn, name, true, nil)
		if e.server.Major < 17 {
			if err == nil || !strings.Contains(err.Error(), "PostgreSQL 17") {
				t.Errorf("a failover slot on PostgreSQL %d: %v", e.server.Major, err)
			}
			return
		}
		if s, _ = LookupSlot(ctx, e.conn, name); err != nil || !s.Failover {
			t.Errorf("a failover slot: %+v, %v", s, err)
		}
	})
}

func TestCreateSlotWithoutTheRight(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		role := e.role("")
		_, err := CreateSlot(t.Context(), e.connect(role), e.name("s"), false, nil)
		var right *RightError
		if !errors.As(err, &right) {
			t.Fatalf("got %v", err)
		}
		e.exec(right.SQL)
		if _, err = CreateSlot(t.Context(), e.connect(role), e.name("s"), false, nil); err != nil {
			t.Errorf("with the right: %v", err)
		}
	})
}

// TestC19SlotCreationWaits for a writing transaction, beyond every limit that is
// set on the role, says for whom, and leaves nothing behind when it is stopped.
func TestC19SlotCreationWaits(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.exec(`CREATE TABLE noise (a int)`)
		writer := e.connect("")
		if _, err := writer.Exec(ctx, `SET application_name = 'nightly-job'; BEGIN; INSERT INTO noise VALUES (1)`); err != nil {
			t.Fatal(err)
		}
		role := e.role("REPLICATION")
		e.exec(fmt.Sprintf(`ALTER ROLE %s SET statement_timeout = '1s'; ALTER ROLE %[1]s SET lock_timeout = '1s';
			ALTER ROLE %[1]s SET idle_in_transaction_session_timeout = '1s'; GRANT pg_read_all_stats TO %[1]s`, role))
		conn, name := e.connect(role), e.name("s")

		// Stopped while it waits.
		waiting := make(chan []Blocker, 100)
		stopped, stop := context.WithCancel(ctx)
		go func() { <-waiting; stop() }()
		_, err := CreateSlot(stopped, conn, name, false, func(b []Blocker) { waiting <- b })
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped: %v", err)
		}
		if s, err := LookupSlot(ctx, conn, name); err != nil || s.Exists {
			t.Fatalf("the stopped creation left %+v, %v", s, err)
		}

		// Waited out.
		committed := make(chan error, 1)
		go func() {
			blockers := <-waiting
			if len(blockers) == 0 || blockers[0].PID != int32(writer.PgConn().PID()) || blockers[0].ApplicationName != "nightly-job" || blockers[0].Since.IsZero() {
				t.Errorf("it waits for %v", blockers)
			}
			_, err := writer.Exec(ctx, "COMMIT")
			committed <- err
		}()
		began := time.Now()
		if _, err := CreateSlot(ctx, conn, name, false, func(b []Blocker) { waiting <- b }); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if err := <-committed; err != nil {
			t.Fatal(err)
		}
	})
}

func TestSlotRefusal(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		refusal := func(name, database string) error {
			s, err := LookupSlot(ctx, e.conn, name)
			if err != nil || !s.Exists {
				t.Fatalf("slot %s: %+v, %v", name, s, err)
			}
			return s.Refusal(database)
		}
		twoPhase, foreign, physical, temporary := e.name("s"), e.name("s"), e.name("s"), e.name("s")
		database := setting(t, e.conn, "") // see setting
		e.slot(twoPhase, `'pgoutput', false, true`)
		e.slot(foreign, `'test_decoding'`)
		e.slot(temporary, `'pgoutput', true`)
		e.exec(fmt.Sprintf(`SELECT pg_create_physical_replication_slot('%s')`, physical))
		t.Cleanup(func() { _ = DropSlot(context.Background(), e.conn, physical) })
		for name, want := range map[string]string{
			twoPhase: "two_phase", foreign: "test_decoding", physical: "physical", temporary: "temporary",
		} {
			err := refusal(name, database)
			var slotErr *SlotError
			if !errors.Is(err, ErrSlotUnusable) || !errors.As(err, &slotErr) || !strings.Contains(slotErr.Reason, want) || slotErr.Remedy == "" {
				t.Errorf("%s: %v", want, err)
			}
		}
		if err := refusal(twoPhase, "elsewhere"); err == nil || !strings.Contains(err.Error(), "belongs to database") {
			t.Errorf("another database: %v", err)
		}
		s, _ := LookupSlot(ctx, e.conn, temporary)
		if !s.Active || s.ActivePID != int32(e.conn.PgConn().PID()) || !strings.Contains(s.Holder(), "since") {
			t.Errorf("the holder of a slot in use: %+v: %s", s, s.Holder())
		}
		lost := SlotInfo{Type: "logical", Plugin: "pgoutput", Database: database, WALStatus: "lost"}
		if err := lost.Refusal(database); !errors.Is(err, ErrSlotLost) {
			t.Errorf("a lost slot: %v", err)
		}
	})
}

// setting is the value of a setting; "" the name of the database.
func setting(t *testing.T, conn *pgx.Conn, name string) (value string) {
	t.Helper()
	query, arguments := "SELECT current_setting($1)", []any{name}
	if name == "" {
		query, arguments = "SELECT current_database()", nil
	}
	if err := conn.QueryRow(t.Context(), query, arguments...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestLayout(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(`CREATE TABLE outbox (id bigserial, gone int, payload jsonb, topic text GENERATED ALWAYS AS ('t' || id) STORED, extra int);
			ALTER TABLE outbox DROP COLUMN gone`)
		layout := func() string {
			t.Helper()
			layouts, err := Layouts(t.Context(), e.conn, "p", []PublishedTable{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "nowhere"}})
			if err != nil || len(layouts) != 1 {
				t.Fatalf("got %v, %v", layouts, err)
			}
			var names []string
			for _, c := range layouts[0].Columns {
				names = append(names, fmt.Sprint(c.Name, c.TypeOID))
			}
			return strings.Join(names, " ")
		}
		generated := " topic25"
		if e.server.Major < 18 {
			generated = ""
		}
		if got, want := layout(), "id20 payload3802"+generated+" extra23"; got != want {
			t.Errorf("without a publication: %s, want %s", got, want)
		}
		e.exec(`CREATE PUBLICATION p FOR TABLE outbox (id, payload)`)
		if got, want := layout(), "id20 payload3802"; got != want {
			t.Errorf("with a column list: %s, want %s", got, want)
		}
		e.exec(`DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE outbox`)
		if got, want := layout(), "id20 payload3802 extra23"; got != want {
			t.Errorf("without a list: %s, want %s", got, want)
		}
		// Not carried by the publication: as if walstream made it, or nothing would
		// be mapped, and the remedy would list a part of the columns.
		for _, publish := range []string{
			`CREATE PUBLICATION p`,
			`CREATE TABLE noise (id int); CREATE PUBLICATION p FOR TABLE noise`,
			`CREATE PUBLICATION p FOR TABLE outbox (id); ALTER TABLE outbox RENAME TO outbox_old;
				CREATE TABLE outbox (LIKE outbox_old INCLUDING GENERATED)`,
		} {
			e.exec(`DROP PUBLICATION p; ` + publish)
			if got, want := layout(), "id20 payload3802"+generated+" extra23"; got != want {
				t.Errorf("not carried by %s: %s, want %s", publish, got, want)
			}
		}
	})
}
