package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// goodFacts are those of a server on which everything is set up.
func goodFacts() facts {
	return facts{
		version: 180006, fsync: true, walLevel: "logical", encoding: "UTF8",
		maxSlots: 10, slots: 1, maxSenders: 10, walSenderTimeout: 60000, maxSlotWAL: -1,
		rights:      Rights{Role: "walstream", Replication: true, ReadAllStats: true, Database: "bank"},
		publication: PublicationInfo{Exists: true, Name: "bank_outbox_pub", Insert: true, ViaRoot: true},
		tables: []TableInfo{{
			Exists: true, Schema: "public", Name: "outbox", Kind: "r", Persistence: "p", Owner: "bank", Published: true, ColumnList: true,
			Columns: []TableColumn{{Name: "id", Listed: true}, {Name: "payload", Listed: true}, {Name: "lease"}},
		}},
		slot: SlotInfo{Exists: true, Name: "bank_outbox_slot", Plugin: "pgoutput", Type: "logical", Database: "bank", WALStatus: "reserved"},
	}
}

var bankSpec = Spec{
	Slot: "bank_outbox_slot", ApplicationName: "bank.bank_outbox_slot",
	Publication: PublicationSpec{Name: "bank_outbox_pub", Tables: []PublishedTable{{Schema: "public", Name: "outbox", Columns: []string{"id", "payload"}, Absent: []string{"traceparent", "headers"}, Settings: map[string]string{"id": "id-column, key-column"}}}},
}

// notOK are the findings that are not fine, one to a line, without their remedies.
func notOK(found []Finding) (lines []string) {
	for _, f := range found {
		if f.Status != StatusOK {
			lines = append(lines, fmt.Sprintf("%s %s: %s", f.Status, f.Name, f.Detail))
		}
	}
	return lines
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *facts)
		want   []string // beginnings of the lines of notOK
	}{
		{"all set up", func(*facts) {}, nil},
		{"nothing set up, every right", func(f *facts) {
			f.slot, f.publication, f.rights.CreateDatabase, f.tables[0].OwnedByUs = SlotInfo{}, PublicationInfo{}, true, true
		}, nil},
		{"too old", func(f *facts) { f.version = 140010 }, []string{"fail version: PostgreSQL 14"}},
		{"too new", func(f *facts) { f.version = 190000 }, []string{"warn version: PostgreSQL 19"}},
		{"wal_level", func(f *facts) { f.walLevel = "replica" }, []string{"fail wal_level: it is replica"}},
		{"standby server", func(f *facts) { f.inRecovery = true }, []string{"fail primary"}},
		{"fsync off", func(f *facts) { f.fsync = false }, []string{"warn fsync"}},
		{"SQL_ASCII", func(f *facts) { f.encoding = "SQL_ASCII" }, []string{"warn encoding"}},
		{"synchronous standby", func(f *facts) { f.syncNames = "ANY 1 (*)" }, []string{"fail synchronous_standby_names"}},
		{"other synchronous standby", func(f *facts) { f.syncNames = "replica1" }, nil},
		{"unreadable names", func(f *facts) { f.syncNames = "a b" }, []string{"warn synchronous_standby_names"}},
		{"no slot left, ours is there", func(f *facts) { f.slots = 10 }, nil},
		{"no slot left", func(f *facts) {
			f.slots, f.slot.Exists = 10, false
		}, []string{"fail max_replication_slots: 10 of 10"}},
		{"no sender left", func(f *facts) { f.senders = 10 }, []string{"fail max_wal_senders: 10 of 10"}},
		{"no sender left but the one of the slot", func(f *facts) {
			f.senders, f.slot.Active, f.slot.ApplicationName = 10, true, "bank.bank_outbox_slot"
		}, []string{"warn max_wal_senders: 10 of 10"}},
		{"idle slots are given up", func(f *facts) { f.idleSlotTimeout = 3600 }, []string{"warn idle_replication_slot_timeout"}},
		{"kept WAL is limited", func(f *facts) { f.maxSlotWAL = 1024 }, nil},
		{"no REPLICATION", func(f *facts) { f.rights.Replication = false }, []string{"fail role walstream: the role lacks the REPLICATION attribute"}},
		{"no statistics", func(f *facts) { f.rights.ReadAllStats = false }, []string{"warn role walstream: it is not in pg_read_all_stats"}},
		{"no table", func(f *facts) { f.tables[0] = TableInfo{} }, []string{"fail table public.outbox: it is not in database bank"}},
		{"view", func(f *facts) { f.tables[0].Kind = "v" }, []string{"fail table public.outbox: it is a view"}},
		{"unlogged", func(f *facts) { f.tables[0].Persistence = "u" }, []string{"fail table public.outbox: it is unlogged"}},
		{"temporary", func(f *facts) { f.tables[0].Persistence = "t" }, []string{"fail table public.outbox: it is temporary"}},
		{"column missing", func(f *facts) { f.tables[0].Columns[1].Name = "body" }, []string{`fail table public.outbox: it has no column "payload"`, "warn publication bank_outbox_pub: of public.outbox it carries columns that nothing maps (a mapped one that was renamed?): body"}},
		{"misspelt column", func(f *facts) { f.tables[0].Columns[0].Name = "idd" }, []string{`fail table public.outbox: it has no column "id", which is mapped by id-column, key-column`, "warn publication bank_outbox_pub: of public.outbox it carries columns that nothing maps"}},
		{"generated column", func(f *facts) {
			f.version, f.tables[0].Columns[1].Generated = 170000, "s"
		}, []string{`fail table public.outbox: column "payload" is a generated column`, "fail publication bank_outbox_pub: of public.outbox it does not carry"}},
		{"generated column, 18", func(f *facts) { f.tables[0].Columns[1].Generated = "s" }, nil},
		{"virtual column", func(f *facts) { f.tables[0].Columns[1].Generated = "v" }, []string{`fail table public.outbox: column "payload" is a virtual`, "fail publication bank_outbox_pub: of public.outbox it does not carry"}},
		{"generated column, not listed, 18", func(f *facts) {
			f.tables[0].Columns[1].Generated, f.tables[0].ColumnList = "s", false
		}, []string{"fail publication bank_outbox_pub: of public.outbox it does not carry what is mapped: payload"}},
		{"for all tables", func(f *facts) { f.publication.AllTables = true }, []string{"warn publication bank_outbox_pub: it is for all tables"}},
		{"more tables", func(f *facts) { f.otherTables = []string{"table public.noise"} }, []string{"warn publication bank_outbox_pub: it carries more than the outbox, which walstream drops: table public.noise"}},
		{"no inserts", func(f *facts) { f.publication.Insert = false }, []string{"fail publication bank_outbox_pub: it does not publish inserts"}},
		{"updates too", func(f *facts) { f.publication.Update = true }, []string{"warn publication bank_outbox_pub: it publishes more than inserts"}},
		{"not published", func(f *facts) { f.tables[0].Published = false }, []string{"fail publication bank_outbox_pub: it does not carry table public.outbox"}},
		{"row filter", func(f *facts) { f.tables[0].RowFilter = true }, []string{"fail publication bank_outbox_pub: it leaves rows"}},
		{"column list", func(f *facts) { f.tables[0].Columns[1].Listed = false }, []string{"fail publication bank_outbox_pub: of public.outbox it does not carry what is mapped: payload"}},
		{"a column that would be mapped", func(f *facts) {
			f.tables[0].Columns = append(f.tables[0].Columns, TableColumn{Name: "traceparent"})
		}, []string{"warn publication bank_outbox_pub: of public.outbox it does not carry what would be mapped by default: traceparent"}},
		{"partitioned, by leaf", func(f *facts) {
			f.tables[0].Kind, f.publication.ViaRoot = "p", false
		}, []string{"fail publication bank_outbox_pub: the rows of public.outbox would arrive under the names"}},
		{"not partitioned, by leaf", func(f *facts) { f.publication.ViaRoot = false }, nil},
		{"slot without publication", func(f *facts) { f.publication = PublicationInfo{} }, []string{"fail publication bank_outbox_pub: it is not there, but slot"}},
		{
			"slot of another publication", func(f *facts) { f.publication, f.otherPublications = PublicationInfo{}, []string{"dbz_publication"} },
			[]string{"fail publication bank_outbox_pub: it is not there, but slot"},
		},
		{
			"neither, not the owner", func(f *facts) { f.publication, f.slot = PublicationInfo{}, SlotInfo{} },
			[]string{"fail publication bank_outbox_pub: the role lacks the ownership of table public.outbox, which making a publication of it takes (the owner is bank)"},
		},
		{"neither, no CREATE", func(f *facts) {
			f.publication, f.slot, f.tables[0].OwnedByUs = PublicationInfo{}, SlotInfo{}, true
		}, []string{"fail publication bank_outbox_pub: the role lacks CREATE on database bank"}},
		{"two-phase slot", func(f *facts) { f.slot.TwoPhase = true }, []string{"fail slot bank_outbox_slot: it was made with two_phase"}},
		{"lost slot", func(f *facts) { f.slot.WALStatus = "lost" }, []string{"fail slot bank_outbox_slot: it was invalidated"}},
		{"slot nearly lost", func(f *facts) { f.slot.WALStatus = "unreserved" }, []string{"warn slot bank_outbox_slot: it is so far behind"}},
		{"slot held by a stranger", func(f *facts) { f.slot.Active, f.slot.ApplicationName, f.slot.ActivePID = true, "psql", 42 }, []string{"warn slot bank_outbox_slot: in use by PID 42 (psql)"}},
		{"slot held by an instance of ours", func(f *facts) { f.slot.Active, f.slot.ApplicationName = true, "bank.bank_outbox_slot" }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := goodFacts()
			f.tables[0].Columns = slices.Clone(f.tables[0].Columns)
			c.change(&f)
			found := f.judge(bankSpec)
			got := notOK(found)
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			for _, finding := range found {
				if finding.Detail == "" || finding.Status == StatusFail && finding.Remedy == "" {
					t.Errorf("a finding without detail or remedy: %+v", finding)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	f := goodFacts()
	if err := Refused(f.judge(bankSpec)); err != nil {
		t.Errorf("nothing is wrong, and yet: %v", err)
	}
	f.slot.WALStatus, f.rights.Replication = "lost", false
	err := Refused(f.judge(bankSpec))
	if !errors.Is(err, ErrMissingRight) || !errors.Is(err, ErrSlotLost) || errors.Is(err, ErrSlotUnusable) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "ALTER ROLE \"walstream\" REPLICATION;") {
		t.Errorf("no remedy in %v", err)
	}
}

// A connection that breaks while Preflight looks says nothing against the server:
// walstream had stopped for good with exit code 3.
func TestRefusedIsNotForWhatMayPass(t *testing.T) {
	for _, passing := range []error{
		fmt.Errorf("look up slot: %w", ErrUnreachable), ErrServerStopping,
		&pgconn.PgError{Code: "57014"}, context.Canceled, context.DeadlineExceeded,
	} {
		err := Refused([]Finding{ok("version", ""), {Name: "server", Status: StatusFail, Err: passing}})
		var refused *PreflightError
		if !errors.Is(err, passing) || errors.As(err, &refused) {
			t.Errorf("%v: got %T %v", passing, err, err)
		}
	}
}

// spec of a database's own outbox.
func (e *env) spec(columns ...string) Spec {
	return Spec{
		Slot: e.name("slot"), ApplicationName: "x.y",
		Publication: PublicationSpec{Name: "p", Tables: []PublishedTable{{Schema: "public", Name: "outbox", Columns: columns}}},
	}
}

// preflight returns what is not fine about objects; a test server has its own
// faults, such as fsync off.
func (e *env) preflight(conn *pgx.Conn, spec Spec) []string {
	e.t.Helper()
	return notOK(slices.DeleteFunc(Preflight(e.t.Context(), conn, spec), func(f Finding) bool {
		return !strings.HasPrefix(f.Name, "table ") && !strings.HasPrefix(f.Name, "publication ") && !strings.HasPrefix(f.Name, "slot ") &&
			!strings.HasPrefix(f.Name, "role ")
	}))
}

func (e *env) wantPreflight(conn *pgx.Conn, spec Spec, want ...string) {
	e.t.Helper()
	if got := e.preflight(conn, spec); !slices.EqualFunc(got, want, strings.HasPrefix) {
		e.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// failed are the findings that a start refuses.
func (e *env) failed(spec Spec) []Finding {
	e.t.Helper()
	var refused *PreflightError
	if err := Refused(Preflight(e.t.Context(), e.conn, spec)); err != nil && !errors.As(err, &refused) {
		e.t.Fatal(err)
	}
	if refused == nil {
		return nil
	}
	return refused.Findings
}

// TestPreflightFromNothing follows the remedies until all is well, then sets up.
func TestPreflightFromNothing(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		spec := e.spec("id", "payload")
		conn := e.connect(e.role(""))
		role := conn.Config().User
		e.wantPreflight(conn, spec,
			"fail role "+role+": the role lacks the REPLICATION attribute", "fail table public.outbox: it is not in database", "fail publication p: the role lacks CREATE on database")
		e.exec(outboxDDL)
		for round := 0; ; round++ {
			found := Preflight(ctx, conn, spec)
			var refused *PreflightError
			if !errors.As(Refused(found), &refused) {
				break
			}
			if round == 5 {
				t.Fatalf("the remedies do not help: %v", refused)
			}
			for _, f := range refused.Findings {
				if sql, _, _ := strings.Cut(f.Remedy, "--"); strings.Contains(sql, ";") {
					e.exec(sql)
				}
			}
		}
		e.wantPreflight(conn, spec, "warn role "+role+": it is not in pg_read_all_stats")
		if created, err := EnsurePublication(ctx, conn, spec.Publication); created || err != nil {
			t.Errorf("the owner's publication: created %v, %v", created, err)
		}
		if _, err := CreateSlot(ctx, conn, spec.Slot, false, nil); err != nil {
			t.Fatal(err)
		}
		e.wantPreflight(conn, spec, "warn role "+role+": it is not in pg_read_all_stats")
	})
}

func TestC22ForeignPublications(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(outboxDDL + `; CREATE TABLE noise (id int)`)
		spec := e.spec("id", "payload")
		for _, c := range []struct {
			sql  string
			want []string
		}{
			{`FOR TABLE outbox (id, payload) WITH (publish = 'insert')`, nil},
			{`FOR ALL TABLES WITH (publish = 'insert')`, []string{"warn publication p: it is for all tables"}},
			{`FOR TABLES IN SCHEMA public WITH (publish = 'insert')`, []string{"warn publication p: it carries more than the outbox, which walstream drops: all tables of schema public"}},
			{`FOR TABLE outbox, noise WITH (publish = 'insert')`, []string{"warn publication p: it carries more than the outbox, which walstream drops: table public.noise"}},
			{``, []string{"fail publication p: it does not carry table public.outbox"}},
			{`FOR TABLE outbox (id, payload, topic) WITH (publish = 'insert')`, []string{"warn publication p: of public.outbox it carries columns that nothing maps"}},
			// C26
			{`FOR TABLE outbox (id) WHERE (id > 5) WITH (publish = 'insert')`, []string{"fail publication p: it leaves rows of public.outbox out", "fail publication p: of public.outbox it does not carry what is mapped: payload"}},
			{`FOR TABLE outbox (id, payload) WITH (publish = 'update')`, []string{"fail publication p: it does not publish inserts"}},
			{`FOR TABLE outbox (id, payload)`, []string{"warn publication p: it publishes more than inserts"}},
		} {
			publish := c.sql
			if publish == "" {
				publish = `WITH (publish = 'insert')`
			}
			e.exec(`CREATE PUBLICATION p ` + publish)
			t.Run(publish, func(t *testing.T) {
				(&env{t: t, server: e.server, conn: e.conn}).wantPreflight(e.conn, spec, c.want...)
			})
			// A remedy in SQL leaves nothing to complain of.
			for _, f := range Preflight(t.Context(), e.conn, spec) {
				if f.Status == StatusFail && strings.Contains(f.Remedy, "ALTER PUBLICATION") && len(c.want) == 1 {
					e.exec(f.Remedy)
					if again := e.preflight(e.conn, spec); len(again) > 0 {
						t.Errorf("%s, after %s: %v", publish, f.Remedy, again)
					}
				}
			}
			e.exec(`DROP PUBLICATION p`)
		}
	})
}

func TestC26GeneratedColumn(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(`CREATE TABLE outbox (id bigserial, kind text, topic text GENERATED ALWAYS AS ('t.' || kind) STORED)`)
		spec := e.spec("id", "topic")
		if e.server.Major < 18 {
			e.wantPreflight(e.conn, spec, `fail table public.outbox: column "topic" is a generated column, which reaches the stream from PostgreSQL 18 on`)
			return
		}
		e.wantPreflight(e.conn, spec)
		if _, err := EnsurePublication(t.Context(), e.conn, spec.Publication); err != nil {
			t.Fatal(err)
		}
		e.wantPreflight(e.conn, spec)
		e.exec(`DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert')`)
		e.wantPreflight(e.conn, spec, "fail publication p: of public.outbox it does not carry what is mapped: topic")
		e.exec(`ALTER TABLE outbox DROP COLUMN topic; ALTER TABLE outbox ADD topic text GENERATED ALWAYS AS ('t.' || kind) VIRTUAL`)
		e.wantPreflight(e.conn, spec, `fail table public.outbox: column "topic" is a virtual`, "fail publication p")
	})
}

func TestC27Unlogged(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		ctx := t.Context()
		e.exec(`CREATE UNLOGGED TABLE outbox (id int); CREATE PUBLICATION p FOR TABLES IN SCHEMA public WITH (publish = 'insert')`)
		spec := e.spec("id")
		e.wantPreflight(e.conn, spec, "fail table public.outbox: it is unlogged", "warn publication p: it carries more")

		e.exec(`DROP TABLE outbox; DROP PUBLICATION p; CREATE TABLE outbox (id int) PARTITION BY RANGE (id)`)
		if _, err := EnsurePublication(ctx, e.conn, spec.Publication); err != nil {
			t.Fatal(err)
		}
		e.wantPreflight(e.conn, spec)
		// The server takes an unlogged partition of a partition without a word.
		e.exec(`CREATE TABLE a PARTITION OF outbox FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
			CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (50);
			CREATE UNLOGGED TABLE "A2" PARTITION OF a FOR VALUES FROM (50) TO (100)`)
		e.wantPreflight(e.conn, spec, "fail table public.outbox: public.A2, a part of it, is unlogged")
		remedy := e.failed(spec)[0].Remedy
		if remedy != `ALTER TABLE "public"."A2" SET LOGGED;` {
			t.Fatal(remedy)
		}
		e.exec(remedy)
		e.wantPreflight(e.conn, spec)

		e.exec(`DROP TABLE outbox CASCADE; CREATE TABLE outbox (id int); CREATE TABLE heir () INHERITS (outbox); ALTER PUBLICATION p ADD TABLE outbox (id)`)
		e.wantPreflight(e.conn, spec, "fail table public.outbox: table public.heir inherits from it", "warn publication p: it carries more than the outbox, which walstream drops: table public.heir")
		e.exec(`DROP TABLE outbox CASCADE`)
		e.wantPreflight(e.conn, spec, "fail table public.outbox: it is not in database")
	})
}

// What takes rows of a table away from the stream while it runs changes the
// fingerprint: nothing else would tell, since such rows never arrive.
func TestRowsThatNeverArriveAreNoticed(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		spec := e.spec("id").Publication
		for _, c := range []struct{ name, table, change string }{
			{"a table inherits", `CREATE TABLE outbox (id int)`, `CREATE TABLE heir () INHERITS (outbox)`},
			{
				"a foreign partition", `CREATE TABLE outbox (id int) PARTITION BY RANGE (id)`,
				`CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
				CREATE FOREIGN TABLE far PARTITION OF outbox FOR VALUES FROM (0) TO (9) SERVER s`,
			},
			{
				"an unlogged partition", `CREATE TABLE outbox (id int) PARTITION BY RANGE (id)`,
				`CREATE UNLOGGED TABLE quick PARTITION OF outbox FOR VALUES FROM (0) TO (9)`,
			},
		} {
			e.exec(c.table)
			if _, err := EnsurePublication(t.Context(), e.conn, spec); err != nil {
				t.Fatal(err)
			}
			before, err := RowsFingerprint(t.Context(), e.conn, spec)
			if err != nil {
				t.Fatal(err)
			}
			e.exec(c.change)
			if after, err := RowsFingerprint(t.Context(), e.conn, spec); err != nil || after == before {
				t.Errorf("%s: the fingerprint stays %s, error %v", c.name, after, err)
			}
			e.exec(`DROP TABLE outbox CASCADE; DROP PUBLICATION p`)
		}
	})
}

// The remedy for a table that inherits is one that helps.
func TestInheritanceRemedy(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		spec := e.spec("id")
		e.exec(`CREATE TABLE outbox (id int); CREATE TABLE "He ir" () INHERITS (outbox)`)
		found := e.failed(spec)
		if len(found) != 1 {
			t.Fatal(found)
		}
		sql, _, _ := strings.Cut(found[0].Remedy, " and where")
		e.exec(sql)
		if found = e.failed(spec); len(found) > 0 {
			t.Errorf("after %s: %v", sql, found)
		}
	})
}

func TestC28PartitionedWithoutRoot(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(`CREATE TABLE outbox (id int) PARTITION BY RANGE (id); CREATE TABLE a PARTITION OF outbox DEFAULT;
			CREATE PUBLICATION p FOR TABLE outbox WITH (publish = 'insert')`)
		spec := e.spec("id")
		e.wantPreflight(e.conn, spec, "fail publication p: the rows of public.outbox would arrive under the names of its partitions")
		e.exec(`ALTER PUBLICATION p SET (publish_via_partition_root = true)`)
		e.wantPreflight(e.conn, spec)
	})
}

// TestC24SlotWithoutPublication is explained before anything is made.
func TestC24SlotWithoutPublication(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(outboxDDL)
		spec := e.spec("id", "payload")
		e.slot(spec.Slot, `'pgoutput'`)
		e.wantPreflight(e.conn, spec, "fail publication p: it is not there, but slot "+spec.Slot+" is")
	})
}

// TestPreflightDoesNotWait behind a lock on the outbox (C19).
func TestPreflightDoesNotWait(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		e.exec(`CREATE TABLE outbox (id int) PARTITION BY RANGE (id); CREATE TABLE a PARTITION OF outbox DEFAULT; CREATE TABLE noise (id int);
			CREATE PUBLICATION p FOR TABLE outbox, noise WITH (publish = 'insert', publish_via_partition_root = true)`)
		spec := e.spec("id")
		locker := e.connect("")
		if _, err := locker.Exec(t.Context(), `BEGIN; LOCK TABLE outbox, a, noise IN ACCESS EXCLUSIVE MODE`); err != nil {
			t.Fatal(err)
		}
		e.exec(`SET lock_timeout = '100ms'`)
		e.wantPreflight(e.conn, spec, "warn publication p: it carries more than the outbox, which walstream drops: table public.noise")
	})
}

// TestC38SessionSettings win over those of role and database, on both kinds of
// connection.
func TestC38SessionSettings(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		role := e.role("REPLICATION")
		e.exec(fmt.Sprintf(`ALTER ROLE %s SET datestyle = 'German'; ALTER ROLE %[1]s SET intervalstyle = 'sql_standard';
			ALTER ROLE %[1]s SET timezone = 'Asia/Kolkata'; ALTER ROLE %[1]s SET bytea_output = 'escape'; ALTER ROLE %[1]s SET extra_float_digits = -3;
			ALTER ROLE %[1]s SET default_transaction_read_only = on; ALTER ROLE %[1]s SET idle_session_timeout = 1`, role))
		if e.server.Major >= 17 {
			e.exec(`ALTER ROLE ` + role + ` SET transaction_timeout = 5`)
		}
		cfg, err := pgx.ParseConfig(e.dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.User, cfg.Password, cfg.AfterConnect = role, role, NewerSettings
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // all a walsender speaks
		for name, value := range SessionSettings() {
			cfg.RuntimeParams[name] = value
		}
		for _, replication := range []string{"false", "database"} {
			cfg.RuntimeParams["replication"] = replication
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			var got string
			err = conn.QueryRow(t.Context(), `SELECT concat_ws(' ', '2026-12-31 12:00:00+00'::timestamptz, '1 day 02:00'::interval, '\xff00'::bytea, 0.1::float8 + 0.2,
				current_setting('transaction_read_only'), current_setting('transaction_timeout', true))`).Scan(&got)
			want := `2026-12-31 12:00:00+00 1 day 02:00:00 \xff00 0.30000000000000004 off`
			if e.server.Major >= 17 {
				want += " 0"
			}
			if err != nil || strings.TrimSpace(got) != want {
				t.Errorf("replication=%s: got %q, %v; want %q", replication, got, err, want)
			}
		}
	})
}

func TestServerMajor(t *testing.T) {
	for version, want := range map[string]int{"18.6": 18, "15.19 (Debian 15.19-1.pgdg120+1)": 15, "19beta1": 19, "": 0, "x": 0} {
		if got := serverMajor(version); got != want {
			t.Errorf("%q: got %d, want %d", version, got, want)
		}
	}
}
