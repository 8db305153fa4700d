package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// limitsForPeople are what a DBA sets against people's sessions.
func (r *rig) limitsForPeople(major int) {
	r.t.Helper()
	limits := []string{"statement_timeout = '2s'", "lock_timeout = '1s'", "idle_in_transaction_session_timeout = '1s'", "idle_session_timeout = '1s'"}
	if major >= 17 {
		limits = append(limits, "transaction_timeout = '1s'")
	}
	r.role(limits[0])
	role := r.slot[:min(len(r.slot), 50)] + "_role"
	for _, limit := range limits {
		r.exec(`ALTER ROLE ` + role + ` SET ` + limit)
		r.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ` + strings.ReplaceAll(limit, "'", "''") + `', current_database()); END $$`)
	}
}

// Time-outs set on role and database end neither a slot's creation that has to wait
// nor a session that is idle; nothing is begun anew, and nothing stays open.
func TestC19LimitsForPeople(t *testing.T) {
	t.Parallel()
	for _, major := range testenv.Majors() {
		t.Run(map[bool]string{true: "newest", false: "oldest"}[major == testenv.NewestMajor], func(t *testing.T) {
			r := newRig(t, testenv.SharedPostgres(t, major), testenv.SharedKafka(t).Brokers)
			r.delivery = exactlyOnce
			writer := r.connect()
			_, err := writer.Exec(r.ctx, "BEGIN; SELECT txid_current()")
			r.check(err)
			r.limitsForPeople(major)
			s := r.start()
			_, err = s.WaitFor(r.ctx, "making the slot", func(st service.Status) bool { return strings.Contains(st.Reason, "waits for open transactions") })
			r.check(err) // told of after 3 s
			r.during(2*time.Second, func() {
				if ended(s.Done()) || r.restartsOf(s) > 0 {
					t.Fatalf("the slot's creation was ended\n%s", s.Log())
				}
			})
			_, err = writer.Exec(r.ctx, "COMMIT")
			r.check(err)
			r.check(s.WaitStreaming(r.ctx))
			r.during(scaled(time.Minute), func() {
				var open int
				r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state LIKE 'idle in transaction%'`, r.pipeline).Scan(&open))
				if open > 0 {
					t.Error("a transaction stays open between queries")
				}
			})
			r.put(5)
			r.untilConfirmed()
			if n := r.restartsOf(s); n > 0 {
				t.Errorf("%d restarts with low traffic\n%s", n, s.Log())
			}
			if duplicates := r.verify(); duplicates != 0 {
				t.Errorf("%d duplicates", duplicates)
			}
		})
	}
}

// ACCESS EXCLUSIVE on the outbox, as a migration has it for a while: a first start
// says what it waits for and goes on when the lock is gone; a later one streams at once.
func TestC19TableLockedAtTheStart(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	locker := r.connect()
	lock := func() {
		t.Helper()
		_, err := locker.Exec(r.ctx, `BEGIN; LOCK TABLE bank_outbox IN ACCESS EXCLUSIVE MODE`)
		r.check(err)
	}
	unlock := func() {
		t.Helper()
		_, err := locker.Exec(r.ctx, `COMMIT`)
		r.check(err)
	}
	lock()
	s := r.start()
	r.until("walstream to wait for the lock", func() bool {
		var waiting bool
		r.check(r.db.QueryRow(r.ctx, `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.application_name = $1 AND NOT l.granted)`, r.pipeline).Scan(&waiting))
		return waiting
	})
	if out, code := r.command([]string{"check"}); code != 0 {
		t.Errorf("check behind a lock: exit code %d\n%s", code, out)
	}
	unlock()
	r.check(s.WaitStreaming(r.ctx))
	r.put(1)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	lock()
	s = r.stream()
	unlock()
	r.put(3)
	r.untilConfirmed()
	if n := r.restartsOf(s); n > 0 {
		t.Errorf("%d restarts", n)
	}
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}
