package cases

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

var saidPublication = regexp.MustCompile(`(?:CREATE PUBLICATION|GRANT CREATE)\b[^;]*;`)

// Who owns what: walstream makes a publication of the outbox alone where it may, names
// the right and its SQL where it may not, and leaves a publication that it finds as it
// is, were it for all tables.
func TestC22RolesAndPublications(t *testing.T) {
	t.Parallel()
	const ofOutbox = `FOR TABLE bank_outbox (id, aggregate_id, event_type, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`
	for _, major := range testenv.Majors() {
		for _, c := range []struct {
			name        string
			rights      string // {cdc} is the role
			publication string // made by the DBA, before
			refused     []string
		}{
			{"owner without CREATE", `ALTER TABLE bank_outbox OWNER TO {cdc}`, "", []string{"CREATE on database", "GRANT CREATE"}},
			{"CREATE without ownership", `DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO {cdc}', current_database()); END $$`, "", []string{"ownership of table public.bank_outbox", "CREATE PUBLICATION"}},
			{"owner of nothing", ``, ofOutbox, nil},
			{"for all tables", ``, `FOR ALL TABLES`, nil},
		} {
			t.Run(fmt.Sprintf("%s, PostgreSQL %d", c.name, major), func(t *testing.T) {
				r := newRig(t, testenv.SharedPostgres(t, major), testenv.SharedKafka(t).Brokers)
				name := fmt.Sprintf("c22_%d", time.Now().UnixNano())
				r.pipeline, r.topic, r.slot, r.delivery = name, name, name+"_slot", exactlyOnce
				cdc := name + "_cdc"
				r.exec(`CREATE ROLE ` + cdc + ` LOGIN REPLICATION PASSWORD 'cdc'`)
				t.Cleanup(func() { _, _ = r.db.Exec(context.Background(), `DROP OWNED BY `+cdc+` CASCADE; DROP ROLE `+cdc) })
				r.exec(strings.ReplaceAll(c.rights, "{cdc}", cdc))
				if c.publication != "" {
					r.exec(`CREATE PUBLICATION ` + r.publication() + ` ` + c.publication)
				}
				before := r.publicationAs()
				at := r.loginAs(cdc, "cdc", nil)
				if c.refused != nil {
					message := r.refused(r.start("--postgres", at), 8, c.refused...)
					if out, code := r.command([]string{"check"}, "--postgres", at); code != 8 || !strings.Contains(out, c.refused[0]) {
						t.Errorf("check: exit code %d\n%s", code, out)
					}
					for _, sql := range saidPublication.FindAllString(message, -1) { // by the DBA
						r.exec(sql)
					}
				}
				s := r.warm("--postgres", at)
				r.exec(`INSERT INTO noise (filler) VALUES ('not for Kafka')`)
				r.put(5)
				r.untilConfirmed()
				r.check(s.Stop(20 * time.Second))
				if duplicates := r.verify(); duplicates != 0 {
					t.Errorf("%d duplicates", duplicates)
				}
				var all bool
				var tables string
				r.check(r.db.QueryRow(r.ctx, `SELECT puballtables FROM pg_publication WHERE pubname = $1`, r.publication()).Scan(&all))
				r.check(r.db.QueryRow(r.ctx, `SELECT string_agg(tablename, ' ') FROM pg_publication_tables WHERE pubname = $1`, r.publication()).Scan(&tables))
				switch after := r.publicationAs(); {
				case c.publication != "" && after != before:
					t.Errorf("the publication was changed from %s to %s", before, after)
				case c.publication != `FOR ALL TABLES` && (all || tables != "bank_outbox"):
					t.Errorf("published are %s, all tables: %v", tables, all)
				}
			})
		}
	}
}

// publicationAs is all that the server knows of the publications.
func (r *rig) publicationAs() (text string) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, `SELECT coalesce(string_agg(p::text || coalesce((SELECT string_agg(r::text, ' ') FROM pg_publication_rel r WHERE r.prpubid = p.oid), ''), ' '), '')
		FROM pg_publication p`).Scan(&text))
	return text
}

// The slot is gone while walstream is paused, and then while it is down: nobody can
// tell the lag, so nobody does, and what is wrong is said.
func TestC57SlotMissing(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	s := r.warm()
	shown := func() (status service.Status, scraped []string) {
		status, err := s.Status(r.ctx)
		r.check(err)
		_, body, err := s.Get(r.ctx, "/metrics")
		r.check(err)
		return status, regexp.MustCompile(`(?m)^walstream_lag_\w+\{[^}]*stage="confirmed"[^}]*\} .*$`).FindAllString(string(body), -1)
	}
	r.until("lag to be told while it streams", func() bool {
		status, scraped := shown()
		return status.LagBytes["confirmed"] != nil && len(scraped) == 2 // bytes and seconds
	})
	if out, code := r.command([]string{"pause"}); code != 0 {
		t.Fatalf("pause: %d\n%s", code, out)
	}
	_, err := s.WaitFor(r.ctx, "paused", func(st service.Status) bool { return st.State == "paused" })
	r.check(err)
	r.put(5)
	r.slotFree(10 * time.Second)
	r.exec(dropOnly, r.slot)
	r.until("lag that nobody can tell to be absent", func() bool {
		status, scraped := shown()
		return status.LagBytes["confirmed"] == nil && status.LagSeconds["confirmed"] == nil && len(scraped) == 0
	})
	r.during(2*time.Second, func() {
		if status, scraped := shown(); status.LagBytes["confirmed"] != nil || len(scraped) > 0 {
			t.Errorf("lag is told again: %+v %v", status, scraped)
		}
	})
	down := func() {
		t.Helper()
		st := r.standing()
		if st.LagBytes != nil && *st.LagBytes == 0 || !strings.Contains(strings.Join(st.Problems, "\n"), "does not exist") {
			t.Errorf("status: lag %v, problems %v", st.LagBytes, st.Problems)
		}
	}
	down()
	if out, code := r.command([]string{"resume"}); code != 0 {
		t.Fatalf("resume: %d\n%s", code, out)
	}
	r.refused(s, 5, "does not exist on this server")
	down()
}
