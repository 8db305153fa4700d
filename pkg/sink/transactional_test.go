package sink

import (
	"fmt"
	"testing"
)

// startExactly returns a claimed, running exactly-once sink.
func startExactly(t testing.TB, cfg Config, o TransactionalOptions) (*running, *Transactional) {
	t.Helper()
	s := claim(t, open(t, cfg)).NewTransactional(baseRecord(cfg.Pipeline), o)
	t.Cleanup(s.Close)
	return drive(t, s), s
}

// Rows of many small transactions over two topics: all there, in order, once,
// and the checkpoint beside them.
func TestExactlyOnce(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		one, two := createTopic(t, brokers, 3, nil), createTopic(t, brokers, 2, nil)
		cfg := testConfig(t, brokers)
		r, s := startExactly(t, cfg, TransactionalOptions{})
		const each = 300
		for n := 1; n <= each; n++ {
			for key := range 4 {
				k := fmt.Sprint("k", key)
				r.transaction(event(one, k, fmt.Sprint(n), n), event(two, k, fmt.Sprint(n), n))
			}
			if n%20 == 0 {
				r.drain()
			}
			if n == each/2 {
				r.untilConfirmed()
			}
		}
		r.untilConfirmed()
		for _, topic := range []string{one, two} {
			inOrder(t, committed(t, brokers, topic), 4, each)
		}
		mustLoad(t, open(t, cfg), r.lsn)
		stats := s.Stats()
		if stats.Commits < 2 || stats.Splits != 0 || stats.Lanes[0]-stats.Lanes[1] > 1 {
			t.Errorf("%+v", stats)
		}
		t.Logf("%+v", stats)
	})
}

func TestIdlePositions(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		topic := createTopic(t, brokers, 1, nil)
		r, s := startExactly(t, cfg, TransactionalOptions{})
		for n := range 3 {
			r.transaction(event(topic, "k", "v", n))
			r.untilConfirmed()
			r.lsn += 1000
			r.ledger.Mark(edgeAt(r.lsn).Covered)
			r.sink.Checkpoint(r.ledger.Published())
			r.untilConfirmed()
			mustLoad(t, open(t, cfg), r.lsn)
		}
		if stats := s.Stats(); stats.Idle != 3 || stats.Commits != 6 {
			t.Errorf("%+v", stats)
		}
	})
}
