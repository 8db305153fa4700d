package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/verdict"
	"github.com/walstream/walstream/pkg/checkpoint"
)

// tail is a read_committed consumer of everything, all the time: what it sees is
// what users see.
type tail struct {
	client *kgo.Client
	done   chan struct{}

	mu      sync.Mutex
	moved   chan struct{} // closed and replaced when something was read
	next    map[verdict.Place]int64
	seen    *collector
	splits  map[pglogrepl.LSN]uint32 // newest checkpoint inside a transaction, by its commit LSN
	last    time.Time                // something arrived
	longest time.Duration            // between two arrivals
	paused  bool                     // nothing has to arrive
	err     error
}

func startTail(brokers []string) (*tail, error) {
	from := map[string]map[int32]kgo.Offset{checkpointTopic: {0: kgo.NewOffset().AtStart()}}
	for _, topic := range topics {
		from[topic] = map[int32]kgo.Offset{}
		for partition := range int32(partitions) {
			from[topic][partition] = kgo.NewOffset().AtStart()
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.KeepControlRecords(), // the end is an offset, and may be a marker's
	)
	if err != nil {
		return nil, err
	}
	t := &tail{
		client: client, done: make(chan struct{}), moved: make(chan struct{}), next: map[verdict.Place]int64{},
		seen: newCollector(), splits: map[pglogrepl.LSN]uint32{}, last: time.Now(), paused: true,
	}
	go t.follow()
	return t, nil
}

func (t *tail) close() {
	t.client.Close()
	<-t.done
}

func (t *tail) follow() {
	defer close(t.done)
	for {
		fetches := t.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		t.mu.Lock()
		before := t.seen.records
		fetches.EachRecord(t.take)
		if t.seen.records > before {
			t.arrived()
		}
		close(t.moved)
		t.moved = make(chan struct{})
		t.mu.Unlock()
	}
}

func (t *tail) take(r *kgo.Record) {
	t.next[verdict.Place{Topic: r.Topic, Partition: r.Partition}] = r.Offset + 1
	if r.Attrs.IsControl() {
		return
	}
	if r.Topic == checkpointTopic {
		record, err := checkpoint.DecodeRecord(r.Value)
		if err != nil {
			t.fail(fmt.Errorf("checkpoint at offset %d: %w", r.Offset, err))
		}
		if !record.Complete && record.Ordinal > 0 {
			t.splits[record.CommitLSN] = record.Ordinal
		}
		return
	}
	a, err := parse(r)
	if err != nil {
		t.fail(err)
		return
	}
	t.seen.take(&a)
}

func (t *tail) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *tail) arrived() {
	now := time.Now()
	if !t.paused {
		t.longest = max(t.longest, now.Sub(t.last))
	}
	t.last, t.paused = now, false
}

// records that have arrived.
func (t *tail) records() (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen.records, t.err
}

// at waits until everything below the ends is read, and returns the transactions
// that are there in part.
func (t *tail) at(ctx context.Context, ends map[verdict.Place]int64) (torn, split []string, err error) {
	for {
		t.mu.Lock()
		moved, behind := t.moved, false
		for place, end := range ends {
			behind = behind || t.next[place] < end
		}
		if !behind || t.err != nil {
			torn, split = t.seen.torn(t.splits)
			err = t.err
			t.mu.Unlock()
			return torn, split, err
		}
		t.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("read the topics to their ends: %w", ctx.Err())
		}
	}
}

// stop counting stalls: the load has ended.
func (t *tail) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = true
}

// stall is the longest time between two arrivals.
func (t *tail) stall() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.longest
}

// split counts the transactions that were committed in parts.
func (t *tail) split() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.splits)
}
