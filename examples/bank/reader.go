package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reader follows the topic as any consumer would, and measures how long each
// event took from its INSERT to here.
type reader struct {
	client *kgo.Client
	seen   atomic.Int64

	mu        sync.Mutex
	latencies *hdrhistogram.Histogram // microseconds
}

// Latencies from a microsecond to longestLatency, longer ones counting as that,
// to three digits.
const longestLatency = 10 * time.Minute

// newReader waits until the topic can be read before it reads: a consumer that
// comes too early looks again a second later or more, which would be counted as
// latency.
func newReader(ctx context.Context, brokers []string, topic string) (*reader, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// What the client knows of topics it believes for this long: by default
		// 5 s, which a topic that is just being made outlives.
		kgo.MetadataMinAge(20*time.Millisecond),
		// A partition that turns up while a fetch waits for others waits with it.
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, fmt.Errorf("make a consumer: %w", err)
	}
	if err := awaitTopic(ctx, kadm.NewClient(client), topic); err != nil {
		client.Close()
		return nil, err
	}
	client.AddConsumeTopics(topic)
	return &reader{client: client, latencies: hdrhistogram.New(1, longestLatency.Microseconds(), 3)}, nil
}

// awaitTopic waits until the topic exists and each of its partitions answers.
func awaitTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	for {
		offsets, err := admin.ListStartOffsets(ctx, topic)
		if err == nil {
			err = offsets.Error()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("read topic %q: %w (last: %w)", topic, context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) error {
	defer r.client.Close()
	for {
		fetches := r.client.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read the topic: %w", err)
		}
		fetches.EachRecord(func(record *kgo.Record) { r.measure(record, now) })
	}
}

func (r *reader) measure(record *kgo.Record, now time.Time) {
	r.seen.Add(1)
	var event deposited
	if json.Unmarshal(record.Value, &event) != nil || event.At.IsZero() {
		return // somebody's own INSERT: welcome, but without a time
	}
	latency := min(max(now.Sub(event.At), time.Microsecond), longestLatency)
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.latencies.RecordValue(latency.Microseconds()) // within bounds
}

// forget begins the latencies anew.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies.Reset()
}

// percentile of the latencies, in milliseconds.
func (r *reader) percentile(p float64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(r.latencies.ValueAtPercentile(p)) / 1000
}
