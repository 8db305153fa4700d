package cases

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// slotHealth is that part of /status.
type slotHealth struct {
	RetainedBytes *int64 `json:"retained_bytes"`
	Budget        *struct {
		Level    string `json:"level"`
		PinnedBy string `json:"pinned_by"`
	} `json:"budget"`
	Remedy string `json:"remedy"`
	Oldest string `json:"oldest_transaction"`
}

func (r *rig) slotHealth(s *service.Service) (h slotHealth) {
	r.t.Helper()
	_, body, err := s.Get(r.ctx, "/status")
	r.check(err)
	r.check(json.Unmarshal(body, &struct {
		SlotHealth *slotHealth `json:"slot_health"`
	}{&h}))
	return h
}

// spent floods the server until the budget is, and holds what is said of it.
func (r *rig) spent(s *service.Service, pinnedBy, remedy string) {
	r.t.Helper()
	var h slotHealth
	r.until("half of the budget to be told", func() bool {
		r.exec(`INSERT INTO noise (filler) SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
		time.Sleep(200 * time.Millisecond) // slower than the readings: a mark must not be jumped
		h = r.slotHealth(s)
		return h.Budget != nil && h.Budget.Level != "ok"
	})
	r.until("the log to warn early", func() bool { return strings.Contains(s.Log(), "mark of --max-retained-wal") })
	r.until("the budget to be spent", func() bool {
		r.wal(3000)
		h = r.slotHealth(s)
		return h.Budget != nil && h.Budget.Level == "spent"
	})
	r.until("red health that names "+pinnedBy, func() bool { // a detail is read every ten seconds
		h = r.slotHealth(s)
		return strings.Contains(h.Budget.PinnedBy, pinnedBy) &&
			strings.Contains(r.healthTurns(s, http.StatusServiceUnavailable), "--max-retained-wal")
	})
	if !strings.Contains(h.Remedy, remedy) {
		r.t.Errorf("the remedy is %q", h.Remedy)
	}
	r.until("the log to say so", func() bool {
		return strings.Count(s.Log(), "mark of --max-retained-wal") >= 2 // early, and when it was spent
	})
}

// released waits until the server has let go of the WAL.
func (r *rig) released(s *service.Service) {
	r.t.Helper()
	r.until("health to be green again", func() bool {
		r.exec(`CHECKPOINT`) // it writes down which transactions run, as the server does every 15 s
		code, _, err := s.Get(r.ctx, "/healthz")
		return err == nil && code == http.StatusOK
	})
}

// A budget for the WAL that is kept for the slot: red when it is spent, and who
// pins it is named, whoever that is.
func TestWALBudget(t *testing.T) {
	t.Parallel()
	budget := []string{"--max-retained-wal", "40MiB", "--status-interval", "1s", "--stall-timeout", "1h"}
	t.Run("C34 a prepared transaction", func(t *testing.T) {
		r := preparedRig(t, preparing(t))
		s := r.warm(budget...)
		r.prepare("forgotten", 1)
		r.spent(s, "prepared transaction", "ROLLBACK PREPARED")
		r.put(1) // everything else goes on
		r.untilConfirmed()
		r.exec("COMMIT PREPARED " + r.gid("forgotten"))
		r.untilConfirmed()
		r.released(s)
		r.verify()
	})
	t.Run("an open transaction", func(t *testing.T) {
		r := newRig(t, testenv.NewPostgres(t, testenv.PGOptions{}), testenv.SharedKafka(t).Brokers)
		s := r.warm(budget...)
		conn := r.connect()
		_, err := conn.Exec(r.ctx, "BEGIN; INSERT INTO noise (filler) VALUES ('open')")
		r.check(err)
		r.spent(s, "an open transaction", "pg_terminate_backend")
		r.exec(`SELECT pg_terminate_backend($1)`, int(conn.PgConn().PID()))
		r.released(s)
		r.verify()
	})
	t.Run("Kafka does not answer", func(t *testing.T) {
		r, proxy := proxiedRig(t, testenv.NewPostgres(t, testenv.PGOptions{})) // the WAL of others would pass its marks
		s := r.warm(budget...)
		proxy.Blackhole()
		r.put(3)
		r.spent(s, "wait for Kafka", "brokers")
		proxy.Restore()
		r.released(s)
		r.untilConfirmed()
		r.verify()
	})
	t.Run("Kafka is down at the start", func(t *testing.T) {
		r, proxy := proxiedRig(t, testenv.NewPostgres(t, testenv.PGOptions{})) // the WAL of others would pass its marks
		r.check(r.warm(budget...).Stop(20 * time.Second))
		proxy.Cut()
		s := r.start(budget...)
		r.until("it to listen", func() bool { _, _, err := s.Get(r.ctx, "/livez"); return err == nil })
		r.put(3)
		r.spent(s, "are not confirmed", "")
		proxy.Restore()
		r.check(s.WaitStreaming(r.ctx))
		r.released(s)
		r.untilConfirmed()
		r.verify()
	})
	t.Run("a standby server holds it", func(t *testing.T) {
		pg := testenv.NewPostgres(t, testenv.PGOptions{})
		if pg.Major < 17 {
			t.Skip("PostgreSQL 17 is the first with synchronized_standby_slots")
		}
		r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
		r.exec(`CREATE PUBLICATION ` + r.publication() + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
		r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput', failover => true)`, r.slot)
		r.exec(`SELECT pg_create_physical_replication_slot('standby_1', true)`)
		message := r.refused(r.start(), 4, "--adopt-slot=")
		s := r.stream(append(r.flags(message), budget...)...)
		r.put(1)
		r.untilConfirmed()
		r.exec(`ALTER SYSTEM SET synchronized_standby_slots = 'standby_1'`)
		r.exec(`SELECT pg_reload_conf()`)
		r.put(1)
		r.spent(s, "synchronized_standby_slots (standby_1)", "synchronized_standby_slots")
		r.exec(`ALTER SYSTEM RESET synchronized_standby_slots`)
		r.exec(`SELECT pg_reload_conf()`)
		r.released(s)
		r.untilConfirmed()
		r.verify()
	})
}
