package cases

import (
	"strings"
	"testing"

	"github.com/walstream/walstream/internal/testenv"
)

// A pooler in the path ends a start, named, whatever it was set up to let through:
// what walstream asks of a session, or even that it is for replication, may be
// ignored without a word.
func TestC30PgBouncer(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	const (
		session = "application_name, IntervalStyle, bytea_output, extra_float_digits, client_min_messages, statement_timeout, lock_timeout, " +
			"idle_in_transaction_session_timeout, idle_session_timeout, default_transaction_read_only, options"
		all = session + ", replication, wal_sender_timeout"
	)
	for _, mode := range []string{"session", "transaction"} {
		for name, ignored := range map[string]string{
			"as it comes": "", "ignores settings": session, "ignores everything": all,
		} {
			t.Run(mode+", "+name, func(t *testing.T) {
				pooler := testenv.NewPgBouncer(t, pg, "pool_mode = "+mode, "ignore_startup_parameters = "+ignored)
				r := sharedPoolerRig(t, pg)
				address := replaceOnce(t, r.dsn, addressOf(r), pooler)
				const says = "a pooler such as PgBouncer seems to be in the path: --postgres must lead to PostgreSQL itself"
				r.refused(r.start("--postgres", address), 3, says)
				if out, code := r.command([]string{"check"}, "--postgres", address); code != 3 || !strings.Contains(out, says) {
					t.Errorf("check: exit code %d, want 3 and %q\n%s", code, says, out)
				}
				var slots int
				r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&slots))
				if slots != 0 {
					t.Error("a slot was made")
				}
			})
		}
	}
}

func sharedPoolerRig(t *testing.T, pg *testenv.Postgres) *rig {
	t.Helper()
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	name := strings.NewReplacer(",", "_", " ", "_").Replace(r.pipeline)
	r.pipeline, r.topic, r.slot = name, name, name+"_slot"
	return r
}
