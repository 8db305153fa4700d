package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/pkg/outbox"
)

// Stretch is what there is to read of a partition: a read_committed reader that
// comes to Visible has seen all that was committed below End.
type Stretch struct {
	Topic     string
	Partition int32
	// Start is the first offset that is still there. Beyond 0 the topic has
	// forgotten something.
	Start int64
	// From is where reading begins, if that is later.
	From int64
	// End is where the partition ended when it was looked up. A transaction that
	// is still open hides what lies from Visible on; without one they are equal.
	End, Visible int64
}

// TopicRecord is a record as it stands in a topic.
type TopicRecord struct {
	Offset     int64
	Key, Value []byte
	Headers    []outbox.Header
	Timestamp  time.Time
	// Producer that wrote it, and whether in a transaction.
	ProducerID    int64
	ProducerEpoch int16
	Transactional bool
}

// Partitions counts the stretches of each topic.
func Partitions(stretches []Stretch) map[string]int {
	count := map[string]int{}
	for i := range stretches {
		count[stretches[i].Topic]++
	}
	return count
}

// Stretches looks up where the topics begin and end, in their order. What is
// acknowledged before the call lies below the ends; transactions that are open
// there are waited for with patience. Topics that do not exist are absent.
func (k *Kafka) Stretches(ctx context.Context, topics []string, patience time.Duration) ([]Stretch, error) {
	found, err := k.stretches(ctx, topics, patience)
	if err != nil {
		return nil, k.explain(err, "look up the ends of the topics", rightDescribe, topicResource(strings.Join(topics, `", "`)))
	}
	return found, nil
}

func (k *Kafka) stretches(ctx context.Context, topics []string, patience time.Duration) ([]Stretch, error) {
	found, err := k.partitions(ctx, topics)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if err := k.listOffsets(ctx, found, offsetLatest, readUncommitted, func(s *Stretch, o int64) { s.End = o }); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); ; {
		if err := k.listOffsets(ctx, found, offsetLatest, readCommitted, func(s *Stretch, o int64) { s.Visible = min(o, s.End) }); err != nil {
			return nil, err
		}
		open := slices.ContainsFunc(found, func(s Stretch) bool { return s.Visible < s.End })
		if !open || time.Now().After(deadline) {
			break
		}
		if err := sleep(ctx, pollOpen); err != nil {
			return nil, err
		}
	}
	err = k.listOffsets(ctx, found, offsetEarliest, readCommitted, func(s *Stretch, o int64) { s.Start = o })
	return found, err
}

func (k *Kafka) partitions(ctx context.Context, topics []string) ([]Stretch, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	metas, err := k.lookUp(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var found []Stretch
	for _, name := range topics {
		meta := metas[name]
		if meta == nil {
			continue
		}
		if err := topicError(meta); err != nil {
			return nil, err
		}
		slices.SortFunc(meta.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return cmp.Compare(a.Partition, b.Partition) })
		for _, p := range meta.Partitions {
			found = append(found, Stretch{Topic: name, Partition: p.Partition})
		}
	}
	return found, nil
}

// Since moves where reading begins to the first record of each stretch whose
// timestamp is not before t: all that lies before have earlier ones.
func (k *Kafka) Since(ctx context.Context, of []Stretch, t time.Time) error {
	if len(of) == 0 {
		return nil
	}
	err := k.listOffsets(ctx, of, t.UnixMilli(), readCommitted, func(s *Stretch, o int64) {
		if s.From = o; o < 0 { // there is none
			s.From = s.End
		}
	})
	if err != nil {
		return k.explain(err, "look up offsets by time", rightDescribe, "the topics")
	}
	return nil
}

// listOffsets asks the leaders of all partitions for an offset of each.
func (k *Kafka) listOffsets(ctx context.Context, of []Stretch, which int64, isolation int8, take func(*Stretch, int64)) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	place := map[string]map[int32]*Stretch{}
	for i := range of {
		s := &of[i]
		if place[s.Topic] == nil {
			place[s.Topic] = map[int32]*Stretch{}
			topic := kmsg.NewListOffsetsRequestTopic()
			topic.Topic = s.Topic
			req.Topics = append(req.Topics, topic)
		}
		place[s.Topic][s.Partition] = s
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = s.Partition, which
		topic := &req.Topics[len(req.Topics)-1]
		topic.Partitions = append(topic.Partitions, partition)
	}
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return err
	}
	answered := 0
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %s/%d: %w", topic.Topic, p.Partition, err)
			}
			if s := place[topic.Topic][p.Partition]; s != nil {
				take(s, p.Offset)
				answered++
			}
		}
	}
	if answered != len(of) {
		return fmt.Errorf("%w: offsets of %d partitions were asked for, and those of %d answered", ErrUncertain, len(of), answered)
	}
	return nil
}

// Compacted tells which of the topics forget records by key; a topic whose
// settings may not be read is absent.
func (k *Kafka) Compacted(ctx context.Context, topics []string) (map[string]bool, error) {
	if len(topics) == 0 {
		return map[string]bool{}, nil
	}
	values, _, err := k.configs(ctx, topics, settingCleanup)
	if err != nil {
		return nil, k.explain(err, "read the settings of the topics", rightConfigs, topicResource(strings.Join(topics, `", "`)))
	}
	compacted := make(map[string]bool, len(values))
	for topic, settings := range values {
		compacted[topic] = strings.Contains(settings[settingCleanup], cleanupCompact)
	}
	return compacted, nil
}

// ReadStretch calls do with the committed records of s, in their order, until it
// comes to s.Visible. Its end is told by offsets: aborted records and markers
// move them and show nothing. What retention removes meanwhile moves s.Start.
// The record is overwritten by the next one, its bytes are not.
func (k *Kafka) ReadStretch(ctx context.Context, s *Stretch, do func(*TopicRecord) error) error {
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan chunk) // one is taken apart while the next is fetched
	r := &stretchReader{k: k, topic: s.Topic, partition: s.Partition, end: s.Visible}
	go func() {
		defer close(chunks)
		r.run(ctx, max(s.Start, s.From), chunks)
	}()
	defer func() {
		cancel()
		for range chunks { // until the goroutine has ended
		}
	}()
	var record TopicRecord
	for c := range chunks {
		if c.err != nil {
			return k.explain(c.err, fmt.Sprintf("read %s/%d", s.Topic, s.Partition), rightRead, topicResource(s.Topic))
		}
		if c.forgotten > s.Start {
			s.Start = c.forgotten
		}
		for _, raw := range c.records {
			if raw.Offset >= s.Visible {
				continue // written since
			}
			record.take(raw)
			if err := do(&record); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (r *TopicRecord) take(raw *kgo.Record) {
	r.Offset, r.Key, r.Value, r.Timestamp = raw.Offset, raw.Key, raw.Value, raw.Timestamp
	r.ProducerID, r.ProducerEpoch, r.Transactional = raw.ProducerID, raw.ProducerEpoch, raw.Attrs.IsTransactional()
	r.Headers = r.Headers[:0]
	for _, h := range raw.Headers {
		r.Headers = append(r.Headers, outbox.Header(h))
	}
}

// chunk is what one fetch brought.
type chunk struct {
	records   []*kgo.Record
	forgotten int64 // the partition begins here now; 0: as before
	err       error // ends it
}

// stretchReader fetches from a partition's leader, wherever it goes.
type stretchReader struct {
	k         *Kafka
	topic     string
	partition int32
	end       int64
	topicID   [16]byte
	leader    int32
	known     bool // topicID and leader are
}

func (r *stretchReader) run(ctx context.Context, at int64, chunks chan<- chunk) {
	failing := 0
	var since time.Time
	for at < r.end {
		c, next, err := r.fetch(ctx, at)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange):
			var start int64
			if start, err = r.start(ctx); err == nil && start <= at {
				err = fmt.Errorf("offset %d of %d is gone: %w", at, r.end, kerr.OffsetOutOfRange)
			}
			c.forgotten, next = start, start
		case err != nil && Retriable(err) && ctx.Err() == nil:
			if failing++; failing == 1 {
				since = time.Now()
			}
			r.known = false
			if time.Since(since) < retryTimeout && sleep(ctx, backoff(failing)) == nil {
				continue
			}
		}
		failing = 0
		c.err = err
		select {
		case chunks <- c:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		at = next
	}
}

// fetch reads what is at an offset, and says where to go on.
func (r *stretchReader) fetch(ctx context.Context, at int64) (c chunk, next int64, err error) {
	if err := r.find(ctx); err != nil {
		return c, at, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.IsolationLevel = -1, readCommitted
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	req.SessionEpoch = -1 // no fetch session
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = r.topic, r.topicID
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.Partition, partition.CurrentLeaderEpoch = r.partition, -1
	partition.FetchOffset, partition.PartitionMaxBytes = at, fetchBytes
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	raw, err := r.k.client.Broker(int(r.leader)).RetriableRequest(ctx, req)
	if err != nil {
		return c, at, err
	}
	resp := raw.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return c, at, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return c, at, fmt.Errorf("%w: the broker answered a fetch without the partition asked for", ErrUncertain)
	}
	answer := &resp.Topics[0].Partitions[0]
	read, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic, Partition: r.partition,
	}, answer, kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		return c, at, read.Err
	}
	c.records = read.Records
	if next <= at {
		// An empty answer from a broker that has everything up to the end:
		// compaction has removed the rest.
		if len(answer.RecordBatches) == 0 && answer.LastStableOffset >= r.end {
			return c, r.end, nil
		}
		return c, at, fmt.Errorf("%w: no progress at offset %d of %d", ErrUncertain, at, r.end)
	}
	return c, next, nil
}

// find looks the leader up.
func (r *stretchReader) find(ctx context.Context) error {
	if r.known {
		return nil
	}
	meta, found, err := r.k.lookUpOne(ctx, r.topic)
	if err != nil {
		return err
	}
	if !found {
		return kerr.UnknownTopicOrPartition
	}
	at := slices.IndexFunc(meta.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == r.partition })
	if at < 0 {
		return kerr.UnknownTopicOrPartition
	}
	if r.leader = meta.Partitions[at].Leader; r.leader < 0 {
		return kerr.LeaderNotAvailable
	}
	r.topicID, r.known = meta.TopicID, true
	return nil
}

// start is the first offset that is there.
func (r *stretchReader) start(ctx context.Context) (offset int64, err error) {
	of := []Stretch{{Topic: r.topic, Partition: r.partition}}
	err = r.k.listOffsets(ctx, of, offsetEarliest, readCommitted, func(_ *Stretch, o int64) { offset = o })
	return offset, err
}
