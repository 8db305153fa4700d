package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/outbox"
)

// silence is how long the audit waits for the next record before it gives up.
const silence = 30 * time.Second

// audit compares the outbox with the topic, both whole.
func audit(ctx context.Context, postgres string, brokers []string, topic string) (Verdict, error) {
	t := newTally()
	if err := readOutbox(ctx, postgres, topic, t); err != nil {
		return Verdict{}, fmt.Errorf("read the outbox: %w", err)
	}
	if err := readTopic(ctx, brokers, topic, t); err != nil {
		return Verdict{}, fmt.Errorf("read topic %q: %w", topic, err)
	}
	return t.result(), nil
}

func readOutbox(ctx context.Context, postgres, topic string, t *tally) error {
	db, err := pgx.Connect(ctx, postgres)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	rows, err := db.Query(ctx, `SELECT event_id FROM public.outbox WHERE topic = $1`, topic)
	if err != nil {
		return err
	}
	var id pgtype.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		t.commit(id)
		return nil
	})
	return err
}

// readTopic reads every partition from its start to its end, as it is now.
func readTopic(ctx context.Context, brokers []string, topic string, t *tally) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A transaction ends with a marker, so without markers the last offset
		// of a partition may never be seen.
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	left, err := unread(ctx, kadm.NewClient(client), topic)
	if err != nil {
		return err
	}
	start := make(map[int32]kgo.Offset, len(left))
	for partition := range left {
		start[partition] = kgo.NewOffset().AtStart()
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: start})
	for len(left) > 0 {
		fetches, err := poll(ctx, client)
		if err != nil {
			return fmt.Errorf("%w; unread (partition: end) %v", err, left)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			end, reading := left[record.Partition]
			if reading && record.Offset < end && !record.Attrs.IsControl() {
				t.record(eventID(record), record.Partition, record.Value)
			}
			if record.Offset >= end-1 {
				delete(left, record.Partition)
			}
		})
	}
	return nil
}

// unread returns the ends of the partitions that hold anything. A topic that
// was never made holds nothing.
func unread(ctx context.Context, admin *kadm.Client, topic string) (map[int32]int64, error) {
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	left := make(map[int32]int64)
	ends.Each(func(end kadm.ListedOffset) {
		if start, _ := starts.Lookup(topic, end.Partition); start.Offset < end.Offset {
			left[end.Partition] = end.Offset
		}
	})
	return left, nil
}

func poll(ctx context.Context, client *kgo.Client) (kgo.Fetches, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, silence, fmt.Errorf("nothing came for %s", silence))
	defer cancel()
	fetches := client.PollFetches(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return fetches, fetches.Err()
}

func eventID(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == outbox.HeaderEventID {
			return string(header.Value)
		}
	}
	return ""
}
