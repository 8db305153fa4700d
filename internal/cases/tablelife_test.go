package cases

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// Whatever does not touch the mapped columns goes unnoticed, also when it is done
// while walstream is down and rows of the old layout wait.
func TestC36AlteredWhileDown(t *testing.T) { inBothAtOnce(t, alteredWhileDown) }

func alteredWhileDown(t *testing.T) {
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox ADD narrow int DEFAULT 1, ADD note varchar(10)`)
	s := r.warm()
	r.check(s.Stop(10 * time.Second))
	for _, change := range []string{
		`ADD first text DEFAULT clock_timestamp()::text`,
		`RENAME created_at TO made_at`,
		`ALTER narrow TYPE bigint, ALTER note TYPE text`,
		`DROP seq, ADD seq bigserial`,
		`DROP CONSTRAINT bank_outbox_pkey`,
		`REPLICA IDENTITY FULL`,
		`DROP note`,
	} {
		r.put(2)
		r.exec(`ALTER TABLE bank_outbox ` + change)
	}
	r.put(2)
	r.stream()
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// A mapped column that is renamed stops walstream before it confirms a row that
// it cannot read; the setting that names it anew goes on, and nothing is lost.
func TestC36MappedColumnRenamed(t *testing.T) { inBothAtOnce(t, mappedColumnRenamed) }

func mappedColumnRenamed(t *testing.T) {
	r := sharedRig(t)
	s := r.warm()
	put := func(column string) {
		t.Helper()
		r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, ` + column + `) VALUES ('account', 'acc-1', 'deposited', '{"i": 1}')`)
	}
	put("payload")
	r.exec(`ALTER TABLE bank_outbox RENAME payload TO body`)
	put("body")
	if code := r.ends(s, 20*time.Second); code != 3 || !strings.Contains(s.Log(), `column \"payload\"`) && !strings.Contains(s.Log(), `column "payload"`) {
		t.Fatalf("exit code %d\n%s", code, s.Log())
	}
	r.exec(`ALTER TABLE bank_outbox RENAME body TO payload`) // the rows written meanwhile keep the other name
	s = r.start()
	if code := r.ends(s, 20*time.Second); code != 3 {
		t.Fatalf("exit code %d with the name restored\n%s", code, s.Log())
	}
	r.exec(`ALTER TABLE bank_outbox RENAME payload TO body`)
	put("body")
	r.stream("--value-column", "body")
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	for _, rec := range r.published()[1:] {
		if string(rec.Value) == "" {
			t.Errorf("no value at %s", header(rec, "walstream-position"))
		}
	}
}

// A mapped column may change its type. A publication that lists columns keeps the
// server from doing so, and has to be put aside in the same transaction.
func TestC36TextToJSONB(t *testing.T) { inBothAtOnce(t, textToJSONB) }

func textToJSONB(t *testing.T) {
	const change = `ALTER TABLE bank_outbox ALTER payload TYPE jsonb USING payload::jsonb`
	for name, own := range map[string]bool{"columns listed": true, "whole table": false} {
		t.Run(name, func(t *testing.T) {
			r := sharedRig(t)
			r.exec(`ALTER TABLE bank_outbox ALTER payload TYPE text`)
			publication := []string{"--publication", "pub"}
			if !own {
				r.exec(`CREATE PUBLICATION pub FOR TABLE bank_outbox WITH (publish = 'insert')`)
			}
			insert := `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', 'acc-1', 'deposited', '{"i":   1}');`
			s := r.stream(publication...)
			r.exec(insert)
			if own {
				if _, err := r.db.Exec(r.ctx, change); err == nil {
					t.Error("the server altered a column that the publication lists")
				}
				var columns string
				r.check(r.db.QueryRow(r.ctx, `SELECT array_to_string(attnames, ', ') FROM pg_publication_tables`).Scan(&columns))
				r.exec(`BEGIN;` + insert + `ALTER PUBLICATION pub DROP TABLE bank_outbox;` + change +
					`; ALTER PUBLICATION pub ADD TABLE bank_outbox (` + columns + `);` + insert + `COMMIT;`)
				if code := r.ends(s, 20*time.Second); code != 4 {
					t.Fatalf("exit code %d, want 4\n%s", code, s.Log())
				}
				s = r.start(publication...)
				if code := r.ends(s, 20*time.Second); code != 4 {
					t.Fatalf("exit code %d at the next start, want 4\n%s", code, s.Log())
				}
				r.stream(append(publication, "--accept-publication", r.flag(s, "accept-publication"))...)
			} else {
				r.exec(`BEGIN;` + insert + change + `;` + insert + `COMMIT;`)
			}
			r.untilConfirmed()
			r.verify()
			var values []string
			for _, rec := range r.published() {
				values = append(values, string(rec.Value))
			}
			if got := strings.Join(values, "|"); got != `{"i":   1}|{"i":   1}|{"i": 1}` {
				t.Errorf("values %s", got)
			}
		})
	}
}

// Each row that is inserted becomes one record, whatever becomes of it later and
// however it came in; a table without a primary key may still be tidied up.
func TestC43AnythingButAPlainInsert(t *testing.T) { inBothAtOnce(t, anythingButAPlainInsert) }

func anythingButAPlainInsert(t *testing.T) {
	r := sharedRig(t)
	r.exec(wroteTable)
	r.exec(`ALTER TABLE bank_outbox DROP CONSTRAINT bank_outbox_pkey, ADD note text, ALTER payload SET STORAGE EXTERNAL`)
	s := r.stream()
	const into = `INSERT INTO bank_outbox (id, aggregate_type, aggregate_id, event_type, payload) `
	row := func(payload string) string {
		return into + `VALUES (gen_random_uuid(), 'account', 'acc-1', 'deposited', ` + payload + `) `
	}
	for _, identity := range []string{"DEFAULT", "FULL", "NOTHING"} {
		r.exec(`ALTER TABLE bank_outbox REPLICA IDENTITY ` + identity)
		r.exec(`WITH i AS (` + row(`to_jsonb(repeat(md5('x'), 200))`) + `RETURNING id) ` + wroteSQL)
		r.exec(`UPDATE bank_outbox SET note = 'leased'`)
		r.exec(`BEGIN; WITH i AS (` + row(`'1'`) + `RETURNING id) ` + wroteSQL + `; DELETE FROM bank_outbox; COMMIT`)
	}
	r.exec(`CREATE UNIQUE INDEX once ON bank_outbox (id)`)
	r.exec(`WITH i AS (` + row(`'2'`) + `RETURNING id) ` + wroteSQL)
	r.exec(into + `SELECT id, 'account', 'acc-1', 'again', '3' FROM bank_outbox ON CONFLICT (id) DO NOTHING`)
	r.exec(into + `SELECT id, 'account', 'acc-1', 'again', '3' FROM bank_outbox ON CONFLICT (id) DO UPDATE SET note = 'again'`)
	r.exec(`MERGE INTO bank_outbox o USING (SELECT id FROM bank_outbox UNION ALL SELECT '00000000-0000-0000-0000-000000000001') s ON o.id = s.id
		WHEN MATCHED THEN UPDATE SET note = 'merged'
		WHEN NOT MATCHED THEN INSERT (id, aggregate_type, aggregate_id, event_type, payload) VALUES (s.id, 'account', 'acc-1', 'merged', '4')`)
	r.exec(`INSERT INTO wrote VALUES ('00000000-0000-0000-0000-000000000001')`)
	r.exec(`BEGIN; WITH i AS (` + into + `SELECT gen_random_uuid(), 'account', 'acc-' || n % 5, 'many', to_jsonb(n) FROM generate_series(1, 20000) n RETURNING id) ` +
		wroteSQL + `; COMMIT`)
	r.exec(`DELETE FROM bank_outbox`)
	r.untilConfirmed()
	if duplicates := r.verifyAgainst(wroteIDs); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	for _, rec := range r.published() {
		if len(rec.Value) == 0 {
			t.Errorf("no value at %s", header(rec, "walstream-position"))
		}
	}
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v)", status.Restarts, err)
	}
}

// Any legal name can be said on the command line.
func TestC41AnyLegalName(t *testing.T) { inBothAtOnce(t, anyLegalName) }

func anyLegalName(t *testing.T) {
	r := sharedRig(t)
	long := strings.Repeat("é", 31)
	r.exec(`CREATE SCHEMA "Ünser.Schema"`)
	r.exec(`CREATE TABLE "Ünser.Schema"."select ""all""" ("id" text, "a,b=c " text, "` + long + `" text, "Value\" jsonb, "{x}$1" text, "user" uuid DEFAULT gen_random_uuid())`)
	r.stream("--table", `"Ünser.Schema"."select ""all"""`, "--key-column", long, "--value-column", `Value\`, "--headers-column", unset,
		"--id-column", "user", "--header-columns", `"odd=a,b=c ",$={x}$1`)
	r.exec(`INSERT INTO "Ünser.Schema"."select ""all""" VALUES ('1', 'o', 'k', '{"v": 1}', 'p')`)
	r.untilConfirmed()
	r.markersWritten(r.topic)
	got := r.published()
	if len(got) != 1 || string(got[0].Key) != "k" || string(got[0].Value) != `{"v": 1}` || header(got[0], "odd") != "o" || header(got[0], "$") != "p" {
		t.Errorf("%+v", got)
	}
}

// A database that is not UTF-8 comes out as UTF-8. What cannot be said in it is
// named, and does not go round in silence.
func TestC42OtherEncodings(t *testing.T) { inBothAtOnce(t, otherEncodings) }

func otherEncodings(t *testing.T) {
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			r := sharedRig(t)
			database := "enc_" + r.slot
			r.exec(`CREATE DATABASE "` + database + `" ENCODING '` + encoding + `' LOCALE 'C' TEMPLATE template0`)
			t.Cleanup(func() {
				_, _ = r.db.Exec(r.ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
				r.until("the slot to be dropped", func() bool {
					_, err := r.db.Exec(r.ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, r.slot)
					return err == nil
				})
				r.exec(`DROP DATABASE "` + database + `" WITH (FORCE)`)
			})
			home := r.dsn
			r.dsn = regexp.MustCompile(`/[^/?]+(\?|$)`).ReplaceAllString(home, "/"+database+"$1")
			conn := r.connect()
			exec := func(sql string) {
				t.Helper()
				_, err := conn.Exec(r.ctx, sql)
				r.check(err)
			}
			exec(`SET client_encoding = 'UTF8'`)
			exec(`CREATE TABLE "größe" (id bigserial, k text, "wért" text)`)
			s := r.stream("--table", `"größe"`, "--key-column", "k", "--value-column", "wért", "--headers-column", unset)
			exec(`INSERT INTO "größe" (k, "wért") VALUES ('é', 'ÿ')`)
			r.untilConfirmed()
			r.markersWritten(r.topic)
			if got := r.published(); len(got) != 1 || string(got[0].Key) != "é" || string(got[0].Value) != "ÿ" {
				t.Fatalf("%+v", got)
			}
			if encoding != "SQL_ASCII" {
				return
			}
			exec(`SET client_encoding = 'SQL_ASCII'`)
			exec(`INSERT INTO "größe" (k, "wért") VALUES ('k', E'\xff')`)
			if code := r.ends(s, 20*time.Second); code != 6 || !strings.Contains(s.Log(), "no UTF-8") {
				t.Errorf("exit code %d\n%s", code, s.Log())
			}
		})
	}
}
