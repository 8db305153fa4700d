package connect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
)

// What walstream says to the slots and publications that connectors leave behind.
// No connector is needed for it, and any Kafka does.
func TestWhatAConnectorLeaves(t *testing.T) {
	const ours = `CREATE PUBLICATION dbz_publication FOR TABLE public.outboxevent (id, aggregatetype, aggregateid, payload)
		WITH (publish = 'insert', publish_via_partition_root = true)`
	for _, c := range []struct {
		name, publication, slot string
		exitCode                int // -1: it streams
		says                    []string
	}{
		{
			"a publication as the connector makes it", `CREATE PUBLICATION dbz_publication FOR TABLE public.outboxevent`, `'pgoutput'`, -1,
			[]string{"it publishes more than inserts", "SET (publish = 'insert')"},
		},
		{
			"for all tables", `CREATE PUBLICATION dbz_publication FOR ALL TABLES`, `'pgoutput'`, -1,
			[]string{"it is for all tables", "it publishes more than inserts"},
		},
		{"our own", ours, `'pgoutput'`, -1, nil},
		{
			"without a mapped column", `CREATE PUBLICATION dbz_publication FOR TABLE public.outboxevent (id, payload) WITH (publish = 'insert')`, `'pgoutput'`, 3,
			[]string{"does not carry what is mapped: aggregatetype, aggregateid"},
		},
		{
			"without inserts", `CREATE PUBLICATION dbz_publication FOR TABLE public.outboxevent WITH (publish = 'update')`, `'pgoutput'`, 3,
			[]string{"it does not publish inserts"},
		},
		{"a slot of another plugin", ours, `'test_decoding'`, 3, []string{"its plugin is test_decoding, not pgoutput"}},
		{"a slot with two_phase", ours, `'pgoutput', false, true`, 3, []string{"it was made with two_phase"}},
		{
			"no publication of that name", `CREATE PUBLICATION other FOR TABLE public.outboxevent`, `'pgoutput'`, 3,
			[]string{"publication dbz_publication: it is not there, but slot", "--publication=other"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rig{
				t: t, ctx: t.Context(), brokers: testenv.SharedKafka(t).Brokers, delivery: "exactly-once",
				publication: publicationOfConnector, connector: &Connector{Table: "public.outboxevent"},
			}
			r.dsn = testenv.SharedPostgres(t, 0).CreateDatabase(t)
			r.db = r.connect()
			r.exec(table)
			r.connector.Slot = r.text(`SELECT left(current_database()::text, 50) || '_slot'`)
			r.exec(c.publication)
			r.exec(`SELECT pg_create_logical_replication_slot($1, `+c.slot+`)`, r.connector.Slot)
			t.Cleanup(func() { dropSlot(r) })
			s := r.walstream("--adopt-slot=" + r.confirmed())
			log := ""
			if c.exitCode < 0 {
				r.check(s.WaitStreaming(r.ctx))
				r.exec(`INSERT INTO outboxevent (aggregatetype, aggregateid, type) VALUES ('t', 'k', 'x'); UPDATE outboxevent SET type = 'y'; DELETE FROM outboxevent`)
				log = r.goesOn(s)
			} else if code, said := r.refusal(s); code == c.exitCode {
				log = said
			} else {
				t.Fatalf("exit code %d, want %d\n%s", code, c.exitCode, said)
			}
			for _, words := range c.says {
				if !strings.Contains(log, words) {
					t.Errorf("it does not say %q:\n%s", words, log)
				}
			}
		})
	}
}

// goesOn waits for a table's row to be confirmed, and returns what walstream said.
func (r *rig) goesOn(s *service.Service) string {
	r.t.Helper()
	end := r.text(`SELECT pg_current_wal_lsn()::text`)
	for deadline := time.Now().Add(time.Minute); r.text(`SELECT ($1::pg_lsn >= $2::pg_lsn)::text`, r.confirmed(), end) != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("the slot is not confirmed to %s\n%s", end, s.Log())
		}
	}
	r.check(s.Stop(grace))
	return s.Log()
}

func dropSlot(r *rig) { // its database goes with it otherwise
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, r.dsn)
	r.check(err)
	_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, r.connector.Slot)
	r.check(errors.Join(err, conn.Close(ctx)))
}

// A publication made behind the slot's position does not carry the rows between.
// Up to PostgreSQL 17 the server fails there; newer ones pass over them with a
// warning, and walstream must not go on over a hole. The way out is the
// publication that the slot was read through.
func TestPublicationMadeTooLate(t *testing.T) {
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			r := &rig{
				t: t, ctx: t.Context(), brokers: testenv.SharedKafka(t).Brokers, delivery: "exactly-once", publication: "late_pub",
				connector: &Connector{Table: "public.outboxevent"}, read: map[verdict.Place]int64{},
			}
			r.dsn = testenv.SharedPostgres(t, major).CreateDatabase(t)
			r.db = r.connect()
			r.exec(table)
			r.connector.Slot = r.text(`SELECT left(current_database()::text, 50) || '_slot'`)
			topic := fmt.Sprintf("late_%d", major)
			r.topic = "outbox.event." + topic
			r.exec(`CREATE PUBLICATION dbz_publication FOR TABLE public.outboxevent`)
			r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.connector.Slot)
			t.Cleanup(func() { dropSlot(r) })
			const row = `INSERT INTO outboxevent (aggregatetype, aggregateid, type) VALUES ($1, 'k', 'x')`
			r.exec(row, topic)
			r.exec(`CREATE PUBLICATION late_pub FOR TABLE public.outboxevent WITH (publish = 'insert')`)
			r.exec(row, topic)

			adopt := "--adopt-slot=" + r.confirmed()
			code, log := r.refusal(r.walstream(adopt))
			if code != 4 || !strings.Contains(log, "did not exist when changes in the WAL were made") || !strings.Contains(log, "name that by --publication") {
				t.Fatalf("exit code %d\n%s", code, log)
			}
			r.publication = publicationOfConnector
			code, log = r.refusal(r.walstream())
			accept := regexp.MustCompile(`--accept-publication=[0-9a-f]+`).FindString(log)
			if code != 4 || accept == "" {
				t.Fatalf("exit code %d\n%s", code, log)
			}
			s := r.walstream(accept)
			r.check(s.WaitStreaming(r.ctx))
			r.goesOn(s)
			if got := len(r.records()); got != 2 {
				t.Errorf("%d records, want both rows", got)
			}
		})
	}
}
