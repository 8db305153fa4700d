package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
)

func TestWhyAPartitionIsStuck(t *testing.T) {
	for name, c := range map[string]struct {
		leader int32
		inSync []int32
		wanted int
		says   []string // nothing when it is in order
	}{
		"in order":        {1, []int32{1, 2}, 2, nil},
		"one too few":     {1, []int32{1}, 2, []string{`partition 4 of topic "orders"`, "has 1 of its replicas [1 2 3] in sync", "min.insync.replicas is 2"}},
		"none leads":      {-1, []int32{1, 2}, 2, []string{"no leader", "[1 2 3]"}},
		"setting unknown": {1, []int32{1}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.Replicas, p.ISR = 4, c.leader, []int32{1, 2, 3}, c.inSync
			why := whyPartitionStuck("orders", &p, c.wanted)
			if (why == "") != (c.says == nil) {
				t.Fatalf("says %q", why)
			}
			for _, part := range c.says {
				if !strings.Contains(why, part) {
					t.Errorf("%q does not say %q", why, part)
				}
			}
		})
	}
}

// A broker that answers and acknowledges nothing: the reason is told, once, and
// taken back when rows flow again.
func TestStuckIsTold(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		cluster, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, nil)
		two := "2" // a fake has one replica
		if _, err := kadm.NewClient(client(t, brokers)).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: settingInSync, Value: &two}}, topic); err != nil {
			t.Fatal(err)
		}
		log := new(locked)
		cfg := testConfig(t, brokers)
		cfg.Logger = zerolog.New(log).Level(zerolog.InfoLevel)
		r := start(t, cfg)
		r.transaction(event(topic, "k", "1", 1))
		r.untilConfirmed()
		fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
		r.transaction(event(topic, "k", "2", 2))
		const reason = "has 1 of its replicas"
		waitFor(t, func() bool { return strings.Contains(log.String(), reason) })
		fault.Remove()
		r.untilConfirmed()
		time.Sleep(stuckTime) // it looks every half of it
		r.transaction(event(topic, "k", "3", 3))
		r.untilConfirmed()
		if n := strings.Count(log.String(), reason); n != 1 {
			t.Errorf("told %d times: %s", n, log)
		}
	})
}

// Whoever makes a topic anew with another number of partitions: it is told.
func TestTopicMadeAnewBySomebodyElse(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 6, nil)
	cfg := testConfig(t, brokers)
	log := new(locked)
	cfg.Logger = zerolog.New(log).Level(zerolog.InfoLevel)
	cfg.Seen = NewSeen()
	learn := func() {
		t.Helper()
		facts, err := open(t, cfg).learn(within(t, 20*time.Second), []string{topic})
		if err != nil || len(facts) != 1 || facts[0].err != nil {
			t.Fatalf("got %+v, %v", facts, err)
		}
	}
	learn()
	if err := cluster.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
	if err := cluster.CreateTopic(topic, 3, nil); err != nil {
		t.Fatal(err)
	}
	learn()
	learn()
	for _, part := range []string{topic, `"before":6`, `"now":3`, "keys go to other partitions"} {
		if strings.Count(log.String(), part) != 1 {
			t.Errorf("log %s lacks %s, or repeats it", log, part)
		}
	}
}
