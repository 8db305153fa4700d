package cases

import (
	"testing"

	"github.com/walstream/walstream/internal/service"
)

// A pause takes hold within a snapshot, too: the slot is left, the page under way is
// published or not, and the resumed instance finishes it, with each row once.
func TestPauseDuringSnapshot(t *testing.T) {
	t.Parallel()
	t.Run(exactlyOnce, pauseDuringSnapshot)
}

func pauseDuringSnapshot(t *testing.T) {
	const rows = 30_000
	r := sharedRig(t)
	r.exec(putSQL, rows)
	// Slow enough to be met on the way by any machine.
	s := r.start("--snapshot", "initial", "--max-in-flight-bytes", "64KiB", "--commit-interval", "50ms")
	_, err := s.WaitFor(r.ctx, "inside the snapshot", func(st service.Status) bool { return st.Snapshot != nil && st.Snapshot.Rows > 0 })
	r.check(err)
	if out, code := r.command([]string{"pause", "--reason=test"}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if status, err := s.Status(r.ctx); err != nil || status.State != "paused" || status.Snapshot != nil {
		t.Fatalf("%+v (%v): it was over before the pause, or is not paused", status, err)
	}
	r.markersWritten(r.topic)
	before := len(r.published())
	if before == 0 || before >= rows {
		t.Errorf("%d records before the pause", before)
	}
	r.exec(`DELETE FROM bank_outbox WHERE seq IN (SELECT seq FROM bank_outbox ORDER BY id DESC LIMIT 10)`)
	r.put(10)
	if out, code := r.command([]string{"resume"}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	r.check(s.WaitStreaming(r.ctx))
	r.untilConfirmed()
	r.markersWritten(r.topic)
	seen := map[string]bool{}
	for _, rec := range r.published() {
		id := header(rec, "walstream-event-id")
		if seen[id] {
			t.Fatalf("row %s is there twice", id)
		}
		seen[id] = true
	}
	if len(seen) != rows {
		t.Errorf("%d rows are there, want %d: ten of before were deleted, ten came meanwhile", len(seen), rows)
	}
}
