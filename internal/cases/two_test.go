package cases

import (
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
)

// The second instance waits, says who holds the slot, and takes over.
func TestC12SecondInstanceStandsBy(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	first := r.warm()
	second := r.start()
	status, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	if !strings.Contains(status.Reason, "PID") || !strings.Contains(status.Reason, r.pipeline) {
		t.Errorf("standing by without naming the holder: %q", status.Reason)
	}
	if code, _, err := second.Get(r.ctx, "/readyz"); err != nil || code != 200 {
		t.Errorf("/readyz %d (%v) while standing by", code, err)
	}
	first.Kill()
	r.check(second.WaitStreaming(r.ctx))
	r.put(10)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// An instance that was paused for longer than every time-out is fenced when it
// wakes up: it confirms nothing, and becomes the standby instance.
func TestC53PausedInstanceIsFenced(t *testing.T) { inBothAtOnce(t, pausedInstanceIsFenced) }

func pausedInstanceIsFenced(t *testing.T) {
	r := sharedRig(t)
	r.role("wal_sender_timeout = '2s'")
	first := r.warm()
	second := r.start()
	_, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.check(freeze(first.PID()))
	defer func() { _ = thaw(first.PID()) }()
	r.put(20)
	r.check(second.WaitStreaming(r.ctx))
	r.untilConfirmed()
	r.check(thaw(first.PID()))
	_, err = first.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.put(20)
	r.untilConfirmed()
	r.verify() // duplicates may be: what it had handed to Kafka before it was paused
	r.check(second.Stop(10 * time.Second))
	r.check(first.WaitStreaming(r.ctx))
	r.put(1)
	r.untilConfirmed()
	r.verify()
}

// Two instances that start at once on nothing make one slot, and one streams.
func TestTwoInstancesStartAtOnce(t *testing.T) { inBothAtOnce(t, twoInstancesStartAtOnce) }

func twoInstancesStartAtOnce(t *testing.T) {
	for range 3 {
		r := sharedRig(t)
		instances := []*service.Service{r.start(), r.start()}
		r.until("one to stream and one to stand by", func() bool {
			states := map[string]int{}
			for _, s := range instances {
				if status, err := s.Status(r.ctx); err == nil {
					states[status.State]++
				}
			}
			return states["streaming"] == 1 && states["standby"] == 1
		})
		r.put(10)
		r.untilConfirmed()
		if duplicates := r.verify(); duplicates != 0 {
			t.Errorf("%d duplicates", duplicates)
		}
	}
}
