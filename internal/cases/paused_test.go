package cases

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
)

// The instance at work is paused at any moment of its start or its stream, for
// longer than every time-out; the other one takes over, and the first wakes up:
// it publishes nothing that counts, confirms nothing, disturbs nobody, and becomes
// the standby instance.
func TestC53PausedAtAnyMoment(t *testing.T) { inBothAtOnce(t, pausedAtAnyMoment) }

func pausedAtAnyMoment(t *testing.T) {
	r := sharedRig(t)
	r.role("wal_sender_timeout = '2s'")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	active := r.warm()
	stop := r.writing(rnd.Uint64())
	rounds := 1
	if full() {
		rounds = 6
	}
	for round := range 2 * rounds {
		moment := time.Duration(rnd.IntN(1000)) * time.Millisecond
		if round%2 == 0 { // of a start, which takes some 100 ms
			active.Kill()
			moment /= 8
			active = r.start()
		}
		time.Sleep(moment)
		r.check(freeze(active.PID()))
		t.Logf("round %d: process %d paused after %s", round, active.PID(), moment)
		active = r.takenOver(active)
	}
	stop()
	r.untilConfirmed()
	r.verify()
}

// takenOver lets another instance take over from one that is paused, and returns
// the new one when the old one stands by.
func (r *rig) takenOver(paused *service.Service) *service.Service {
	r.t.Helper()
	defer func() { _ = thaw(paused.PID()) }()
	next := r.stream()
	if full() {
		time.Sleep(35 * time.Second) // the broker's patience with an open transaction ends after 30
	}
	r.untilConfirmed()
	r.check(thaw(paused.PID()))
	_, err := paused.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.untilConfirmed()
	if status, err := next.Status(r.ctx); err != nil || status.State != "streaming" {
		r.t.Errorf("the instance that took over: state %q (%v) after the paused one woke up", status.State, err)
	}
	if log := next.Log(); strings.Contains(log, "will start again") {
		r.t.Errorf("the instance that took over was disturbed:\n%s", log)
	}
	paused.Kill()
	return next
}

// writing commits transactions of different sizes all the time, until stop.
func (r *rig) writing(seed uint64) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	conn := r.connect()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rnd := rand.New(rand.NewPCG(seed, 1))
		for ctx.Err() == nil {
			n := []int{1, 1, 1, 5, 20, 500}[rnd.IntN(6)]
			if _, err := conn.Exec(context.WithoutCancel(ctx), putSQL, n); err != nil {
				r.t.Errorf("write: %v", err)
				return
			}
			time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}
