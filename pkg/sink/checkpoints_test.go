package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/checkpoint/checkpointtest"
)

// foreign is a transactional producer that is not the pipeline's.
func foreign(t testing.TB, brokers []string) *kgo.Client {
	return client(t, brokers, kgo.TransactionalID(unique("foreign")), kgo.TransactionTimeout(10*time.Second))
}

func writeIn(t testing.TB, c *kgo.Client, topic, key, value string, end *kgo.TransactionEndTry) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one after the other: see lane.commit
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if end != nil {
		if err := c.EndTransaction(ctx, *end); err != nil {
			t.Fatal(err)
		}
	}
}

func endAs(commit kgo.TransactionEndTry) *kgo.TransactionEndTry { return &commit }

// mustLoad waits until readers see what a commit that was answered has written.
func mustLoad(t testing.TB, store checkpoint.Store, want int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, found, err := store.Load(within(t, 20*time.Second))
		if err == nil && found == (want != 0) && int(got.Covered) == want {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("loaded %d (found %v, %v), want %d", got.Covered, found, err, want)
		}
	}
}

func TestLoadFindsTheNewest(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		k := open(t, testConfig(t, brokers))
		topic := k.cfg.checkpointTopic()
		mustLoad(t, k, 0) // no topic, and none is made by reading
		if _, found, err := k.lookUpOne(t.Context(), topic); err != nil || found {
			t.Fatalf("reading made the topic: %v, %v", found, err)
		}
		c := claim(t, k)
		mustLoad(t, k, 0)
		mustLoad(t, c, 0) // an empty topic

		base := baseRecord(k.cfg.Pipeline)
		write := func(lsn int) {
			t.Helper()
			if err := c.Write(within(t, 20*time.Second), base.With(edgeAt(lsn))); err != nil {
				t.Fatal(err)
			}
		}
		write(100)
		write(200)
		mustLoad(t, c, 200)

		// Thirty aborted transactions hide the newest sixty offsets back.
		other := foreign(t, brokers)
		older, err := base.With(edgeAt(9999)).Encode()
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			writeIn(t, other, topic, k.cfg.Pipeline, string(older), endAs(kgo.TryAbort))
		}
		mustLoad(t, k, 200)
		mustLoad(t, c, 200)

		// Another key is nobody's checkpoint.
		for range 80 {
			writeIn(t, other, topic, "another", string(older), endAs(kgo.TryCommit))
		}
		mustLoad(t, c, 200)
		write(300)
		mustLoad(t, c, 300)
	})
}

// An open transaction that is not ours may hide a newer record.
func TestLoadRefusesAnOpenForeignTransaction(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		k := open(t, testConfig(t, brokers))
		k.patience = 300 * time.Millisecond
		c := claim(t, k)
		if err := c.Write(within(t, 20*time.Second), baseRecord(k.cfg.Pipeline).With(edgeAt(100))); err != nil {
			t.Fatal(err)
		}
		other := foreign(t, brokers)
		writeIn(t, other, k.cfg.checkpointTopic(), "x", "y", nil)
		mustLoad(t, k, 100) // the look before the claim does not mind
		_, _, err := c.Load(within(t, 20*time.Second))
		var setup *SetupError
		if !errors.As(err, &setup) || Retriable(err) {
			t.Fatalf("loaded with a transaction open: %v", err)
		}
		mustContain(t, err, k.cfg.checkpointTopic(), "kafka-transactions.sh", "producer id")

		k.patience = 20 * time.Second // and one that ends is waited for
		done := make(chan error, 1)
		go func() {
			time.Sleep(200 * time.Millisecond)
			done <- other.EndTransaction(context.Background(), kgo.TryAbort)
		}()
		mustLoad(t, c, 100)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// One of our own that is open all the same is no reason for a person to come:
// the next claim ends it.
func TestLoadOverAnOpenTransactionOfOurOwn(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		k := open(t, testConfig(t, brokers))
		k.patience = 300 * time.Millisecond
		c := claim(t, k)
		if err := c.Write(within(t, 20*time.Second), baseRecord(k.cfg.Pipeline).With(edgeAt(100))); err != nil {
			t.Fatal(err)
		}
		writeIn(t, c.lane[1].client, k.cfg.checkpointTopic(), "x", "y", nil)
		_, _, err := c.Load(within(t, 20*time.Second))
		if !errors.Is(err, ErrUncertain) || !Retriable(err) {
			t.Fatalf("loaded with a transaction of our own open: %v", err)
		}
		mustContain(t, err, k.cfg.checkpointTopic(), "kafka-transactions.sh", "this pipeline's own")
		mustLoad(t, claim(t, k), 100)
	})
}

// What a dead instance left open is ended by the claim.
func TestClaimEndsWhatADeadInstanceLeftOpen(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		k := open(t, testConfig(t, brokers))
		first := claim(t, k)
		if err := first.Write(within(t, 20*time.Second), baseRecord(k.cfg.Pipeline).With(edgeAt(100))); err != nil {
			t.Fatal(err)
		}
		for n, lane := range first.lane {
			value, err := baseRecord(k.cfg.Pipeline).With(edgeAt(200 + n)).Encode()
			if err != nil {
				t.Fatal(err)
			}
			writeIn(t, lane.client, k.cfg.checkpointTopic(), k.cfg.Pipeline, string(value), nil)
		}
		first.Close() // the connections are gone, the transactions are open
		mustLoad(t, k, 100)
		mustLoad(t, claim(t, k), 100)
	})
}

func TestLoadOtherStates(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		k := open(t, testConfig(t, brokers))
		c := claim(t, k)
		topic := k.cfg.checkpointTopic()
		other := foreign(t, brokers)
		put := func(value string) {
			t.Helper()
			writeIn(t, other, topic, k.cfg.Pipeline, value, endAs(kgo.TryCommit))
		}

		put(`{"format":99,"walstream_version":"9.0"}`)
		if _, _, err := c.Load(t.Context()); !errors.Is(err, checkpoint.ErrNewerFormat) {
			t.Errorf("a newer format: %v", err)
		}
		put(`not json`)
		if _, found, err := c.Load(t.Context()); err == nil || found {
			t.Errorf("loaded what nobody can read")
		} else {
			mustContain(t, err, topic)
		}
		// A tombstone takes the checkpoint back.
		ctx := within(t, 20*time.Second)
		if err := other.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := other.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(k.cfg.Pipeline)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := other.EndTransaction(ctx, kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, c, 0)

		// Records removed up to the end: nothing is found, and nothing hangs.
		if err := c.Write(ctx, baseRecord(k.cfg.Pipeline).With(edgeAt(100))); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, c, 100)
		if _, err := kadm.NewClient(client(t, brokers)).DeleteTopic(ctx, topic); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, k, 0) // wiped
	})
}

func TestLoadOfACompactedTopic(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	k := open(t, testConfig(t, brokers))
	c := claim(t, k)
	base := baseRecord(k.cfg.Pipeline)
	for n := 1; n <= 200; n++ {
		if err := c.Write(t.Context(), base.With(edgeAt(100*n))); err != nil {
			t.Fatal(err)
		}
	}
	before := cluster.PartitionInfo(k.cfg.checkpointTopic(), 0).NumBytes
	cluster.Compact()
	if after := cluster.PartitionInfo(k.cfg.checkpointTopic(), 0).NumBytes; after >= before {
		t.Fatalf("nothing was compacted: %d bytes before, %d after", before, after)
	}
	mustLoad(t, c, 20_000)
	if err := c.Write(t.Context(), base.With(edgeAt(30_000))); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, c, 30_000)
}

func TestClaimRefusesATopicThatForgets(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		adm := kadm.NewClient(client(t, brokers))
		for policy, refused := range map[string]bool{"delete": true, "compact,delete": true, "compact": false} {
			cfg := testConfig(t, brokers)
			if _, err := adm.CreateTopic(within(t, 20*time.Second), 1, -1, map[string]*string{"cleanup.policy": &policy}, cfg.checkpointTopic()); err != nil {
				t.Fatal(err)
			}
			c, err := claimIn(within(t, 20*time.Second), open(t, cfg))
			if c != nil {
				c.Close()
			}
			if !refused {
				if err != nil {
					t.Errorf("%s: %v", policy, err)
				}
				continue
			}
			if !as[*SetupError](err) {
				t.Fatalf("%s: %v", policy, err)
			}
			mustContain(t, err, "cleanup.policy="+policy, "kafka-configs.sh", cfg.checkpointTopic())
		}
		cfg := testConfig(t, brokers)
		compact := "compact"
		if _, err := adm.CreateTopic(within(t, 20*time.Second), 3, -1, map[string]*string{"cleanup.policy": &compact}, cfg.checkpointTopic()); err != nil {
			t.Fatal(err)
		}
		k := open(t, cfg)
		if _, err := claimIn(within(t, 20*time.Second), k); !as[*SetupError](err) {
			t.Errorf("claimed a topic of three partitions: %v", err)
		}
		if _, _, err := k.Load(within(t, 20*time.Second)); !as[*SetupError](err) {
			t.Errorf("read a topic of three partitions: %v", err)
		}
	})
}

// One checkpoint under way at a time, the newest edge only, ten a second under
// load, at once after a pause.
func TestCommitter(t *testing.T) {
	box := NewMailbox()
	var mu sync.Mutex
	var written []checkpoint.Edge
	var times []time.Time
	release := make(chan struct{})
	fail := make(chan struct{})
	c := newCommitter(box, func(ctx context.Context, edge checkpoint.Edge) error {
		mu.Lock()
		written, times = append(written, edge), append(times, time.Now())
		mu.Unlock()
		select {
		case <-release:
			return nil
		case <-fail:
			return fmt.Errorf("broken: %w", ErrFenced)
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { c.run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()

	c.offer(edgeAt(100))
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(written) == 1 })
	for lsn := 200; lsn <= 1000; lsn += 100 {
		c.offer(edgeAt(lsn))
	}
	c.offer(edgeAt(300)) // an older one never replaces a newer one
	if c.idle() {
		t.Error("idle with a write under way")
	}
	release <- struct{}{}
	release <- struct{}{}
	waitFor(t, c.idle)
	var report checkpoint.Report
	box.Drain(&report)
	if len(written) != 2 || int(written[1].Covered) != 1000 || int(report.Durable.Covered) != 1000 {
		t.Errorf("wrote %v, durable %v", written, report.Durable)
	}
	if pause := times[1].Sub(times[0]); pause < checkpointPause {
		t.Errorf("the second followed after %v", pause)
	}
	c.offer(edgeAt(1100))
	close(fail)
	waitFor(t, func() bool { box.Drain(&report); return report.Err != nil })
	if !errors.Is(report.Err, ErrFenced) || int(report.Durable.Covered) != 1000 {
		t.Errorf("reported %v, durable %v", report.Err, report.Durable)
	}
}

func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited too long")
		}
	}
}

func TestStoreSuite(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		checkpointtest.Run(t, func(t *testing.T) checkpointtest.Written {
			k := open(t, testConfig(t, brokers))
			c := claim(t, k)
			return checkpointtest.Written{Store: c, Pipeline: k.cfg.Pipeline, Version: k.cfg.Version, Write: c.Write}
		})
	})
}

// The first transaction of a client is committed like any other: the library
// can take it for empty, abort it and report success (see lane.commit).
func TestFirstCheckpointOfAClaimIsCommitted(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	k := open(t, testConfig(t, brokers))
	for n := 1; n <= 150; n++ {
		c, err := claimIn(within(t, 20*time.Second), k)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(within(t, 20*time.Second), baseRecord(k.cfg.Pipeline).With(edgeAt(100*n))); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, c, 100*n)
		c.Close()
	}
}

// Lanes are taken in order, and nothing is done with one alone: two instances that
// each own one would both commit.
func TestLanesAreTakenInOrder(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	ctx := within(t, 20*time.Second)
	k := open(t, testConfig(t, brokers))
	take := func(c *Claim, lanes ...int) {
		t.Cleanup(c.Close)
		for _, lane := range lanes {
			if err := c.Take(ctx, lane); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, misuse := range map[string]func(c *Claim){
		"lane 1 first":   func(c *Claim) { take(c, 1) },
		"lane 0 again":   func(c *Claim) { take(c, 0, 0) },
		"lane 1 again":   func(c *Claim) { take(c, 0, 1, 1) },
		"load with one":  func(c *Claim) { take(c, 0); _, _, _ = c.Load(ctx) },
		"write with one": func(c *Claim) { take(c, 0); _ = c.Write(ctx, baseRecord(k.cfg.Pipeline)) },
		"exactly-once with one": func(c *Claim) {
			take(c, 0)
			c.NewTransactional(baseRecord(k.cfg.Pipeline), TransactionalOptions{}).Close()
		},
		"at-least-once with one": func(c *Claim) { take(c, 0); c.NewIdempotent(baseRecord(k.cfg.Pipeline)).Close() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "walstream: bug: ") {
					t.Errorf("panics with %q", text)
				}
			}()
			misuse(k.NewClaim(nil))
		})
	}
}
