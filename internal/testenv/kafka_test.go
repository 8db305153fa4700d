package testenv

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func kafkaClient(t *testing.T, k *Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Brokers...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// roundTrip writes a record and reads the topic from its start.
func roundTrip(t *testing.T, k *Kafka, topic, value string) (read []string) {
	t.Helper()
	client := kafkaClient(t, k, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatalf("produce %s: %v", value, err)
	}
	for !slices.Contains(read, value) {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatalf("consume: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) { read = append(read, string(r.Value)) })
	}
	return read
}

func testKafkaKeepsData(t *testing.T, k *Kafka) {
	topic := k.CreateTopic(t, 1, nil)
	want := []string{"first"}
	if got := roundTrip(t, k, topic, "first"); !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	for how, end := range map[string]func(...int) error{"stop": k.Stop, "kill": k.Kill} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		want = append(want, how)
		if got := roundTrip(t, k, topic, how); !slices.Equal(got, want) {
			t.Errorf("after %s: read %v, want %v", how, got, want)
		}
	}
}

func TestKfakeKeepsData(t *testing.T) {
	t.Setenv(EnvFrom, Kfake)
	t.Setenv(EnvRequireReal, "")
	k := NewKafka(t, KafkaOptions{Brokers: 2})
	if k.From != Kfake || len(k.Brokers) != 2 {
		t.Fatalf("%s with %v", k.From, k.Brokers)
	}
	testKafkaKeepsData(t, k)
}

func TestKafkaKeepsData(t *testing.T) {
	testKafkaKeepsData(t, NewKafka(t, KafkaOptions{Real: true}))
}

// Three brokers replicate: what one acknowledged survives it.
func TestKafkaSurvivesABroker(t *testing.T) {
	k := NewKafka(t, KafkaOptions{Real: true, Brokers: 3})
	topic := k.CreateTopic(t, 1, nil)
	roundTrip(t, k, topic, "before")
	topics, err := kadm.NewClient(kafkaClient(t, k)).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	leader := int(topics[topic].Partitions[0].Leader) - 1 // nodes count from 1
	if err := k.Kill(leader); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, k, topic, "without"); got[0] != "before" {
		t.Errorf("read %v", got)
	}
	if err := k.Start(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, k, topic, "after"); !slices.Equal(got, []string{"before", "without", "after"}) {
		t.Errorf("read %v", got)
	}
}

func TestNewKfake(t *testing.T) {
	_, brokers := NewKfake(t)
	k := &Kafka{Brokers: brokers}
	if got := fmt.Sprint(roundTrip(t, k, k.CreateTopic(t, 1, nil), "value")); got != "[value]" {
		t.Errorf("read %s", got)
	}
}

func TestSharedKafka(t *testing.T) {
	k := SharedKafka(t)
	if again := SharedKafka(t); again != k {
		t.Error("a second cluster was started")
	}
	roundTrip(t, k, k.CreateTopic(t, 1, map[string]string{"min.insync.replicas": "1"}), "value")
}

// The broker is of the release that was asked for.
func TestKafkaVersion(t *testing.T) {
	k := SharedKafka(t)
	if k.From != Native && k.From != Docker {
		t.Skip("no real broker of ours")
	}
	versions, err := kadm.NewClient(kafkaClient(t, k)).ApiVersions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := kafkaVersion()
	versions.Each(func(v kadm.BrokerApiVersions) {
		major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(v.VersionGuess(), "at least "), "v"), ".")
		if wanted, _, _ := strings.Cut(want, "."); major != wanted {
			t.Errorf("the broker is %s, want %s", v.VersionGuess(), want)
		}
		t.Logf("asked for %s, the broker is %s", want, v.VersionGuess())
	})
}

func TestRealRefusesKfake(t *testing.T) {
	t.Setenv(EnvFrom, Kfake)
	if _, err := StartKafka(t.Context(), KafkaOptions{Real: true}); err == nil {
		t.Error("kfake was taken for a real broker")
	}
	t.Setenv(EnvRequireReal, "1")
	if _, err := StartKafka(t.Context(), KafkaOptions{}); err == nil {
		t.Error("kfake was taken although the real broker is required")
	}
}
