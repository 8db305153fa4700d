package cases

import (
	"strings"
	"testing"
)

// The command's other forms: partitions, a stamp, and the stamp as the age.
func TestPruneForms(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox ADD published_at timestamptz; ALTER TABLE bank_outbox RENAME TO plain;
		CREATE TABLE bank_outbox (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (id, seq)) PARTITION BY RANGE (seq);
		CREATE TABLE low PARTITION OF bank_outbox FOR VALUES FROM (0) TO (50); CREATE TABLE high PARTITION OF bank_outbox FOR VALUES FROM (50) TO (MAXVALUE)`)
	s := r.warm()
	r.put(99)
	r.untilConfirmed()
	run := func(want int, says string, args ...string) {
		t.Helper()
		out, code := r.command(append([]string{"prune", "--yes"}, args...))
		if code != want || !strings.Contains(out, says) {
			t.Errorf("prune %v: exit code %d, want %d and %q\n%s", args, code, want, says, out)
		}
	}
	run(2, "needs the column", "--stamp-only")
	run(2, "has no effect with --stamp-only", "--stamp-only", "--stamp=published_at", "--older-than=1d")
	run(3, "has no column nothing", "--stamp-only", "--stamp=nothing")
	run(3, "no column payload of a type timestamp", "--older-than=1d", "--age-column=payload")
	run(0, "would stamp 100 rows", "--stamp-only", "--stamp=published_at", "--dry-run")
	run(0, "stamped 100 rows", "--stamp-only", "--stamp=published_at", "--batch=7")
	run(0, "stamped 0 rows", "--stamp-only", "--stamp=published_at")
	r.exec(`UPDATE bank_outbox SET published_at = NULL WHERE seq IN (1, 60)`)
	run(0, "would delete 0 rows", "--older-than=0s", "--age-column=published_at", "--drop-partitions", "--dry-run") // a row of low has no time
	r.exec(`UPDATE bank_outbox SET published_at = now() WHERE seq = 1`)
	run(0, "would drop partitions public.low", "--older-than=0s", "--age-column=published_at", "--drop-partitions", "--dry-run")
	r.exec(`CREATE VIEW of_low AS SELECT * FROM low`)
	run(3, "cannot drop table low because other objects depend on it", "--older-than=0s", "--age-column=published_at", "--drop-partitions")
	// Detached, and closed: what would come in no stream fails.
	if _, err := r.db.Exec(r.ctx, `INSERT INTO low (seq, aggregate_type, event_type) VALUES (7, 'x', 'x')`); err == nil || !strings.Contains(err.Error(), "walstream_detached") {
		t.Errorf("a row was written to a partition that will be dropped: %v", err)
	}
	// Attached again, it is a partition like any other.
	r.exec(`ALTER TABLE bank_outbox ATTACH PARTITION low FOR VALUES FROM (0) TO (50)`)
	run(0, "would drop partitions public.low", "--older-than=0s", "--age-column=published_at", "--drop-partitions", "--dry-run")
	run(0, "deleted 0 rows", "--older-than=1d", "--age-column=published_at", "--drop-partitions")
	r.exec(`INSERT INTO bank_outbox (seq, aggregate_type, event_type, published_at) VALUES (7, 'x', 'x', now()); DROP VIEW of_low`)
	r.untilConfirmed()
	run(0, "dropped partitions public.low", "--older-than=0s", "--age-column=published_at", "--drop-partitions")
	// The last one is left to its rows: new ones come to it.
	run(0, "deleted 0 rows", "--older-than=0s", "--age-column=published_at", "--drop-partitions")
	run(0, "deleted 50 rows", "--older-than=0s", "--age-column=published_at")
	if left := r.count(); left != 1 {
		t.Errorf("%d rows are left, want 1: the one without a time", left)
	}
	if status, err := s.Status(r.ctx); err != nil || status.State != "streaming" || len(status.Restarts) > 0 {
		t.Errorf("%+v (%v)", status, err)
	}
}
