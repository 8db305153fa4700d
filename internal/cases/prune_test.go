package cases

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/decode"
)

// noteGone writes down what the slot had confirmed when a row was deleted, or
// stamped; ever are the ids of all rows that were committed.
func (r *rig) noteGone() {
	r.t.Helper()
	r.exec(`CREATE TABLE ever (id uuid PRIMARY KEY); CREATE TABLE gone (id uuid, confirmed pg_lsn);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			INSERT INTO gone SELECT OLD.id, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '` + r.slot + `';
			RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; END $$;
		CREATE TRIGGER note BEFORE DELETE OR UPDATE ON bank_outbox FOR EACH ROW EXECUTE FUNCTION note()`)
}

// seeded returns randomness of a seed that the test's log has.
func (r *rig) seeded() *rand.Rand {
	seed := rand.Uint64()
	r.t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// walstream prune deletes no row that is not published: while rows are written that
// look old the moment they are, in transactions that stay open for a while, and
// walstream is stopped, killed and started.
func TestPruneRaces(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		r.noteGone()
		rnd := r.seeded()
		s := r.warm()
		stop := r.writeOldRows(rnd.Uint64())
		deleted := 0
		for end := time.Now().Add(scaled(80 * time.Second)); time.Now().Before(end); {
			down := rnd.IntN(4) == 0
			if down {
				s.Kill()
			}
			wait := "5s"
			if down {
				wait = "100ms"
			}
			out, code := r.command([]string{"prune", "--older-than=1d", "--yes", "--json", "--batch=7", "--wait=" + wait})
			if down {
				s = r.start()
			}
			if code != 0 && code != 3 {
				t.Fatalf("exit code %d\n%s", code, out)
			}
			if code == 0 && !regexp.MustCompile(`"deleted":0[,}]`).MatchString(out) {
				deleted++
			}
		}
		stop()
		s.Kill()
		r.stream()
		r.untilConfirmed()
		r.verifyAgainst(`SELECT id::text FROM ever UNION SELECT id::text FROM bank_outbox`)
		r.verifyGone()
		var left, ever int
		r.check(r.db.QueryRow(r.ctx, `SELECT (SELECT count(*) FROM bank_outbox), (SELECT count(*) FROM ever)`).Scan(&left, &ever))
		if t.Logf("%d runs deleted rows; %d of %d rows are left", deleted, left, ever); deleted == 0 || left >= ever {
			t.Error("nothing was deleted: the case proves nothing")
		}
	})
}

// verifyGone: when a row was deleted, the slot had confirmed its commit.
func (r *rig) verifyGone() {
	r.t.Helper()
	commits := map[string]pglogrepl.LSN{}
	for _, rec := range r.published() {
		_, position, err := decode.ParseHeader([]byte(header(rec, "walstream-position")))
		r.check(err)
		commits[header(rec, "walstream-event-id")] = position.CommitLSN
	}
	rows, err := r.db.Query(r.ctx, `SELECT id::text, confirmed::text FROM gone`)
	r.check(err)
	var id, confirmed string
	_, err = pgx.ForEachRow(rows, []any{&id, &confirmed}, func() error {
		lsn, err := pglogrepl.ParseLSN(confirmed)
		if err == nil && (commits[id] == 0 || lsn <= commits[id]) {
			r.t.Errorf("row %s, committed at %s, was deleted when the slot had confirmed %s", id, commits[id], lsn)
		}
		return err
	})
	r.check(err)
}

// writeOldRows writes rows that were made ten days ago, as they say, on three
// connections, and keeps their ids.
func (r *rig) writeOldRows(seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	var done sync.WaitGroup
	for n := range uint64(3) {
		conn, err := pgx.Connect(r.ctx, r.dsn)
		r.check(err)
		rnd := rand.New(rand.NewPCG(seed, n))
		done.Go(func() {
			defer func() { _ = conn.Close(context.Background()) }()
			for ctx.Err() == nil {
				if err := oldRow(ctx, conn, rnd); err != nil && ctx.Err() == nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	return func() { cancel(); done.Wait() }
}

func oldRow(ctx context.Context, conn *pgx.Conn, rnd *rand.Rand) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	for range 1 + rnd.IntN(4) {
		if _, err := tx.Exec(ctx, `WITH made AS (INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
			VALUES ('account', $1, 'x', '{}', now() - interval '10 days') RETURNING id) INSERT INTO ever SELECT id FROM made`, "acc-"+itoa(rnd.IntN(9))); err != nil {
			return err
		}
		time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
	}
	return tx.Commit(ctx)
}

// What stands in its way is named, and nothing is deleted.
func TestPruneRefuses(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	prune := func(want int, says string, args ...string) {
		t.Helper()
		out, code := r.command(append([]string{"prune", "--older-than=0s", "--yes"}, args...))
		if code != want || !strings.Contains(out, says) {
			t.Errorf("prune %v: exit code %d, want %d and %q\n%s", args, code, want, says, out)
		}
	}
	prune(3, "has no checkpoint")
	s := r.warm()
	r.put(10)
	r.untilConfirmed()
	prune(3, "no column made_at", "--age-column=made_at")
	if out, code := r.command([]string{"prune", "--older-than=0s"}); code != 2 || !strings.Contains(out, "not confirmed") || !strings.Contains(out, "11 rows") {
		t.Errorf("unconfirmed: exit code %d\n%s", code, out)
	}
	prune(0, "would delete 11 rows", "--dry-run")
	s.Kill()
	r.put(3)
	prune(3, "not all of them are known to be published", "--wait=0s")
	r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot) // by hand: the checkpoint is not there
	prune(3, "not all of them are known to be published", "--wait=0s")
	var left int
	r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM bank_outbox`).Scan(&left))
	if left != 14 {
		t.Errorf("%d rows are left, want 14", left)
	}
}
