package cases

import (
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// SIGTERM inside a transaction: at-least-once has published its first rows, and
// takes in the rest before it leaves. Left in the middle, all of them came again.
func TestStopInsideATransaction(t *testing.T) { inBothAtOnce(t, stopInsideATransaction) }

func stopInsideATransaction(t *testing.T) {
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	proxy.Bandwidth(2048)
	s := r.warm()
	const rows = 30_000
	r.put(rows)
	status, err := s.WaitFor(r.ctx, "inside the transaction", func(st service.Status) bool { return st.Events > 1000 })
	r.check(err)
	if status.Events > rows {
		t.Fatalf("%d rows are handed to Kafka: this proves nothing", status.Events)
	}
	r.check(s.Stop(30 * time.Second))
	r.stream()
	r.put(1)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates > 0 {
		t.Errorf("%d duplicates after a stop", duplicates)
	}
}
