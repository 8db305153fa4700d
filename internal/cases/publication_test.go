package cases

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// flag returns the value of a flag that a message names.
func (r *rig) flag(s *service.Service, name string) string {
	r.t.Helper()
	found := regexp.MustCompile(`--` + name + `=([0-9A-Za-z/.]+)`).FindStringSubmatch(s.Log())
	if found == nil {
		r.t.Fatalf("no --%s named in\n%s", name, s.Log())
	}
	return found[1]
}

func (r *rig) publicationName() string {
	r.t.Helper()
	var name string
	r.check(r.db.QueryRow(r.ctx, `SELECT pubname FROM pg_publication`).Scan(&name))
	return name
}

// Whatever takes rows out of the stream while it runs is noticed, named, and not
// forgotten by the next start.
func TestC26PublicationChangedWhileRunning(t *testing.T) {
	t.Parallel()
	const rows = `(id, aggregate_id, payload, headers)`
	for name, change := range map[string]string{
		"dropped and made anew": `DROP PUBLICATION {pub}; CREATE PUBLICATION {pub} FOR TABLE bank_outbox ` + rows + ` WITH (publish = 'insert', publish_via_partition_root)`,
		"table out and in":      `ALTER PUBLICATION {pub} DROP TABLE bank_outbox; ALTER PUBLICATION {pub} ADD TABLE bank_outbox ` + rows,
		"inserts off and on":    `ALTER PUBLICATION {pub} SET (publish = ''); ALTER PUBLICATION {pub} SET (publish = 'insert')`,
		"another table by name": `ALTER TABLE bank_outbox RENAME TO old; CREATE TABLE bank_outbox (LIKE old INCLUDING ALL)`,
	} {
		t.Run(name, func(t *testing.T) {
			r := sharedRig(t)
			s := r.warm()
			r.exec(strings.ReplaceAll(change, "{pub}", r.publicationName()))
			if code := r.ends(s, 20*time.Second); code != 4 {
				t.Errorf("exit code %d, want 4\n%s", code, s.Log())
			}
			if name == "another table by name" {
				return // the publication has to be mended first, which preflight says
			}
			again := r.start()
			if code := r.ends(again, 20*time.Second); code != 4 {
				t.Errorf("exit code %d at the next start, want 4\n%s", code, again.Log())
			}
			r.put(3)
			third := r.stream("--accept-publication", r.flag(again, "accept-publication"))
			r.untilConfirmed()
			r.check(third.Stop(10 * time.Second))
			r.check(r.stream().Stop(10 * time.Second)) // accepted once and for all
			r.verify()
		})
	}
}

// The publication was gone for a while with walstream down: what was committed
// then is not in the stream, on some servers in silence, on others as an error at
// every start.
func TestC24PublicationMadeAnewWhileDown(t *testing.T) {
	t.Parallel()
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			r := newRig(t, testenv.SharedPostgres(t, major), testenv.SharedKafka(t).Brokers)
			s := r.warm()
			publication := r.publicationName()
			r.check(s.Stop(10 * time.Second))
			r.exec(`DROP PUBLICATION ` + publication)
			r.put(5)
			r.exec(`CREATE PUBLICATION ` + publication + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
			r.put(1)
			s = r.start()
			if code := r.ends(s, 20*time.Second); code != 4 {
				t.Fatalf("exit code %d, want 4\n%s", code, s.Log())
			}
			accepted := r.flag(s, "accept-publication")
			s = r.start("--accept-publication", accepted)
			select {
			case <-s.Done(): // the server cannot decode what was written meanwhile
				if s.ExitCode() != 4 {
					t.Fatalf("exit code %d, want 4\n%s", s.ExitCode(), s.Log())
				}
				r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
				s = r.start()
				if code := r.ends(s, 20*time.Second); code != 4 {
					t.Fatalf("exit code %d, want 4\n%s", code, s.Log())
				}
				r.stream("--accept-gap", r.flag(s, "accept-gap"))
			case <-time.After(3 * time.Second):
				r.check(s.WaitStreaming(r.ctx))
			}
			r.markersWritten(r.topic)
			before := len(r.published())
			r.put(2)
			r.untilConfirmed()
			r.markersWritten(r.topic)
			if got := len(r.published()); got != before+2 {
				t.Errorf("%d records, want %d", got, before+2)
			}
		})
	}
}

// Health turns red when Kafka cannot be reached at a start, however often the
// attempt is repeated, and the log says so.
func TestC16KafkaDownAtTheStart(t *testing.T) {
	t.Parallel()
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	proxy.Cut()
	s := r.start("--stall-timeout", "3s", "--status-interval", "1s")
	body := r.healthTurns(s, 503)
	r.during(3*time.Second, func() {
		if code, _, err := s.Get(r.ctx, "/healthz"); err != nil || code != 503 {
			t.Errorf("/healthz %d (%v) while Kafka is down; before: %s", code, err, body)
		}
	})
	if !regexp.MustCompile(`health is red`).MatchString(s.Log()) {
		t.Errorf("the log does not say that health is red\n%s", s.Log())
	}
	proxy.Restore()
	r.healthTurns(s, 200)
	r.check(s.WaitStreaming(r.ctx))
}
