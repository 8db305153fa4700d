package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// preparedRig is a rig on a server that can prepare transactions.
func preparedRig(t *testing.T, pg *testenv.Postgres) *rig {
	t.Helper()
	return newRig(t, pg, testenv.SharedKafka(t).Brokers)
}

func preparing(t *testing.T) *testenv.Postgres {
	t.Helper()
	return testenv.NewPostgres(t, testenv.PGOptions{Params: map[string]string{"max_prepared_transactions": "10"}})
}

// prepare n rows under a name of the case's own.
func (r *rig) prepare(name string, n int) {
	r.t.Helper()
	r.exec("BEGIN")
	r.put(n)
	r.exec("PREPARE TRANSACTION " + r.gid(name))
}

func (r *rig) gid(name string) string { return fmt.Sprintf("'%s_%s'", r.slot, name) }

// A prepared transaction is published when it is committed, and only then,
// whoever was down at which of its steps; meanwhile everything else goes on.
func TestC34PreparedTransactions(t *testing.T) {
	t.Parallel()
	pg := preparing(t)
	inBoth(t, func(t *testing.T) { preparedTransactions(t, preparedRig(t, pg)) })
}

func preparedTransactions(t *testing.T, r *rig) {
	s := r.warm()
	r.prepare("committed", 5)
	r.prepare("rolled back", 5)
	r.prepare("committed while down", 5)
	s.Kill()
	r.prepare("prepared while down", 5)
	r.prepare("prepared and rolled back while down", 5)
	r.exec("ROLLBACK PREPARED " + r.gid("prepared and rolled back while down"))
	s = r.stream()
	rows := 1
	r.during(scaled(20*time.Second), func() { // the position moves on, past what is only prepared
		r.put(3)
		rows += 3
		r.untilConfirmed()
	})
	r.markersWritten(r.topic)
	if got := len(r.published()); got != rows {
		t.Errorf("%d records, want %d: nothing of what is only prepared", got, rows)
	}
	s.Kill() // what it has confirmed lies behind the prepared rows
	s = r.stream()
	r.exec("COMMIT PREPARED " + r.gid("committed"))
	r.exec("ROLLBACK PREPARED " + r.gid("rolled back"))
	r.exec("COMMIT PREPARED " + r.gid("prepared while down"))
	r.put(1)
	r.untilConfirmed()
	r.markersWritten(r.topic)
	if got, want := len(r.published()), rows+11; got != want {
		t.Errorf("%d records, want %d", got, want)
	}
	s.Kill()
	r.exec("COMMIT PREPARED " + r.gid("committed while down"))
	r.stream()
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// The server sends the rows of such a slot at PREPARE and never again, and tells
// of no commit in words that we read: it is refused.
func TestC34SlotWithTwoPhase(t *testing.T) {
	t.Parallel()
	pg := preparing(t)
	r := preparedRig(t, pg)
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)`, r.slot)
	confirmed, _ := r.confirmed()
	s := r.start()
	if code := r.ends(s, 20*time.Second); code != 3 {
		t.Errorf("exit code %d, want 3\n%s", code, s.Log())
	}
	for _, part := range []string{"two_phase", r.slot} {
		if !strings.Contains(s.Log(), part) {
			t.Errorf("the refusal does not say %s:\n%s", part, s.Log())
		}
	}
	if now, _ := r.confirmed(); now != confirmed {
		t.Errorf("confirmed went from %s to %s", confirmed, now)
	}
}

// Whatever is rolled back is never published, in part or whole.
func TestC34RollbacksAndSavepoints(t *testing.T) { inBothAtOnce(t, rollbacksAndSavepoints) }

func rollbacksAndSavepoints(t *testing.T) {
	r := sharedRig(t)
	r.exec(`CREATE FUNCTION insert_row(kind text) RETURNS void LANGUAGE sql AS $$
		INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', 'a', kind, '{}') $$`)
	r.stream()
	const big = 20_000 // more than logical_decoding_work_mem holds
	for _, steps := range [][]string{
		{"BEGIN", "put 5", "ROLLBACK"},
		{"BEGIN", "put 2", "SAVEPOINT a", "put 5", "ROLLBACK TO a", "put 1", "COMMIT"},
		{"BEGIN", "SAVEPOINT a", "put 2", "SAVEPOINT b", "put 5", "ROLLBACK TO b", "put 1", "RELEASE a", "COMMIT"},
		{"BEGIN", "SAVEPOINT a", "put 2", "SAVEPOINT b", "put 5", "RELEASE b", "ROLLBACK TO a", "COMMIT"},
		{"BEGIN", "put 3", "SELECT 1/0", "ROLLBACK"},
		{"BEGIN", "put 2", fmt.Sprint("put ", big), "ROLLBACK"},
		{"BEGIN", "put 2", "SAVEPOINT a", fmt.Sprint("put ", big), "ROLLBACK TO a", "put 3", "COMMIT"},
		{`DO $$ BEGIN
			PERFORM insert_row('kept');
			FOR i IN 1..50 LOOP
				BEGIN PERFORM insert_row('dropped'); PERFORM 1 / (i % 2); EXCEPTION WHEN division_by_zero THEN NULL; END;
			END LOOP;
			PERFORM insert_row('kept');
		END $$`},
	} {
		for _, step := range steps {
			var n int
			if _, err := fmt.Sscanf(step, "put %d", &n); err == nil {
				r.put(n)
				continue
			}
			if _, err := r.db.Exec(r.ctx, step); (err != nil) != (step == "SELECT 1/0") {
				t.Fatal(step, err)
			}
		}
	}
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}
