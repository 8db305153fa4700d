package cases

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

func pgxConnect(ctx context.Context, dsn string) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }

// role makes a role of the case's own with settings, and lets walstream use it.
func (r *rig) role(settings string) {
	r.t.Helper()
	name := r.slot[:min(len(r.slot), 50)] + "_role"
	r.exec(`CREATE ROLE ` + name + ` LOGIN SUPERUSER PASSWORD 'cdc'`)
	r.exec(`ALTER ROLE ` + name + ` SET ` + settings)
	cfg, err := pgx.ParseConfig(r.dsn)
	r.check(err)
	old := "postgres://" + cfg.User
	if cfg.Password != "" {
		old += ":" + cfg.Password
	}
	if !strings.HasPrefix(r.dsn, old+"@") {
		r.t.Fatalf("cannot put role %s into the address", name)
	}
	r.dsn = strings.Replace(r.dsn, old+"@", "postgres://"+name+":cdc@", 1)
	r.t.Cleanup(func() {
		_, _ = r.db.Exec(context.Background(), `DROP ROLE IF EXISTS `+name) // gone with the server otherwise
	})
}

// healthTurns waits until /healthz answers with the code.
func (r *rig) healthTurns(s *service.Service, want int) (body string) {
	r.t.Helper()
	r.until("/healthz "+http.StatusText(want), func() bool {
		code, answer, err := s.Get(r.ctx, "/healthz")
		body = string(answer)
		return err == nil && code == want
	})
	return body
}

// A start is no stall, and what waits does not count before its time.
func TestC16NoFalseAlarm(t *testing.T) {
	t.Parallel()
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	s := r.stream("--stall-timeout", "3s", "--status-interval", "1s")
	green := func() {
		if code, body, err := s.Get(r.ctx, "/healthz"); err != nil || code != http.StatusOK {
			t.Errorf("/healthz %d %s (%v)", code, body, err)
		}
	}
	for range 20 {
		green()
		time.Sleep(10 * time.Millisecond)
	}
	r.put(1)
	r.untilConfirmed()
	proxy.Blackhole()
	r.put(1)
	r.during(time.Second, green)
	r.healthTurns(s, http.StatusServiceUnavailable)
}

// A peer that vanished without a word: silence is noticed, health is red until
// the connection is made anew, lag is not 0.
func TestC16BlackholedPostgres(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	if !full() {
		r.role("wal_sender_timeout = '2s'")
	}
	proxy := testenv.NewProxy(t, addressOf(r))
	direct := r.dsn
	r.dsn = strings.Replace(direct, addressOf(r), proxy.Addr, 1)
	s := r.warm("--stall-timeout", "3s", "--status-interval", "1s")
	proxy.Blackhole()
	r.put(5)
	r.healthTurns(s, http.StatusServiceUnavailable)
	status, err := s.WaitFor(r.ctx, "reconnecting", func(st service.Status) bool { return len(st.Restarts) > 0 })
	r.check(err)
	if lag := status.LagBytes["confirmed"]; lag != nil && *lag == 0 {
		t.Error("lag is 0 while the server cannot be reached")
	}
	proxy.Restore()
	r.healthTurns(s, http.StatusOK)
	r.untilConfirmed()
	r.verify()
}

func addressOf(r *rig) string {
	cfg, err := pgx.ParseConfig(r.dsn)
	r.check(err)
	return cfg.Host + ":" + itoa(int(cfg.Port))
}

// A walsender that is alive and says nothing is named, not given up; when it goes
// on, so does the stream.
func TestC16StoppedWalsender(t *testing.T) {
	t.Parallel()
	r := newRig(t, testenv.NewPostgres(t, testenv.PGOptions{}), testenv.SharedKafka(t).Brokers) // a stopped process holds up DROP DATABASE
	r.role("wal_sender_timeout = '2s'")
	s := r.warm("--stall-timeout", "5s", "--status-interval", "1s")
	var pid int
	r.check(r.db.QueryRow(r.ctx, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&pid))
	r.check(freeze(pid))
	defer func() { _ = thaw(pid) }()
	r.put(5)
	body := r.healthTurns(s, http.StatusServiceUnavailable)
	if !strings.Contains(body, "no work done") {
		t.Errorf("red health says %s", body)
	}
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v), though the walsender lives", status.Restarts, err)
	}
	r.check(thaw(pid))
	r.healthTurns(s, http.StatusOK)
	r.untilConfirmed()
	r.verify()
}

func TestC16BlackholedKafka(t *testing.T) { inBothAtOnce(t, blackholedKafka) }

func blackholedKafka(t *testing.T) {
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	s := r.warm("--stall-timeout", "2s", "--status-interval", "1s")
	proxy.Blackhole()
	r.put(5)
	body := r.healthTurns(s, http.StatusServiceUnavailable)
	if !strings.Contains(body, "Kafka") {
		t.Errorf("red health does not name Kafka: %s", body)
	}
	if code, _, err := s.Get(r.ctx, "/livez"); err != nil || code != http.StatusOK {
		t.Errorf("/livez %d (%v) during an outage of the broker", code, err)
	}
	proxy.Restore()
	r.healthTurns(s, http.StatusOK)
	r.untilConfirmed()
	r.verify()
}

// One large transaction, a slow broker and a short wal_sender_timeout: statuses go
// out on their own timer, the first try completes, memory stays bounded.
func TestC18LargeTransactionAndSlowBroker(t *testing.T) {
	inBothAtOnce(t, largeTransactionAndSlowBroker)
}

func largeTransactionAndSlowBroker(t *testing.T) {
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	r.role("wal_sender_timeout = '5s'")
	rows := 100_000
	if full() {
		rows = 1_000_000
	}
	s := r.warm()
	proxy.Latency(200 * time.Millisecond)
	r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'account', 'acc-' || i % 7, 'deposited', jsonb_build_object('i', i, 'filler', repeat(md5(i::text), 30)) FROM generate_series(1, $1::int) i`, rows)
	r.untilConfirmed()
	status, err := s.Status(r.ctx)
	r.check(err)
	if len(status.Restarts) > 0 {
		t.Errorf("restarts %v, want the first try to complete", status.Restarts)
	}
	peak, err := peakMemory(s.PID())
	r.check(err)
	if peak > 256<<20 {
		t.Errorf("peak memory %d MB, want under 256", peak>>20)
	}
	t.Logf("%d rows, peak memory %d MB", rows, peak>>20)
	proxy.Restore()
	r.verify()
}

// A large transaction on a table nobody publishes: the server is silent, and that
// is no reason to reconnect.
func TestC18LargeUnpublishedTransaction(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.role("wal_sender_timeout = '5s'")
	rows := 300_000
	if full() {
		rows = 5_000_000
	}
	s := r.warm()
	r.exec(`INSERT INTO noise (filler) SELECT 'x' FROM generate_series(1, $1::int)`, rows)
	r.exec(`UPDATE noise SET filler = 'y'`)
	r.put(1)
	r.untilConfirmed()
	status, err := s.Status(r.ctx)
	r.check(err)
	if len(status.Restarts) > 0 {
		t.Errorf("restarts %v", status.Restarts)
	}
	r.verify()
}

// A broker that takes and never answers does not hold up the end.
func TestC21StopWhileTheBrokerHolds(t *testing.T) { inBothAtOnce(t, stopWhileTheBrokerHolds) }

func stopWhileTheBrokerHolds(t *testing.T) {
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	s := r.warm("--shutdown-grace", "2s")
	proxy.SwallowAnswers()
	r.put(10)
	end := r.walEnd()
	_, err := s.WaitFor(r.ctx, "holding rows", func(st service.Status) bool { return st.InFlightEvents > 0 })
	r.check(err)
	r.check(s.Signal(syscall.SIGTERM))
	if code := r.ends(s, 10*time.Second); code != 7 {
		t.Errorf("exit code %d, want 7\n%s", code, s.Log())
	}
	r.notBeyond(end)
	r.slotFree(5 * time.Second)
	proxy.Restore()
	r.stream()
	r.untilConfirmed()
	r.verify()
}

func TestC21SecondSignalLeavesAtOnce(t *testing.T) {
	t.Parallel()
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	s := r.warm("--shutdown-grace", "60s")
	proxy.SwallowAnswers()
	r.put(10)
	_, err := s.WaitFor(r.ctx, "holding rows", func(st service.Status) bool { return st.InFlightEvents > 0 })
	r.check(err)
	r.check(s.Signal(syscall.SIGTERM))
	_, err = s.WaitFor(r.ctx, "draining", func(st service.Status) bool { return st.State == "draining" })
	r.check(err)
	time.Sleep(1500 * time.Millisecond) // one within a second of the first is the same signal
	r.check(s.Signal(syscall.SIGTERM))
	if code := r.ends(s, 2*time.Second); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	r.slotFree(5 * time.Second)
	proxy.Restore()
	r.stream()
	r.untilConfirmed()
	r.verify()
}

func TestC21StopDuringReconnectAndSlotCreation(t *testing.T) {
	t.Parallel()
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	writer := r.connect()
	_, err := writer.Exec(r.ctx, "BEGIN; SELECT txid_current()")
	r.check(err)
	s := r.start()
	_, err = s.WaitFor(r.ctx, "making the slot", func(st service.Status) bool { return strings.Contains(st.Reason, "waits for open transactions") })
	r.check(err)
	r.check(s.Stop(10 * time.Second))
	_, err = writer.Exec(r.ctx, "COMMIT")
	r.check(err)
	var slots, publications int
	r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&slots))
	r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_publication`).Scan(&publications))
	if slots+publications != 0 {
		t.Errorf("%d slots and %d publications left behind", slots, publications)
	}
	proxy.Cut()
	s = r.start()
	_, err = s.WaitFor(r.ctx, "without Kafka", func(st service.Status) bool { return st.State != "streaming" })
	r.check(err)
	time.Sleep(500 * time.Millisecond) // into whatever it waits for
	r.check(s.Stop(10 * time.Second))
}

// slotFree waits until nobody holds the slot.
func (r *rig) slotFree(within time.Duration) {
	r.t.Helper()
	deadline := time.Now().Add(within)
	for {
		var active bool
		r.check(r.db.QueryRow(r.ctx, `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&active))
		if !active {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the slot is still held after %s", within)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
