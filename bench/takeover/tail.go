package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// tail is a read_committed consumer: what it has, users have.
type tail struct {
	client *kgo.Client
	done   chan struct{}

	mu    sync.Mutex
	moved chan struct{} // closed and replaced when a row arrived
	// newest is when the youngest row that has arrived was written, and at when it
	// arrived.
	newest, at time.Time
	err        error
}

func follow(brokers []string, topic string) (*tail, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.ConsumeTopics(topic), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	t := &tail{client: client, done: make(chan struct{}), moved: make(chan struct{})}
	go t.run()
	return t, nil
}

func (t *tail) run() {
	defer close(t.done)
	for {
		fetches := t.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		t.take(fetches, time.Now())
	}
}

func (t *tail) take(fetches kgo.Fetches, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) {
		nanos, err := strconv.ParseInt(string(r.Value), 10, 64)
		if err != nil {
			t.err = fmt.Errorf("a record that nobody wrote: %w", err)
		}
		if written := time.Unix(0, nanos); written.After(t.newest) {
			t.newest, t.at = written, now
		}
	})
	close(t.moved)
	t.moved = make(chan struct{})
}

// writtenAfter waits for a row that was written at a moment or later, and tells
// when it arrived.
func (t *tail) writtenAfter(ctx context.Context, moment time.Time) (arrived time.Time, err error) {
	for {
		t.mu.Lock()
		newest, at, moved, err := t.newest, t.at, t.moved, t.err
		t.mu.Unlock()
		if err != nil || !newest.Before(moment) {
			return at, err
		}
		select {
		case <-moved:
		case <-t.done:
			return at, errors.New("the consumer was closed")
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
}

func (t *tail) close() {
	t.client.Close()
	<-t.done
}
