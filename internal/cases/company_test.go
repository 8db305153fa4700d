package cases

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// Good company for the database: its shutdown and the application's commits never
// wait for us.

func TestFastShutdownDoesNotWaitForUs(t *testing.T) { inBothAtOnce(t, fastShutdownDoesNotWaitForUs) }

func fastShutdownDoesNotWaitForUs(t *testing.T) {
	pg := testenv.NewPostgres(t, testenv.PGOptions{})
	r, proxy := proxiedRig(t, pg)
	s := r.warm()
	stop := func(what string) {
		t.Helper()
		began := time.Now()
		r.check(pg.Stop("fast"))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: the server's fast shutdown took %s, want under 2 s", what, took)
		}
	}
	proxy.Cut()
	r.put(10)
	stop("broker down")
	r.check(pg.Start(r.ctx))
	r.db = r.connect()
	proxy.Restore()
	r.untilConfirmed()

	proxy.Blackhole() // a backlog it has no room to read
	rows := 30_000
	if full() {
		rows = 300_000
	}
	r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'account', 'acc-' || i % 7, 'deposited', jsonb_build_object('filler', repeat(md5(i::text), 100)) FROM generate_series(1, $1::int) i`, rows)
	stop("backlog unread")
	r.check(pg.Start(r.ctx))
	r.db = r.connect()
	proxy.Restore()
	r.check(s.WaitStreaming(r.ctx))
	r.untilConfirmed()
	r.verify()
}

func TestNeverASynchronousStandby(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t, testenv.PGOptions{})
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	s := r.warm()
	r.check(pg.Exec(r.ctx, "", `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`))
	if code := r.ends(s, 20*time.Second); code != 3 {
		t.Errorf("exit code %d, want 3\n%s", code, s.Log())
	}
	again := r.start()
	if code := r.ends(again, 20*time.Second); code != 3 {
		t.Errorf("exit code %d at the next start, want 3\n%s", code, again.Log())
	}
	if st := r.standing(); st.ExitCode != 3 || !strings.Contains(strings.Join(st.Problems, " "), "every COMMIT of the application would wait for Kafka -> ALTER SYSTEM") {
		t.Errorf("walstream status: %+v", st)
	}
	r.check(pg.Exec(r.ctx, "", `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`))
	r.until("the setting to be gone", func() bool {
		var names string
		r.check(r.db.QueryRow(r.ctx, `SHOW synchronous_standby_names`).Scan(&names))
		return names == ""
	})
	r.put(1)
	r.stream()
	r.untilConfirmed()
	r.verify()
}

// What an idle instance costs and how long a start takes: reported, not judged,
// since machines differ.
func TestIdleCostAndStart(t *testing.T) { inBoth(t, idleCostAndStart) }

func idleCostAndStart(t *testing.T) {
	r := sharedRig(t)
	s := r.warm()
	before, err := cpuTime(s.PID())
	r.check(err)
	idle := scaled(60 * time.Second)
	time.Sleep(idle)
	after, err := cpuTime(s.PID())
	r.check(err)
	t.Logf("idle for %s: %.2f CPU seconds", idle, after-before)
	r.check(s.Stop(10 * time.Second))
	starts := make([]time.Duration, 10)
	for i := range starts {
		began := time.Now()
		s = r.stream()
		starts[i] = time.Since(began)
		r.check(s.Stop(10 * time.Second))
	}
	slices.Sort(starts)
	t.Logf("start to streaming: median %s, slowest %s", starts[len(starts)/2], starts[len(starts)-1])
}
