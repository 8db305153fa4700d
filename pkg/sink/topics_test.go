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
		cfg.CreateTopics, cfg.TopicPartitions, cfg.TopicReplicationFactor = true, -1, 9
		r := start(t, cfg)
		r.transaction(event(unique("wide"), "k", "x", 1))
		err := r.untilError()
		if !as[*DeliveryError](err) {
			t.Fatalf("reported %v", err)
		}
		mustContain(t, err, "replication factor 9", "the broker's default number of partitions")
	})
}

func TestTopicSpecInWords(t *testing.T) {
	for _, c := range []struct {
		spec topicSpec
		want string
	}{
		{topicSpec{partitions: -1, replicas: -1}, "the broker's default number of partitions and replication factor"},
		{topicSpec{partitions: 3, replicas: -1}, "3 partitions and the broker's default replication factor"},
		{topicSpec{partitions: -1, replicas: 2}, "the broker's default number of partitions and replication factor 2"},
		{topicSpec{partitions: 1, replicas: 2}, "1 partition and replication factor 2"},
	} {
		if got := c.spec.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A topic that was deleted and is made anew may have another number of
// partitions: who relies on the order of a key has to know. The client of a run
// does not know what the one before knew; the process does.
func TestTopicMadeAnewWithOtherPartitions(t *testing.T) {
	const changed = "made the topic anew"
	for name, c := range map[string]struct {
		before    int32
		otherRun  bool
		wantWords []string
	}{
		"others":                 {5, false, []string{changed, `"before":5`, `"partitions":2`, "keys go to other partitions"}},
		"others, in another run": {5, true, []string{changed, `"before":5`, `"partitions":2`}},
		"the same":               {2, false, []string{"made the topic"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, brokers := testenv.NewKfake(t)
			topic := createTopic(t, brokers, c.before, nil)
			cfg := testConfig(t, brokers)
			cfg.CreateTopics, cfg.TopicPartitions, cfg.TopicReplicationFactor = true, 2, 1
			log := new(locked)
			cfg.Logger = zerolog.New(log).Level(zerolog.InfoLevel)
			cfg.Seen = NewSeen()
			k := open(t, cfg)
			learn := func() {
				t.Helper()
				facts, err := k.learn(within(t, 20*time.Second), []string{topic})
				if err != nil || len(facts) != 1 || facts[0].err != nil {
					t.Fatalf("got %+v, %v", facts, err)
				}
			}
			learn()
			if err := cluster.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			if c.otherRun {
				k = open(t, cfg)
			}
			learn()
			for _, part := range append(c.wantWords, topic) {
				if !strings.Contains(log.String(), part) {
					t.Errorf("log %s lacks %s", log, part)
				}
			}
			if c.before == 2 && strings.Contains(log.String(), changed) {
				t.Errorf("log %s tells of a change", log)
			}
		})
	}
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
