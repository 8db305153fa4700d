package sink

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readAll reads a stretch into "offset:value" texts.
func readAll(t *testing.T, k *Kafka, s *Stretch) []string {
	t.Helper()
	var got []string
	if err := k.ReadStretch(within(t, 20*time.Second), s, func(r *TopicRecord) error {
		got = append(got, fmt.Sprintf("%d:%s", r.Offset, r.Value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func stretchOf(t *testing.T, k *Kafka, topic string, patience time.Duration) *Stretch {
	t.Helper()
	found, err := k.Stretches(within(t, 20*time.Second), []string{topic}, patience)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v %v", found, err)
	}
	return &found[0]
}

func produce(t *testing.T, c *kgo.Client, topic string, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := c.ProduceSync(within(t, 20*time.Second), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func transaction(t *testing.T, c *kgo.Client, topic string, end func(context.Context), values ...string) {
	t.Helper()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, c, topic, values...)
	if end != nil {
		end(within(t, 20*time.Second))
	}
}

func TestReadStretch(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 1, nil)
		k := open(t, testConfig(t, brokers))
		plain := client(t, brokers)
		lane := client(t, brokers, kgo.TransactionalID(unique("txn")))
		end := func(commit kgo.TransactionEndTry) func(context.Context) {
			return func(ctx context.Context) {
				if err := lane.EndTransaction(ctx, commit); err != nil {
					t.Fatal(err)
				}
			}
		}
		produce(t, plain, topic, "a", "b")                            // 0, 1
		transaction(t, lane, topic, end(kgo.TryAbort), "x", "y")      // 2, 3, marker 4
		transaction(t, lane, topic, end(kgo.TryCommit), "c", "d")     // 5, 6, marker 7
		transaction(t, lane, topic, end(kgo.TryAbort), "x", "y", "z") // 8, 9, 10, marker 11
		s := stretchOf(t, k, topic, 10*time.Second)
		if s.Start != 0 || s.End != 12 || s.Visible != 12 {
			t.Fatalf("%+v", s)
		}
		produce(t, plain, topic, "later") // 12
		if got, want := readAll(t, k, s), []string{"0:a", "1:b", "5:c", "6:d"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got, want := readAll(t, k, stretchOf(t, k, topic, time.Second)), []string{"0:a", "1:b", "5:c", "6:d", "12:later"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}

		// Retention, before and after the stretch was looked up.
		forget := func(below int64) {
			t.Helper()
			offsets := kadm.Offsets{}
			offsets.AddOffset(topic, 0, below, -1)
			if _, err := kadm.NewClient(plain).DeleteRecords(within(t, 20*time.Second), offsets); err != nil {
				t.Fatal(err)
			}
		}
		forget(1)
		s = stretchOf(t, k, topic, time.Second)
		if s.Start != 1 {
			t.Errorf("%+v", s)
		}
		forget(6)
		if got, want := readAll(t, k, s), []string{"6:d", "12:later"}; !slices.Equal(got, want) || s.Start != 6 {
			t.Errorf("got %v, want %v, start %d", got, want, s.Start)
		}
	})
}

// What an open transaction hides is waited for, and said when it stays hidden.
func TestStretchesAndOpenTransactions(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 1, nil)
		k := open(t, testConfig(t, brokers))
		plain := client(t, brokers)
		lane := client(t, brokers, kgo.TransactionalID(unique("txn")))
		produce(t, plain, topic, "a")            // 0
		transaction(t, lane, topic, nil, "open") // 1
		produce(t, plain, topic, "b")            // 2
		s := stretchOf(t, k, topic, 0)
		if s.End != 3 || s.Visible != 1 {
			t.Errorf("%+v", s)
		}
		if got, want := readAll(t, k, s), []string{"0:a"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		ended := make(chan error, 1)
		go func() {
			time.Sleep(300 * time.Millisecond)
			ended <- lane.EndTransaction(context.Background(), kgo.TryCommit)
		}()
		s = stretchOf(t, k, topic, 20*time.Second)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if s.End != 3 || s.Visible != 3 {
			t.Errorf("%+v", s)
		}
		if got, want := readAll(t, k, s), []string{"0:a", "1:open", "2:b"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestStretchesOfSeveralTopics(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		first := createTopic(t, brokers, 3, nil)
		second := createTopic(t, brokers, 1, map[string]string{"cleanup.policy": "compact"})
		k := open(t, testConfig(t, brokers))
		ctx := within(t, 20*time.Second)
		plain := client(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		early := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
		for i := range 6 {
			r := &kgo.Record{Topic: first, Partition: int32(i % 2), Value: fmt.Append(nil, i), Timestamp: early.Add(time.Duration(i) * time.Minute)}
			if err := plain.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		found, err := k.Stretches(ctx, []string{first, "there-is-none", second}, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := []Stretch{
			{Topic: first, Partition: 0, End: 3, Visible: 3},
			{Topic: first, Partition: 1, End: 3, Visible: 3},
			{Topic: first, Partition: 2},
			{Topic: second},
		}
		if !slices.Equal(found, want) {
			t.Errorf("got %+v, want %+v", found, want)
		}
		if err := k.Since(ctx, found, early.Add(4*time.Minute)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range found {
			got = append(got, readAll(t, k, &found[i])...)
		}
		if want := []string{"2:4", "2:5"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		compacted, err := k.Compacted(ctx, []string{first, second})
		if err != nil || compacted[first] || !compacted[second] {
			t.Errorf("%v %v", compacted, err)
		}
	})
}

func TestReadStretchEndsWithItsReader(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 1, nil)
		k := open(t, testConfig(t, brokers))
		produce(t, client(t, brokers), topic, "a", "b", "c")
		s := stretchOf(t, k, topic, time.Second)
		calls := 0
		if err := k.ReadStretch(within(t, 20*time.Second), s, func(*TopicRecord) error { calls++; return context.Canceled }); err == nil || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := k.ReadStretch(ctx, s, func(*TopicRecord) error { cancel(); return nil }); err == nil {
			t.Error("it did not tell that it was stopped")
		}
	})
}
