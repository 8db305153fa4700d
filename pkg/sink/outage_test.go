package sink

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
)

// inOrder checks that every key's values are 1..n, each once.
func inOrder(t *testing.T, records []*kgo.Record, keys, each int) {
	t.Helper()
	last := map[string]int{}
	for _, record := range records {
		var n int
		if _, err := fmt.Sscan(string(record.Value), &n); err != nil {
			t.Fatal(err)
		}
		if key := string(record.Key); n != last[key]+1 {
			t.Fatalf("key %s: %d after %d", key, n, last[key])
		} else {
			last[key] = n
		}
	}
	for key := range keys {
		if got := last[fmt.Sprint("k", key)]; got != each {
			t.Errorf("key k%d: %d of %d", key, got, each)
		}
	}
}

// Whatever a broker answers that is not a refusal is waited for: no row fails,
// none is lost, none comes twice, the order stays.
func TestHiccupsFailNoRow(t *testing.T) {
	for _, hiccup := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.UnknownTopicOrPartition,
		kerr.CoordinatorLoadInProgress, kerr.KafkaStorageError,
	} {
		t.Run(hiccup.Message, func(t *testing.T) {
			everySink(t, func(t *testing.T, start starter) {
				t.Parallel()
				cluster, brokers := testenv.NewKfake(t, kfake.NumBrokers(3))
				topic := createTopic(t, brokers, 2, nil)
				r := start(t, testConfig(t, brokers))
				asked := 0
				faults := cluster.Fault(kfake.Fault{
					Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: topic, Err: hiccup, Count: 4,
					When: func(kmsg.Request) bool { asked++; return asked%3 == 2 },
				})
				const each = 300
				for n := 1; n <= each; n++ {
					for key := range 4 {
						r.transaction(event(topic, fmt.Sprint("k", key), fmt.Sprint(n), n))
					}
					if n%20 == 0 {
						r.drain()
					}
				}
				r.untilConfirmed()
				if faults.Hits() == 0 {
					t.Error("nothing was answered with the error")
				}
				inOrder(t, seen(t, brokers, topic), 4, each)
			})
		})
	}
}

// Brokers that stop, or are killed, in the middle of a stream: at-least-once
// with an idempotent producer loses nothing and doubles nothing.
func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	k := testenv.NewKafka(t, testenv.KafkaOptions{})
	topic := createTopic(t, k.Brokers, 2, nil)
	r := start(t, testConfig(t, k.Brokers))
	// A checkpoint's transaction caught by the restart may end in doubt, which is
	// for the start order to resolve; this test is about the rows.
	r.noCheckpoints = true
	n := 0
	stream := func(rows int) {
		for range rows {
			n++
			for key := range 3 {
				r.transaction(event(topic, fmt.Sprint("k", key), fmt.Sprint(n), n))
			}
			r.drain()
		}
	}
	stream(200)
	for how, end := range map[string]func(...int) error{"stop": k.Stop, "kill": k.Kill} {
		stream(50)
		if err := end(); err != nil {
			t.Fatal(how, err)
		}
		stream(50) // while it is down
		if err := k.Start(within(t, 60*time.Second)); err != nil {
			t.Fatal(how, err)
		}
		stream(50)
		r.until("everything is acknowledged after "+how, func() bool { return r.acked == 3*n || r.err != nil })
		if r.err != nil {
			t.Fatalf("after %s: %v", how, r.err)
		}
	}
	r.noCheckpoints = false
	stream(1)
	r.untilConfirmed()
	inOrder(t, seen(t, k.Brokers, topic), 3, n)
}

// blackhole forwards to the broker until told to swallow everything.
type blackhole struct {
	mu      sync.Mutex
	swallow bool
}

func (b *blackhole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &holed{Conn: conn, hole: b, closed: make(chan struct{})}, nil
}

func (b *blackhole) open() {
	b.mu.Lock()
	b.swallow = true
	b.mu.Unlock()
}

func (b *blackhole) swallowing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.swallow
}

type holed struct {
	net.Conn
	hole   *blackhole
	once   sync.Once
	closed chan struct{}
}

func (h *holed) Write(p []byte) (int, error) {
	if h.hole.swallowing() {
		return len(p), nil // accepted, and never answered
	}
	return h.Conn.Write(p)
}

func (h *holed) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if h.hole.swallowing() {
		<-h.closed
		return 0, io.EOF
	}
	return n, err
}

func (h *holed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Conn.Close()
}

// C21: a peer that accepts but never answers must not hold up Submit or Close.
func TestC21SilentBroker(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			topic := createTopic(t, brokers, 1, nil)
			hole := new(blackhole)
			cfg := testConfig(t, brokers)
			cfg.DialContext = hole.dial
			r := start(t, cfg)
			r.transaction(event(topic, "k", "1", 1))
			r.untilConfirmed()
			acked := r.acked

			hole.open()
			began := time.Now()
			for n := 2; !r.ledger.Full(); n++ { // the whole window
				r.transaction(event(topic, "k", fmt.Sprint(n), n))
			}
			r.transaction(event("never-heard-of", "k", "x", 1_000_000))
			r.sink.Checkpoint(edgeAt(r.lsn))
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("submitting to a silent broker took %v", took)
			}
			began = time.Now()
			r.close()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("closing took %v", took)
			}
			r.drain()
			if r.acked != acked || r.err != nil {
				t.Errorf("after close: %d acknowledged, %v", r.acked-acked, r.err)
			}
			r.sink.Submit(event(topic, "k", "late", 1), checkpoint.Ticket{})
		})
	})
}

func TestCloseWithBrokersGone(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		cluster, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, nil)
		r := start(t, testConfig(t, brokers))
		r.transaction(event(topic, "k", "1", 1))
		r.untilConfirmed()
		cluster.Close()
		for n := range 1000 {
			r.transaction(event(topic, "k", "x", n+2))
		}
		r.sink.Checkpoint(edgeAt(r.lsn))
		began := time.Now()
		r.close()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("closing took %v", took)
		}
	})
}

// A claim, a load and a write end when their context does.
func TestC21SilentBrokerAtTheStart(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	hole := new(blackhole)
	cfg := testConfig(t, brokers)
	cfg.DialContext = hole.dial
	k := open(t, cfg)
	c := claim(t, k)
	hole.open()
	for name, call := range map[string]func(context.Context) error{
		"load":        func(ctx context.Context) error { _, _, err := k.Load(ctx); return err },
		"claim":       func(ctx context.Context) error { _, err := claimIn(ctx, k); return err },
		"load, owned": func(ctx context.Context) error { _, _, err := c.Load(ctx); return err },
		"write":       func(ctx context.Context) error { return c.Write(ctx, baseRecord(cfg.Pipeline)) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		cancel()
		if err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("%s returned %v after %v", name, err, time.Since(began))
		}
	}
	if err := c.Write(t.Context(), baseRecord(cfg.Pipeline)); err == nil {
		t.Error("wrote a checkpoint after one whose outcome is open")
	}
	began := time.Now()
	c.Close()
	k.Close()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("closing took %v", took)
	}
}

func TestNobodyListens(t *testing.T) {
	cfg := testConfig(t, []string{"127.0.0.1:22999"})
	k := open(t, cfg)
	_, _, err := k.Load(within(t, 500*time.Millisecond))
	if !Retriable(err) {
		t.Errorf("a broker that is down: %v", err)
	}
	mustContain(t, err, "127.0.0.1:22999", "connection refused")
}
