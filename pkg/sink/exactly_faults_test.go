package sink

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/walstream/walstream/internal/testenv"
)

// A crash before the commit leaves nothing behind that counts: readers see what
// the last checkpoint covers, at once when the sink was closed in good order.
func TestCrashBeforeTheCommit(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		for _, dead := range []bool{false, true} {
			hole := new(blackhole)
			r, s, cfg, topic := largeOver(t, brokers, hole, TransactionalOptions{})
			r.transaction(event(topic, "k", "one", 1))
			r.untilConfirmed()
			covered := r.lsn
			r.begin()
			r.feed(topic, 1, 300)
			r.until("rows are published", func() bool { return r.acked > 200 })
			if !isOpen(t, brokers, topic) {
				t.Error("no transaction is open")
			}
			if dead {
				hole.open()
			}
			began := time.Now()
			s.Close()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("closing took %v", took)
			}
			if !dead {
				waitFor(t, func() bool { return !isOpen(t, brokers, topic) })
			}
			mustLoad(t, claim(t, open(t, testConfigOf(cfg))), covered)
			waitFor(t, func() bool { return !isOpen(t, brokers, topic) })
			if got := values(seen(t, brokers, topic)); len(got) != 1 {
				t.Errorf("readers see %d records", len(got))
			}
		}
	})
}

// largeOver is large over connections that can be silenced.
func largeOver(t *testing.T, brokers []string, hole *blackhole, o TransactionalOptions) (*running, *Transactional, Config, string) {
	cfg := testConfig(t, brokers)
	cfg.MaxInFlight.Events = 400
	cfg.DialContext = hole.dial
	topic := createTopic(t, brokers, 1, nil)
	r, s := startWith(t, cfg, o)
	return r, s, cfg, topic
}

// testConfigOf is the same pipeline over good connections.
func testConfigOf(cfg Config) Config {
	cfg.DialContext = nil
	return cfg
}

// What becomes of a commit whose answer is no answer is not guessed: whether the
// broker has carried it out or not, the sink stops, and the next claim knows.
func TestCommitWithoutAnAnswer(t *testing.T) {
	for _, carriedOut := range []bool{false, true} {
		t.Run(fmt.Sprint("carried-out=", carriedOut), func(t *testing.T) {
			cluster, brokers := testenv.NewKfake(t)
			topic := createTopic(t, brokers, 1, nil)
			cfg := testConfig(t, brokers)
			r, _ := startWith(t, cfg, TransactionalOptions{})
			for n := range 3 {
				r.transaction(event(topic, "k", "before", n))
				r.untilConfirmed()
			}
			confirmed := r.ledger.Confirmed()

			other := client(t, brokers)
			done := false
			cluster.ControlKey(kmsg.EndTxn.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
				if done { // our own, by which it is carried out
					return pass()
				}
				done = true
				end := *req.(*kmsg.EndTxnRequest)
				if carriedOut {
					cluster.SleepControl(func() {
						if _, err := end.RequestWith(context.Background(), other); err != nil {
							t.Error(err)
						}
					})
				}
				answer := end.ResponseKind().(*kmsg.EndTxnResponse)
				answer.SetVersion(req.GetVersion())
				answer.ErrorCode = kerr.UnknownServerError.Code
				cluster.DropControl()
				return answer, nil, true
			})
			r.transaction(event(topic, "k", "doubtful", 3))
			r.transaction(event(topic, "k", "behind", 4))
			if err := r.untilError(); !errors.Is(err, ErrUncertain) || !Retriable(err) {
				t.Fatalf("reported %v", err)
			}
			if got := r.ledger.Confirmed(); got != confirmed {
				t.Errorf("confirmed %s after %s", got, confirmed)
			}
			r.close()
			got, _, err := claim(t, open(t, cfg)).Load(within(t, 20*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			visible := values(seen(t, brokers, topic))
			if carriedOut && (int(got.Covered) != r.lsn-16 && int(got.Covered) != r.lsn || len(visible) < 4) {
				t.Errorf("carried out: readers see %q, the checkpoint covers %s", visible, got.Covered)
			}
			if !carriedOut && (got.Covered != confirmed || len(visible) != 3) {
				t.Errorf("not carried out: readers see %q, the checkpoint covers %s", visible, got.Covered)
			}
		})
	}
}

// Fenced in the middle of a large transaction, and on either lane: nothing of it
// is ever seen.
func TestFencedInsideATransaction(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		for turn := range lanes {
			r, _, cfg, topic := large(t, brokers, TransactionalOptions{})
			for n := range turn {
				r.transaction(event(topic, "k", "before", n))
				r.untilConfirmed()
			}
			r.begin()
			r.feed(topic, 1, 300)
			r.until("rows are published", func() bool { return r.acked > 200 })
			second := claim(t, open(t, cfg))
			for n := 301; r.err == nil; n++ {
				for r.drain(); r.ledger.Full() && r.err == nil; r.drain() {
					<-r.sink.Ready()
				}
				r.row(event(topic, "k0", "zombie", n))
			}
			if !errors.Is(r.err, ErrFenced) {
				t.Fatalf("reported %v", r.err)
			}
			if _, _, err := second.Load(within(t, 20*time.Second)); err != nil {
				t.Error(err)
			}
			if got := len(seen(t, brokers, topic)); got != turn {
				t.Errorf("readers see %d records of the fenced instance", got-turn)
			}
		}
	})
}

// A claim of one lane alone is enough to end the other instance before it
// commits there, and what it commits before that, the claimant waits for.
func TestTakeoverUnderLoad(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 1, nil)
		cfg := testConfig(t, brokers)
		var n int
		for round := range 5 {
			r, _ := startWith(t, cfg, TransactionalOptions{CommitInterval: time.Millisecond})
			if got, found, err := open(t, cfg).Load(within(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			} else if found {
				r.lsn, n = int(got.Covered), (int(got.Covered)-1000)/16
				r.ledger = newLedgerAt(got.Edge(), cfg)
			}
			stop := make(chan error, 1)
			taken := make(chan *Claim, 1)
			go func() {
				time.Sleep(time.Duration(20+round*7) * time.Millisecond)
				c, err := claimIn(context.Background(), open(t, cfg))
				taken <- c
				stop <- err
			}()
			for r.err == nil {
				n++
				r.transaction(event(topic, "k0", fmt.Sprint(n), n))
				time.Sleep(200 * time.Microsecond)
				r.drain()
			}
			if err := <-stop; err != nil {
				t.Fatal(err)
			}
			if !errors.Is(r.err, ErrFenced) && !errors.Is(r.err, ErrUncertain) {
				t.Fatalf("reported %v", r.err)
			}
			next := <-taken
			got, _, err := next.Load(within(t, 20*time.Second))
			if err != nil || got.Covered < r.ledger.Confirmed() {
				t.Fatalf("loaded %s, confirmed was %s, %v", got.Covered, r.ledger.Confirmed(), err)
			}
			inOrder(t, seen(t, brokers, topic), 1, (int(got.Covered)-1000)/16)
			next.Close()
			r.close()
		}
	})
}

// A checkpoint that is refused takes its transaction with it.
func TestRefusedCheckpoint(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	cfg := testConfig(t, brokers)
	r, _ := startWith(t, cfg, TransactionalOptions{})
	r.transaction(event(topic, "k", "before", 0))
	r.untilConfirmed()
	covered := r.lsn
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: cfg.checkpointTopic(), Err: kerr.TopicAuthorizationFailed})
	r.transaction(event(topic, "k", "after", 1))
	err := r.untilError()
	if !as[*AccessError](err) {
		t.Errorf("reported %v", err)
	}
	mustContain(t, err, cfg.checkpointTopic())
	mustLoad(t, claim(t, open(t, cfg)), covered)
	if got := values(seen(t, brokers, topic)); len(got) != 1 || isOpen(t, brokers, topic) {
		t.Errorf("readers see %q, open %v", got, isOpen(t, brokers, topic))
	}
}

// What a refused row ends is aborted before it is reported: it hides nothing from
// other readers, even if nobody starts again.
func TestRefusalAborts(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		r, _, cfg, topic := large(t, brokers, TransactionalOptions{})
		r.transaction(event(topic, "k", "before", 0))
		r.untilConfirmed()
		covered := r.lsn
		r.begin()
		r.feed(topic, 1, 300)
		r.row(event(topic, "k", string(make([]byte, 2<<20)), 301))
		if err := r.untilError(); !as[*DeliveryError](err) {
			t.Fatalf("reported %v", err)
		}
		waitFor(t, func() bool { return !isOpen(t, brokers, topic) })
		if got := values(seen(t, brokers, topic)); len(got) != 1 {
			t.Errorf("readers see %d records", len(got))
		}
		mustLoad(t, claim(t, open(t, cfg)), covered)
	})
}

// The library may give itself a new epoch inside a transaction, by which the
// broker drops what was in it so far; committing the rest would be a loss.
func TestNewEpochInsideATransaction(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	r, _, cfg, topic := large(t, brokers, TransactionalOptions{})
	r.transaction(event(topic, "k", "before", 0))
	r.untilConfirmed()
	r.transaction(event(topic, "k", "before", 1))
	r.untilConfirmed()
	covered := r.lsn
	r.begin()
	r.feed(topic, 1, 200)
	r.until("rows are published", func() bool { return r.acked > 100 })
	cluster.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce := req.(*kmsg.ProduceRequest)
		answer := produce.ResponseKind().(*kmsg.ProduceResponse)
		answer.SetVersion(req.GetVersion())
		for _, rt := range produce.Topics {
			at := kmsg.NewProduceResponseTopic()
			at.Topic, at.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				ap := kmsg.NewProduceResponseTopicPartition()
				// As a broker answers that has truncated the partition beyond what it
				// knew of the producer.
				ap.Partition, ap.ErrorCode, ap.LogStartOffset = rp.Partition, kerr.UnknownProducerID.Code, 1_000_000
				at.Partitions = append(at.Partitions, ap)
			}
			answer.Topics = append(answer.Topics, at)
		}
		return answer, nil, true
	})
	r.feed(topic, 201, 300)
	r.end()
	err := r.untilError()
	if !errors.Is(err, ErrUncertain) {
		t.Errorf("reported %v", err)
	}
	mustContain(t, err, errNewProducer.Error())
	r.close()
	mustLoad(t, claim(t, open(t, cfg)), covered)
	if got := len(seen(t, brokers, topic)); got != 2 {
		t.Errorf("readers see %d records", got)
	}
}

// The first transaction of a lane is committed like any other, whatever topics it
// is the first to write to; so is the one after it.
func TestFreshTopicsAreCommitted(t *testing.T) {
	_, brokers := testenv.NewKfake(t, kfake.NumBrokers(1))
	cfg := testConfig(t, brokers)
	cfg.CreateTopics = true
	topics := make([]string, 6)
	for n := range topics {
		topics[n] = createTopic(t, brokers, 1, nil)
	}
	for round := 1; round <= 60; round++ {
		r, s := startWith(t, cfg, TransactionalOptions{})
		r.lsn = 1000 + 100*round
		r.ledger = newLedgerAt(edgeAt(r.lsn), cfg)
		for n := range 4 {
			for _, topic := range topics[n/2*3 : n/2*3+3] {
				r.transaction(event(topic, "k", fmt.Sprint(round, n), n))
			}
			r.untilConfirmed()
		}
		mustLoad(t, open(t, cfg), r.lsn)
		s.Close()
	}
	for _, topic := range topics {
		if got := len(seen(t, brokers, topic)); got != 120 {
			t.Errorf("topic %s holds %d of 120", topic, got)
		}
	}
}

// Brokers before 4.0 count epochs and partitions of transactions differently; the
// real ones of that age are for the campaigns.
func TestExactlyOnceOnOlderBrokers(t *testing.T) {
	for name, versions := range map[string]*kversion.Versions{"3.9": kversion.V3_9_0(), "2.8": kversion.V2_8_0()} {
		t.Run(name, func(t *testing.T) {
			_, brokers := testenv.NewKfake(t, kfake.MaxVersions(versions))
			one, two := createTopic(t, brokers, 3, nil), createTopic(t, brokers, 1, nil)
			cfg := testConfig(t, brokers)
			r, _ := startWith(t, cfg, TransactionalOptions{})
			const each = 50
			for n := 1; n <= each; n++ {
				for key := range 4 {
					k := fmt.Sprint("k", key)
					r.transaction(event(one, k, fmt.Sprint(n), n))
					if n > each/2 { // later than the lanes' first
						r.transaction(event(two, k, fmt.Sprint(n-each/2), n))
					}
				}
				r.untilConfirmed()
			}
			inOrder(t, seen(t, brokers, one), 4, each)
			inOrder(t, seen(t, brokers, two), 4, each/2)
			covered := r.lsn
			second := claim(t, open(t, cfg))
			r.transaction(event(one, "k", "zombie", 0))
			if err := r.untilError(); !errors.Is(err, ErrFenced) {
				t.Errorf("reported %v", err)
			}
			mustLoad(t, second, covered)
		})
	}
}

// A lane is not committed before its client has stored every topic that it wrote
// to: it would take the transaction for empty, abort it and report success.
func TestCommitWaitsForTheClientsTopics(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	commits := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Observe: true, Count: -1})
	l := newLane(0, client(t, brokers, kgo.TransactionalID(unique("lane"))))
	if err := l.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.writes(topic) // but has not: the client knows nothing of it
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.commit(ctx); !errors.Is(err, context.DeadlineExceeded) || l.asked || commits.Hits() != 0 {
		t.Fatalf("committed: %v, asked %v", err, l.asked)
	}
	if err := produceOne(t.Context(), l.client, &kgo.Record{Topic: topic, Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := l.commit(t.Context()); err != nil || commits.Hits() != 1 {
		t.Fatalf("not committed: %v", err)
	}
	if got := len(seen(t, brokers, topic)); got != 1 {
		t.Errorf("readers see %d records", got)
	}
}
