package cases

import (
	"context"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// trio is the one cluster of three brokers of this package, as in production:
// three replicas, two of them in sync at least. It is started by the first case
// that wants it; a case that stops brokers has them started again at its end.
var trio *testenv.Kafka

func threeBrokers(t *testing.T) *testenv.Kafka {
	t.Helper()
	if trio == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		kafka, err := testenv.StartKafka(ctx, testenv.KafkaOptions{Brokers: 3, Real: true})
		if err != nil {
			testenv.SkipOrFail(t, err)
		}
		trio = kafka
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := trio.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	return trio
}

// bothOn is a rig for each delivery, for faults that take long: both are there
// while it lasts.
func bothOn(t *testing.T, pg *testenv.Postgres, brokers []string) []*rig {
	t.Helper()
	rigs := make([]*rig, 0, 2)
	for _, delivery := range []string{atLeastOnce, exactlyOnce} {
		r := newRig(t, pg, brokers)
		r.delivery = delivery
		rigs = append(rigs, r)
	}
	return rigs
}

// each runs check for each rig, named by its delivery.
func each(t *testing.T, rigs []*rig, check func(t *testing.T, r *rig)) {
	t.Helper()
	for _, r := range rigs {
		t.Run(r.delivery, func(t *testing.T) {
			outer := r.t
			r.t = t
			defer func() { r.t = outer }()
			check(t, r)
		})
	}
}

// load commits rows, a few at a time, until stop is called, which waits.
func (r *rig) load() (stop func()) {
	r.t.Helper()
	conn := r.connect()
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			_, err := conn.Exec(r.ctx, putSQL, 1+n%20)
			if err != nil {
				r.t.Error(err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}
