package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// checkpointTail follows the checkpoint topic, read_committed, so that the
// newest durable checkpoint is at hand the moment walstream is dead.
type checkpointTail struct {
	client *kgo.Client
	done   chan struct{}

	mu     sync.Mutex
	moved  chan struct{} // closed and replaced when something was read
	next   int64         // offset behind the last one read
	newest checkpoint.Record
	err    error
}

func tailCheckpoints(brokers []string) (*checkpointTail, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{checkpointTopic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.KeepControlRecords(), // the end is an offset, and may be a marker's
	)
	if err != nil {
		return nil, err
	}
	t := &checkpointTail{client: client, done: make(chan struct{}), moved: make(chan struct{})}
	go t.follow()
	return t, nil
}

func (t *checkpointTail) follow() {
	defer close(t.done)
	for {
		fetches := t.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		t.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			t.next = r.Offset + 1
			if r.Attrs.IsControl() || string(r.Key) != pipeline {
				return
			}
			record, err := checkpoint.DecodeRecord(r.Value)
			if err != nil && t.err == nil {
				t.err = fmt.Errorf("checkpoint at offset %d: %w", r.Offset, err)
			}
			t.newest = record
		})
		close(t.moved)
		t.moved = make(chan struct{})
		t.mu.Unlock()
	}
}

// at returns the newest checkpoint below an offset, or a little beyond it.
func (t *checkpointTail) at(ctx context.Context, end int64) (checkpoint.Record, error) {
	for {
		t.mu.Lock()
		next, newest, err, moved := t.next, t.newest, t.err, t.moved
		t.mu.Unlock()
		if err != nil || next >= end {
			return newest, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return newest, fmt.Errorf("read the checkpoint topic to offset %d (at %d): %w", end, next, ctx.Err())
		}
	}
}

func (t *checkpointTail) close() {
	t.client.Close()
	<-t.done
}
