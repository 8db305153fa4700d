package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/pkg/checkpoint"
)

const (
	// firstWindow of offsets read back from the end of the checkpoint topic. One
	// checkpoint is two offsets: the record and the commit's marker.
	firstWindow = 64
	fetchBytes  = 1 << 20
	fetchWait   = 500 * time.Millisecond
	pollOpen    = 100 * time.Millisecond // pause between looks at an open transaction
	quietWait   = time.Second            // for it to end without a word

	readUncommitted, readCommitted = 0, 1
	offsetLatest, offsetEarliest   = -1, -2
)

// tail reads the only partition of the checkpoint topic, or of the control topic,
// from its end, where the newest record is, with requests of its own: a consumer
// shows records, and says nothing about a stretch that holds aborted transactions
// and markers only.
type tail struct {
	k       *Kafka
	topic   string
	topicID [16]byte
	leader  int32

	partition int32
}

// newest returns the newest committed record of the pipeline. With a claim, whose
// lanes have ended all transactions of ours, none may be open on the topic: one
// that is may hide a newer record.
func (k *Kafka) newest(ctx context.Context, claim *Claim) (checkpoint.Record, bool, error) {
	t, err := k.openTail(ctx, k.cfg.checkpointTopic())
	if err != nil {
		return checkpoint.Record{}, false, k.tailError(err)
	}
	stable, err := t.offset(ctx, offsetLatest, readCommitted)
	if err == nil && claim != nil {
		stable, err = t.settle(ctx, stable, claim)
	}
	if err != nil {
		return checkpoint.Record{}, false, k.tailError(err)
	}
	start, err := t.offset(ctx, offsetEarliest, readCommitted)
	if err != nil {
		return checkpoint.Record{}, false, k.tailError(err)
	}
	found, err := t.scan(ctx, start, stable)
	if err != nil {
		return checkpoint.Record{}, false, k.tailError(err)
	}
	if found == nil || found.Value == nil { // none, or a tombstone
		return checkpoint.Record{}, false, nil
	}
	record, err := checkpoint.DecodeRecord(found.Value)
	switch {
	case errors.Is(err, checkpoint.ErrNewerFormat):
		return checkpoint.Record{}, false, fmt.Errorf("topic %q: %w", t.topic, err)
	case err != nil:
		return checkpoint.Record{}, false, &CheckpointError{
			Topic: t.topic, Offset: found.Offset, Pipeline: k.cfg.Pipeline, Err: err,
			Look: k.cfg.command("kafka-console-consumer", "--topic %s --from-beginning --property print.key=true --property print.offset=true", t.topic),
		}
	}
	return record, true, nil
}

func (k *Kafka) tailError(err error) error {
	return k.explain(err, "read the checkpoint", rightRead, topicResource(k.cfg.checkpointTopic()))
}

func (k *Kafka) openTail(ctx context.Context, topic string) (*tail, error) {
	meta, found, err := k.lookUpOne(ctx, topic)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, kerr.UnknownTopicOrPartition
	}
	return k.tailOf(topic, meta)
}

func (k *Kafka) tailOf(topic string, meta *kmsg.MetadataResponseTopic) (*tail, error) {
	if len(meta.Partitions) != 1 {
		return nil, errPartitions(topic, len(meta.Partitions))
	}
	partition := meta.Partitions[0]
	if err := kerr.ErrorForCode(partition.ErrorCode); err != nil && partition.Leader < 0 {
		return nil, err
	}
	return &tail{k: k, topic: topic, topicID: meta.TopicID, leader: partition.Leader}, nil
}

func errPartitions(topic string, n int) error {
	return &SetupError{
		Found:  fmt.Sprintf("topic %q has %d partitions, the checkpoint needs exactly one", topic, n),
		Remedy: "the topic was made or changed by somebody else: name another --pipeline, or delete the topic if it holds nothing of value",
	}
}

// offset asks the leader for the first or the last offset; read committed, the
// last is the last stable one, before which no transaction is open.
func (t *tail) offset(ctx context.Context, which int64, isolation int8) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = t.topic
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = t.partition, which
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	raw, err := t.k.client.Broker(int(t.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := raw.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the broker answered a request for offsets without the partition asked for")
	}
	answer := resp.Topics[0].Partitions[0]
	return answer.Offset, kerr.ErrorForCode(answer.ErrorCode)
}

// settle waits until no transaction is open on the topic, at most as long as one
// of ours may stay open, and returns the end.
func (t *tail) settle(ctx context.Context, stable int64, claim *Claim) (int64, error) {
	began, told := time.Now(), false
	for {
		high, err := t.offset(ctx, offsetLatest, readUncommitted)
		if err != nil {
			return 0, err
		}
		if stable == high {
			return stable, nil
		}
		switch open := time.Since(began); {
		case open > t.k.patience:
			return 0, t.openTransaction(ctx, stable, high, claim)
		case open > quietWait && !told:
			told = true
			t.k.log.Warn().Err(t.openTransaction(ctx, stable, high, claim)).Stringer("at_most", t.k.patience).
				Msg("waiting for a transaction on the checkpoint topic to end")
		}
		if err := sleep(ctx, pollOpen); err != nil {
			return 0, err
		}
		if stable, err = t.offset(ctx, offsetLatest, readCommitted); err != nil {
			return 0, err
		}
	}
}

// openTransaction names who holds it, where the broker says so. One of our own
// was ended by the claim: if a broker has it open all the same, another claim asks
// it once more.
func (t *tail) openTransaction(ctx context.Context, stable, high int64, claim *Claim) error {
	who, ours := "an unknown producer", false
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = t.topic, []int32{0}
	req.Topics = append(req.Topics, topic)
	if raw, err := t.k.client.Broker(int(t.leader)).RetriableRequest(ctx, req); err == nil {
		for _, topic := range raw.(*kmsg.DescribeProducersResponse).Topics {
			for _, partition := range topic.Partitions {
				for _, p := range partition.ActiveProducers {
					if p.CurrentTxnStartOffset >= 0 {
						who = fmt.Sprintf("producer id %d (epoch %d)", p.ProducerID, p.ProducerEpoch)
						ours = claim.owns(ctx, p.ProducerID)
					}
				}
			}
		}
	}
	found := fmt.Sprintf("a transaction of %s is open on topic %q (offsets %d to %d) and may hide a newer checkpoint", who, t.topic, stable, high)
	end := t.k.cfg.command("kafka-transactions", "abort --topic %s --partition 0 --start-offset %d", t.topic, stable)
	if ours {
		return fmt.Errorf("%w: %s; it is this pipeline's own, which the broker should have ended; if that lasts, see by walstream audit whether its rows are published, and: %s", ErrUncertain, found, end)
	}
	return &SetupError{
		Found:  found + "; it is not one of this pipeline's",
		Remedy: "find out who writes there; a hanging one is ended by: " + end,
	}
}

// scan returns the newest committed record of our key in [start, end), which may
// be a tombstone; nil when there is none. It reads windows backwards from the
// end, each twice as long as all before.
func (t *tail) scan(ctx context.Context, start, end int64) (found *kgo.Record, err error) {
	for to, window := end, int64(firstWindow); found == nil && to > start; window *= 2 {
		from := max(start, to-window)
		if found, err = t.window(ctx, from, to); err != nil {
			return nil, err
		}
		to = from
	}
	return found, nil
}

// window reads [from, to). It is done when the offsets say so: batches of
// aborted transactions and markers move them, and show no record.
func (t *tail) window(ctx context.Context, from, to int64) (found *kgo.Record, err error) {
	for at := from; at < to; {
		answer, err := t.fetch(ctx, at, readCommitted)
		if err != nil {
			return nil, err
		}
		part, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset: at, IsolationLevel: kgo.ReadCommitted(), Topic: t.topic,
		}, answer, kgo.DefaultDecompressor(), nil)
		if part.Err != nil {
			return nil, part.Err
		}
		for _, r := range part.Records {
			if r.Offset < to && string(r.Key) == t.k.cfg.Pipeline {
				found = r
			}
		}
		if next <= at {
			// An empty answer from a broker that has everything up to the end:
			// compaction has removed the rest.
			if len(answer.RecordBatches) == 0 && answer.LastStableOffset >= to {
				break
			}
			return nil, fmt.Errorf("%w: no progress at offset %d of %d", ErrUncertain, at, to)
		}
		at = next
	}
	return found, nil
}

func (t *tail) fetch(ctx context.Context, offset int64, isolation int8) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	req.SessionEpoch = -1 // no fetch session
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = t.topic, t.topicID
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.Partition, partition.CurrentLeaderEpoch = t.partition, -1
	partition.FetchOffset, partition.PartitionMaxBytes = offset, fetchBytes
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	raw, err := t.k.client.Broker(int(t.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("the broker answered a fetch without the partition asked for")
	}
	return &resp.Topics[0].Partitions[0], nil
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
