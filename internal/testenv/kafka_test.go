package testenv

import (
	"fmt"
	"slices"
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

func createTopic(t *testing.T, k *Kafka, topic string) {
	t.Helper()
	if _, err := kadm.NewClient(kafkaClient(t, k)).CreateTopic(t.Context(), 1, -1, nil, topic); err != nil {
		t.Fatalf("create a topic: %v", err)
	}
}

func testKafkaKeepsData(t *testing.T, k *Kafka) {
	createTopic(t, k, "kept")
	want := []string{"first"}
	if got := roundTrip(t, k, "kept", "first"); !slices.Equal(got, want) {
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
		if got := roundTrip(t, k, "kept", how); !slices.Equal(got, want) {
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

func TestNewKfake(t *testing.T) {
	_, brokers := NewKfake(t)
	k := &Kafka{Brokers: brokers}
	createTopic(t, k, "one")
	if got := fmt.Sprint(roundTrip(t, k, "one", "value")); got != "[value]" {
		t.Errorf("read %s", got)
	}
}

func TestSharedKafka(t *testing.T) {
	k := SharedKafka(t)
	if again := SharedKafka(t); again != k {
		t.Error("a second cluster was started")
	}
	createTopic(t, k, t.Name())
	roundTrip(t, k, t.Name(), "value")
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
