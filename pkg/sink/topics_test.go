package sink

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
)

func TestCreateTopics(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		for name, c := range map[string]struct {
			partitions int32
			want       int
		}{"asked for": {5, 5}, "the broker's default": {-1, 0}} {
			cfg := testConfig(t, brokers)
			cfg.CreateTopics, cfg.TopicPartitions, cfg.TopicReplicationFactor = true, c.partitions, 1
			r := start(t, cfg)
			// Case is kept, and many topics are looked up together.
			var topics []string
			for n := range 20 {
				topics = append(topics, unique("Made.BY_us"))
				r.transaction(event(topics[n], "k", "x", n))
			}
			r.untilConfirmed()
			details, err := kadm.NewClient(client(t, brokers)).ListTopics(within(t, 20*time.Second), topics...)
			if err != nil {
				t.Fatal(err)
			}
			for _, topic := range topics {
				if got := len(details[topic].Partitions); details[topic].Err != nil || got == 0 || c.want != 0 && got != c.want {
					t.Errorf("%s: topic %s has %d partitions, want %d (%v)", name, topic, got, c.want, details[topic].Err)
				}
			}
		}
	})
}

func TestCreateTopicsRefusedByTheCluster(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		cfg.CreateTopics, cfg.TopicReplicationFactor = true, 9
		r := start(t, cfg)
		r.transaction(event(unique("wide"), "k", "x", 1))
		err := r.untilError()
		if !as[*DeliveryError](err) {
			t.Fatalf("reported %v", err)
		}
		mustContain(t, err, "replication factor 9")
	})
}

// A broker that does not know a topic yet is doubted; only a topic that stays
// unknown is refused.
func TestATopicIsNotMissingAtTheFirstAnswer(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	cfg := testConfig(t, brokers)
	r := start(t, cfg)
	faults := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.UnknownTopicOrPartition, Count: doubts - 1})
	r.transaction(event(topic, "k", "x", 1))
	r.untilConfirmed()
	if faults.Hits() != doubts-1 {
		t.Errorf("answered unknown %d times", faults.Hits())
	}
	// The same for the checkpoint topic: a start must not take a hiccup for a
	// wiped cluster.
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: cfg.checkpointTopic(), Err: kerr.UnknownTopicOrPartition, Count: doubts - 1})
	mustLoad(t, open(t, cfg), r.lsn)
}

func TestTopicVanishesWhileStreaming(t *testing.T) {
	t.Parallel()
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	r := start(t, testConfig(t, brokers))
	r.transaction(event(topic, "k", "1", 1))
	r.untilConfirmed()
	if err := cluster.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	r.transaction(event(topic, "k", "2", 2))
	err := r.untilError()
	if !as[*DeliveryError](err) {
		t.Fatalf("reported %v", err)
	}
	mustContain(t, err, "does not exist", topic)
}

func TestTopicIsMadeAnewWhileStreaming(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	r := start(t, testConfig(t, brokers))
	r.transaction(event(topic, "k", "1", 1))
	r.untilConfirmed()
	if err := errors.Join(cluster.DeleteTopic(topic), cluster.CreateTopic(topic, 1, nil)); err != nil {
		t.Fatal(err)
	}
	r.transaction(event(topic, "k", "2", 2))
	if err := r.untilError(); !Retriable(err) {
		t.Fatalf("reported %v", err)
	}
}

// locked lets a logger be read while it is written.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestMorePartitionsAreLogged(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 2, nil)
	cfg := testConfig(t, brokers)
	log := new(locked)
	cfg.Logger = zerolog.New(log).Level(zerolog.InfoLevel)
	k := open(t, cfg)
	l := newLookout(k, NewMailbox())
	l.ask(topic)
	l.recheck = 10 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { l.run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	waitFor(t, func() bool { return len(l.answers()) == 1 })
	if _, err := kadm.NewClient(client(t, brokers)).CreatePartitions(t.Context(), 3, topic); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		return strings.Contains(log.String(), "the topic's number of partitions changed: keys go to other partitions from here on")
	})
	for _, part := range []string{topic, `"before":2`, `"now":5`} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("log %s lacks %s", log, part)
		}
	}
	if n := strings.Count(log.String(), "the topic's number of partitions changed: keys go to other partitions from here on"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}
