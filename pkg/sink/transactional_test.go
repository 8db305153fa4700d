package sink

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

// Rows of many small transactions over two topics: all there, in order, once,
// and the checkpoint beside them.
func TestExactlyOnce(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		one, two := createTopic(t, brokers, 3, nil), createTopic(t, brokers, 2, nil)
		cfg := testConfig(t, brokers)
		r, s := startWith(t, cfg, TransactionalOptions{})
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
			inOrder(t, seen(t, brokers, topic), 4, each)
		}
		mustLoad(t, open(t, cfg), r.lsn)
		if stats := s.Stats(); stats.Commits < 2 || stats.Splits != 0 || stats.Lanes[0]-stats.Lanes[1] > 1 {
			t.Errorf("%+v", stats)
		}
	})
}

// Positions of idle time are made durable alone, those that an End covers are
// not asked for twice, and a transaction without rows moves the edge.
func TestIdlePositions(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		topic := createTopic(t, brokers, 1, nil)
		r, s := startWith(t, cfg, TransactionalOptions{})
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
		r.transaction()
		r.untilConfirmed()
		mustLoad(t, open(t, cfg), r.lsn)
	})
}

// checkpoints of the pipeline that readers see, oldest first.
func checkpoints(t testing.TB, cfg Config) []checkpoint.Record {
	t.Helper()
	var out []checkpoint.Record
	for _, record := range seen(t, cfg.Brokers, cfg.checkpointTopic()) {
		decoded, err := checkpoint.DecodeRecord(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, decoded)
	}
	return out
}

// gate holds back what the cluster does with commits.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed: nothing is held
	held int
}

func holdCommits(cluster *kfake.Cluster) *gate {
	g := &gate{open: make(chan struct{})}
	cluster.ControlKey(kmsg.EndTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		g.mu.Lock()
		open := g.open
		g.held++
		g.mu.Unlock()
		cluster.SleepControl(func() { <-open })
		return pass()
	})
	return g
}

// awaitHeld waits until a commit is being held.
func (g *gate) awaitHeld(r *running) {
	r.t.Helper()
	r.until("a commit is held", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.held > 0 })
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

// What queues up while a commit is under way goes into the next one, as far as
// the ceiling allows, and a transaction above it goes alone and whole.
func TestJoining(t *testing.T) {
	const rows = 40
	size := event("x", "k", strings.Repeat("v", 1000), 0).Size()
	for name, c := range map[string]struct {
		ceiling int
		sizes   []int // rows of each transaction
		want    []int // transactions in each commit
	}{
		"all that queued":  {1 << 20, []int{1, 1, 1, 1, 1, 1, 1, 1}, []int{8}},
		"up to a ceiling":  {3*size + 200, []int{1, 1, 1, 1, 1, 1, 1, 1}, []int{3, 3, 2}},
		"one above it":     {3*size + 200, []int{1, rows, 1, 1}, []int{1, 1, 2}},
		"first above it":   {3*size + 200, []int{rows, 1}, []int{1, 1}},
		"up to it exactly": {size, []int{1, 0, 1}, []int{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, brokers := testenv.NewKfake(t)
			topic := createTopic(t, brokers, 1, nil)
			size := event(topic, "k", strings.Repeat("v", 1000), 0).Size()
			if c.ceiling < 1<<20 {
				c.ceiling = c.ceiling / 1000 * size // topic names differ in length
			}
			cfg := testConfig(t, brokers)
			gate := holdCommits(cluster)
			r, s := startWith(t, cfg, TransactionalOptions{CommitMaxBytes: c.ceiling})
			r.transaction(event(topic, "k", "first", 0))
			gate.awaitHeld(r)
			for _, n := range c.sizes {
				var events []*outbox.Event
				for i := range n {
					events = append(events, event(topic, "k", strings.Repeat("v", 1000), i))
				}
				r.transaction(events...)
			}
			gate.release()
			r.untilConfirmed()
			var got []int
			covered := checkpoints(t, cfg)
			for n := 1; n < len(covered); n++ {
				got = append(got, int(covered[n].Covered-covered[n-1].Covered)/16)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || s.Stats().Splits != 0 {
				t.Errorf("joined %v, want %v", got, c.want)
			}
		})
	}
}

// The lanes take turns, beginning with 0, and never overlap: nothing is sent on
// one before the other's commit was answered.
func TestLanesTakeTurns(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t, kfake.NumBrokers(3))
	topic := createTopic(t, brokers, 6, nil)
	cfg := testConfig(t, brokers)
	var mu sync.Mutex
	var turns, faults []string
	ending := ""
	cluster.ControlKey(kmsg.EndTxn.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		end := req.(*kmsg.EndTxnRequest)
		mu.Lock()
		if ending != "" || !end.Commit {
			faults = append(faults, fmt.Sprintf("%s ends (commit %v) while %q does", end.TransactionalID, end.Commit, ending))
		}
		ending = end.TransactionalID
		turns = append(turns, end.TransactionalID)
		mu.Unlock()
		cluster.SleepControl(func() { time.Sleep(3 * time.Millisecond) })
		mu.Lock()
		ending = ""
		mu.Unlock()
		return pass()
	})
	cluster.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce := req.(*kmsg.ProduceRequest)
		mu.Lock()
		defer mu.Unlock()
		if ending != "" {
			faults = append(faults, fmt.Sprintf("%s sends while %s ends", *produce.TransactionID, ending))
		}
		return pass()
	})
	r, _ := startWith(t, cfg, TransactionalOptions{})
	for n := range 400 {
		r.transaction(event(topic, fmt.Sprint("k", n), "v", n))
		time.Sleep(100 * time.Microsecond)
		r.drain()
	}
	r.untilConfirmed()
	mu.Lock()
	defer mu.Unlock()
	if len(turns) < 10 || len(faults) > 0 {
		t.Fatalf("%d turns, %q", len(turns), faults)
	}
	for n, id := range turns {
		if id != cfg.transactionalID(n%lanes) {
			t.Fatalf("turns: %q", turns)
		}
	}
}

// Under load, transactions begin a commit interval apart; after idleness one
// begins at once.
func TestCommitInterval(t *testing.T) {
	const interval = 100 * time.Millisecond
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	var mu sync.Mutex
	var ends []time.Time
	cluster.ControlKey(kmsg.EndTxn.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, time.Now())
		return pass()
	})
	r, s := startWith(t, testConfig(t, brokers), TransactionalOptions{CommitInterval: interval, CommitMaxBytes: 1})
	r.transaction(event(topic, "k", "v", 0))
	r.untilConfirmed()
	for n := range 5 { // with a ceiling of one byte, each is a commit of its own
		r.transaction(event(topic, "k", "v", n))
	}
	r.untilConfirmed()
	mu.Lock()
	defer mu.Unlock()
	if len(ends) != 6 || s.Stats().Commits != 6 {
		t.Fatalf("%d commits", len(ends))
	}
	if pause := ends[5].Sub(ends[1]); pause < 4*interval-interval/2 {
		t.Errorf("five commits within %v", pause)
	}
}

// large returns a sink with a small window, of which a quarter opens a Kafka
// transaction, and a topic.
func large(t *testing.T, brokers []string, o TransactionalOptions) (*running, *Transactional, Config, string) {
	cfg := testConfig(t, brokers)
	cfg.MaxInFlight.Events = 400
	topic := createTopic(t, brokers, 1, nil)
	r, s := startWith(t, cfg, o)
	return r, s, cfg, topic
}

// feed submits rows first..last of the open transaction, minding the window.
func (r *running) feed(topic string, first, last int) {
	r.t.Helper()
	for n := first; n <= last; n++ {
		r.until("there is room", func() bool { return !r.ledger.Full() })
		e := event(topic, "k0", fmt.Sprint(n), n)
		e.Position.CommitLSN, e.Position.Ordinal = edgeAt(r.lsn).CommitLSN, uint32(n)
		r.row(e)
	}
}

// A transaction larger than the window is published as its rows arrive, seen by
// nobody before its end, and then whole.
func TestLargeTransaction(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		r, s, cfg, topic := large(t, brokers, TransactionalOptions{})
		r.transaction(event(topic, "other", "before", 0))
		covered := r.lsn
		const rows = 2500
		r.begin()
		r.feed(topic, 1, rows)
		var got int
		waitFor(t, func() bool { got = len(committed(t, brokers, topic)); return got > 0 })
		if got != 1 || !isOpen(t, brokers, topic) {
			t.Errorf("readers see %d records before the end", got)
		}
		mustLoad(t, open(t, cfg), covered)
		r.end()
		r.untilConfirmed()
		inOrder(t, seen(t, brokers, topic)[1:], 1, rows)
		if stats := s.Stats(); stats.Splits != 0 || stats.Commits != 2 {
			t.Errorf("%+v", stats)
		}
	})
}

// However small the window, it goes on.
func TestTinyWindows(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	for _, window := range []checkpoint.Limits{{Events: 1, Bytes: 1}, {Events: 2, Bytes: 1 << 20}, {Events: 1000, Bytes: 700}, {Events: 7, Bytes: 1500}} {
		cfg := testConfig(t, brokers)
		cfg.MaxInFlight = window
		r, s := startWith(t, cfg, TransactionalOptions{})
		for range 3 {
			r.begin()
			r.feed(topic, 1, 50)
			r.end()
		}
		r.untilConfirmed()
		if s.Stats().Splits != 0 {
			t.Errorf("%+v: %+v", window, s.Stats())
		}
	}
}

// A transaction whose Kafka transaction has been open for too long is split:
// readers see the part, the checkpoint says how large it is, and that it was
// split is counted and logged.
func TestSplit(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			everyBroker(t, func(t *testing.T, brokers []string) {
				const rows = 1000
				log := new(locked)
				cfg := testConfig(t, brokers)
				cfg.MaxInFlight.Events = 400
				cfg.Logger = zerolog.New(log)
				topic := createTopic(t, brokers, 1, nil)
				options := TransactionalOptions{MaxTransactionTime: 300 * time.Millisecond}
				r, s := startWith(t, cfg, options)
				r.transaction(event(topic, "other", "before", 0))
				r.untilConfirmed()
				// Idle time just before it is covered by the part's checkpoint.
				covered := r.lsn + 5
				r.ledger.Mark(pglogrepl.LSN(covered))
				r.sink.Checkpoint(r.ledger.Published())
				r.begin()
				r.feed(topic, 1, rows/2)
				r.until("it is split", func() bool { return s.Stats().Splits > 0 })
				r.until("the idle time is confirmed", func() bool { return int(r.ledger.Confirmed()) == covered })
				var got checkpoint.Record
				waitFor(t, func() bool { // a slow machine may split it again
					var err error
					if got, _, err = open(t, cfg).Load(within(t, 20*time.Second)); err != nil {
						t.Fatal(err)
					}
					return got.Ordinal > 0 && len(committed(t, brokers, topic)) == 1+int(got.Ordinal)
				})
				want := edgeAt(r.lsn)
				want.Covered, want.Ordinal = pglogrepl.LSN(covered), got.Ordinal
				if got.Edge() != want || got.Complete {
					t.Fatalf("loaded %+v", got)
				}
				inOrder(t, committed(t, brokers, topic)[1:], 1, int(got.Ordinal))
				mustContain(t, fmt.Errorf("%s", log), "published in parts", edgeAt(r.lsn).CommitLSN.String(), fmt.Sprintf(`"rows_published":%d`, got.Ordinal))

				next := rows/2 + 1
				if crash {
					r.close()
					lsn := r.lsn
					r, s = startWith(t, cfg, options)
					var err error
					if got, _, err = s.claim.Load(within(t, 20*time.Second)); err != nil {
						t.Fatal(err)
					}
					want.Ordinal, next = got.Ordinal, int(got.Ordinal)+1
					r.lsn = lsn - 16
					r.ledger = newLedgerAt(got.Edge(), cfg)
					for n := range 2 { // idle time before the transaction comes again
						r.ledger.Mark(got.Covered + 1 + pglogrepl.LSN(n))
						r.sink.Checkpoint(r.ledger.Published())
						r.untilConfirmed()
					}
					want.Covered += 2
					mustLoad(t, open(t, cfg), int(want.Covered))
					if now, _, err := open(t, cfg).Load(within(t, 20*time.Second)); err != nil || now.Edge() != want {
						t.Errorf("idle time moved the checkpoint to %+v, %v", now, err)
					}
					r.begin()
				}
				r.feed(topic, next, rows)
				r.end()
				r.untilConfirmed()
				inOrder(t, seen(t, brokers, topic)[1:], 1, rows)
				mustLoad(t, open(t, cfg), r.lsn)
				if last, _, _ := open(t, cfg).Load(within(t, 20*time.Second)); last.Edge() != edgeAt(r.lsn) || !last.Complete {
					t.Errorf("the last checkpoint is %+v", last)
				}
				r.transaction(event(topic, "other", "behind", 0))
				r.untilConfirmed()
			})
		})
	}
}

// A slow broker: the time of a Kafka transaction runs out with complete
// transactions queued. Small ones are never torn; a large one behind a small one
// is, and what the small one covers is confirmed.
func TestTimeRunsOut(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	t.Run("small ones", func(t *testing.T) {
		topic := createTopic(t, brokers, 1, nil)
		r, s := startWith(t, testConfig(t, brokers), TransactionalOptions{MaxTransactionTime: 1})
		for range 20 {
			r.begin()
			r.feed(topic, 1, 3*schedule.ChunkRows+1)
			r.end()
		}
		r.untilConfirmed()
		if stats := s.Stats(); stats.Splits != 0 || stats.Commits != 20 {
			t.Errorf("%+v", stats)
		}
	})
	t.Run("a large one behind a small one", func(t *testing.T) {
		cluster, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, nil)
		cfg := testConfig(t, brokers)
		cfg.DialContext = slow(20 << 20)
		gate := holdCommits(cluster)
		r, s := startWith(t, cfg, TransactionalOptions{MaxTransactionTime: 100 * time.Millisecond})
		r.transaction(event(topic, "k", "first", 0))
		gate.awaitHeld(r)
		r.transaction(event(topic, "k", "small", 0))
		small := r.lsn
		r.begin()
		const rows = 150
		for n := 1; n <= rows; n++ {
			e := event(topic, "k", string(make([]byte, 100_000)), n)
			e.Position.CommitLSN, e.Position.Ordinal = edgeAt(r.lsn).CommitLSN, uint32(n)
			r.row(e)
		}
		r.end()
		gate.release()
		r.until("it is split", func() bool { return s.Stats().Splits > 0 || r.err != nil })
		r.untilConfirmed()
		if got := len(seen(t, brokers, topic)); got != rows+2 {
			t.Errorf("readers see %d", got)
		}
		records := checkpoints(t, cfg)
		if part := records[1]; int(part.Covered) != small || part.Complete || int(part.Ordinal) >= rows {
			t.Errorf("the part's checkpoint is %+v", part)
		}
	})
}

// slow dials connections that take so many bytes a second.
func slow(rate int) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return throttled{conn, rate}, err
	}
}

type throttled struct {
	net.Conn
	rate int
}

func (c throttled) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(c.rate))
	return c.Conn.Write(p)
}

// Both topics of a transaction appear together, whenever one looks.
func TestAtomicAcrossTopics(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		one, two := createTopic(t, brokers, 1, nil), createTopic(t, brokers, 1, nil)
		r, _ := startWith(t, testConfig(t, brokers), TransactionalOptions{})
		const rounds = 15
		for n := range rounds {
			r.transaction(event(one, "k", "v", n), event(two, "k", "v", n), event(one, "k", "v", n))
			r.untilConfirmed()
			r.begin() // and one that is not complete
			r.row(event(one, "k", "v", n))
			r.row(event(two, "k", "v", n))
			// A commit is answered before its markers are written.
			var a, b []*kgo.Record
			waitFor(t, func() bool {
				a, b = committed(t, brokers, one), committed(t, brokers, two)
				return len(a) >= 3*n+2 && len(b) >= 2*n+1
			})
			if len(a) != 3*n+2 || len(b) != 2*n+1 {
				t.Fatalf("after %d transactions readers see %d and %d", n+1, len(a), len(b))
			}
			r.end()
			r.untilConfirmed()
		}
	})
}
