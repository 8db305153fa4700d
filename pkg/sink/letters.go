package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// letterRetried makes a record of the dead-letter topic a note that the letter of
// that id was published: written in the transaction that published it.
const letterRetried = headerLetter + "retried"

// HeaderReplay marks a record that was published again, and says by what.
const HeaderReplay = "walstream-replay"

// replayedLetter is its value after a retry.
const replayedLetter = "dead-letter"

// Letter is a dead letter as it stands in its topic.
type Letter struct {
	ID       string // offset, or partition/offset beyond partition 0
	At       time.Time
	Position decode.Position
	// PositionText is that of the header; EventID is the same where the row has none.
	PositionText string
	EventID      string
	Topic        string // where the row was to go; may be empty
	Table        string
	Class        Class
	Reason       string
	Size         int       // of the record that was not published
	Truncated    string    // parts that are not whole
	Unframed     bool      // its value has not got the id of its schema
	Keyless      bool      // the row has no key: the record's is its id
	Retried      time.Time // when it was published after all; zero: not
	RetriedTo    string

	In        string // the topic of dead letters
	Partition int32
	Offset    int64
}

// Letters reads what there is of dead letters of the pipeline, in the order they
// were written; not their records. exists is false when it has never had one.
func (k *Kafka) Letters(ctx context.Context) (letters []*Letter, exists bool, err error) {
	byID := map[string]*Letter{}
	parts, err := k.EachLetter(ctx, nil, TransactionTimeout, func(l *Letter, _ *TopicRecord) error {
		byID[l.ID] = l
		letters = append(letters, l)
		return nil
	}, func(id, topic string, at time.Time) {
		if l := byID[id]; l != nil {
			l.Retried, l.RetriedTo = at, topic
		}
	})
	if err != nil {
		return nil, len(parts) > 0, err
	}
	return letters, len(parts) > 0, nil
}

// EachLetter reads the dead letters of the pipeline and of earlier ones, each with its
// record, and the notes of what a retry has published. What was read, and how far,
// is returned; nothing when there is no such topic.
func (k *Kafka) EachLetter(ctx context.Context, earlier []string, patience time.Duration, letter func(*Letter, *TopicRecord) error, retried func(id, topic string, at time.Time)) ([]Stretch, error) {
	topics := []string{k.cfg.deadLetterTopic()}
	for _, pipeline := range earlier {
		topics = append(topics, DeadLetterTopic(pipeline))
	}
	parts, err := k.Stretches(ctx, topics, patience)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		if err := k.ReadStretch(ctx, &parts[i], func(r *TopicRecord) error {
			if id := r.header(letterRetried); id != "" {
				retried(id, r.header(letterTopic), r.Timestamp)
				return nil
			}
			l := newLetter(parts[i].Partition, r)
			l.In = parts[i].Topic
			return letter(l, r)
		}); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// LetterRecord reads the record of a letter.
func (k *Kafka) LetterRecord(ctx context.Context, l *Letter) (*TopicRecord, error) {
	topic := k.cfg.deadLetterTopic()
	stretch := Stretch{Topic: topic, Partition: l.Partition, From: l.Offset, End: l.Offset + 1, Visible: l.Offset + 1}
	var found *TopicRecord
	err := k.ReadStretch(ctx, &stretch, func(r *TopicRecord) error {
		if r.Offset == l.Offset {
			record := *r
			record.Headers = slices.Clone(r.Headers)
			found = &record
		}
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("dead letter %s was deleted meanwhile", l.ID)
	}
	return found, err
}

func newLetter(partition int32, r *TopicRecord) *Letter {
	l := &Letter{
		ID: letterID(partition, r.Offset), At: r.Timestamp, EventID: r.header(outbox.HeaderEventID),
		Topic: r.header(letterTopic), Table: r.header(letterTable), Class: Class(r.header(letterClass)), Reason: r.header(letterReason),
		Truncated: r.header(letterTruncated), Unframed: r.header(letterSchema) == noSchema, Keyless: r.header(letterKey) == noKey, Partition: partition, Offset: r.Offset,
	}
	l.Size, _ = strconv.Atoi(r.header(letterSize))
	l.PositionText = r.header(outbox.HeaderPosition)
	_, l.Position, _ = decode.ParseHeader([]byte(l.PositionText))
	return l
}

func letterID(partition int32, offset int64) string {
	if partition == 0 {
		return strconv.FormatInt(offset, 10)
	}
	return fmt.Sprintf("%d/%d", partition, offset)
}

// header of a name; a row's own may stand before walstream's.
func (r *TopicRecord) header(name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}

var (
	errRetried   = errors.New("it was published before; --again publishes it once more")
	errTruncated = errors.New("it is not whole: publish the row from the table")
	errUnframed  = errors.New("its value has not got the id of its schema: publish the row from the table")
	errUnmapped  = errors.New("it never was a record, and is what could be had of a row: look at it, and give --to-topic to publish it as it stands")
)

// RetryOptions of a retry.
type RetryOptions struct {
	ToTopic string // instead of the letters' own; empty: those
	Again   bool   // also those that were published before
	By      string // who asked
}

// Retry publishes dead letters to the topics they were meant for, one transaction
// each, together with a note in the dead-letter topic, so that another retry finds
// it done. The records are as they were to be, with the header walstream-replay
// and the present time; they stand behind what was published since. each is told
// what became of every letter. Two retries at the same time fence each other.
func (k *Kafka) Retry(ctx context.Context, chosen func(*Letter) bool, o RetryOptions, each func(l *Letter, topic string, err error)) error {
	lane, err := k.retryLane(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if lane != nil {
			lane.client.Close()
		}
	}()
	// From here on no other retry can commit: what the topic says of letters holds.
	letters, _, err := k.Letters(ctx)
	if err != nil {
		return err
	}
	for _, l := range letters {
		if !chosen(l) {
			continue
		}
		topic, err := l.destination(o)
		var record *TopicRecord
		if err == nil {
			if record, err = k.LetterRecord(ctx, l); err == nil {
				err = k.retryTopic(ctx, record, topic)
			}
		}
		if err != nil {
			each(l, topic, err)
			continue
		}
		err = k.retryOne(ctx, lane, l, record, topic, o)
		each(l, topic, err)
		if err == nil {
			continue
		}
		lane.client.Close() // it may be of no further use; another one fences it
		if lane, err = k.retryLane(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Letter) destination(o RetryOptions) (topic string, err error) {
	topic = l.Topic
	if o.ToTopic != "" {
		topic = o.ToTopic
	}
	switch {
	case !l.Retried.IsZero() && !o.Again:
		err = errRetried
	case l.Truncated != "":
		err = errTruncated
	case l.Unframed:
		err = errUnframed
	case o.ToTopic == "" && (l.Class == ClassMapping || topic == ""):
		err = errUnmapped
	}
	return topic, err
}

// retryLane is a producer of its own: the pipeline's may be at work.
func (k *Kafka) retryLane(ctx context.Context) (*lane, error) {
	id := "walstream." + k.cfg.Pipeline + ".dead-letters"
	// Each transaction has one record in a topic: no batch is larger than its row.
	opts := append(k.producer(func(string) int32 { return maxRequest }, nil), kgo.TransactionalID(id), kgo.TransactionTimeout(TransactionTimeout))
	client, err := k.newClient(opts)
	if err != nil {
		return nil, err
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, k.explain(err, fmt.Sprintf("claim transactional id %q", id), rightWrite, fmt.Sprintf("transactional id %q", id))
	}
	return newLane(0, client), nil
}

// retryTopic is the check before sending.
func (k *Kafka) retryTopic(ctx context.Context, record *TopicRecord, topic string) error {
	if err := k.cfg.checkTopic(topic); err != nil {
		return err
	}
	facts, err := k.learn(ctx, []string{topic})
	if err != nil {
		return k.explain(err, "look up topics", rightDescribe, topicResource(topic))
	}
	if wanted := record.wantedPartition(); facts[0].err == nil && int(wanted) >= facts[0].partitions {
		return fmt.Errorf("it asks for partition %d, the topic has %d", wanted, facts[0].partitions)
	}
	if facts[0].err == nil && facts[0].compacted && record.header(letterKey) == noKey {
		return k.cfg.noKey(topic)
	}
	return facts[0].err
}

// wantedPartition is what the row asked for, or -1.
func (r *TopicRecord) wantedPartition() int32 {
	if n, err := strconv.ParseInt(r.header(letterPartition), 10, 32); err == nil {
		return int32(n)
	}
	return -1
}

// restored is the record of a dead letter as it was to be.
func restored(record *TopicRecord, topic string) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: record.wantedPartition(), Key: record.Key, Value: record.Value, Timestamp: time.Now()}
	if record.header(letterKey) == noKey {
		r.Key = nil
	}
	for _, h := range record.Headers {
		if !strings.HasPrefix(h.Key, headerLetter) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderReplay, Value: []byte(replayedLetter)})
	return r
}

func (k *Kafka) retryOne(ctx context.Context, lane *lane, l *Letter, record *TopicRecord, topic string, o RetryOptions) error {
	note := &kgo.Record{
		Topic: k.cfg.deadLetterTopic(), Partition: l.Partition, Key: record.Key, Timestamp: time.Now(),
		Headers: []kgo.RecordHeader{
			{Key: letterRetried, Value: []byte(l.ID)},
			{Key: letterTopic, Value: []byte(topic)},
			{Key: letterBy, Value: []byte(o.By)},
			{Key: outbox.HeaderPosition, Value: []byte(record.header(outbox.HeaderPosition))},
		},
	}
	err := lane.begin(ctx)
	for _, r := range []*kgo.Record{restored(record, topic), note} {
		if err == nil {
			lane.writes(r.Topic)
			err = produceOne(ctx, lane.client, r)
		}
	}
	if err == nil {
		err = lane.commit(ctx)
	}
	if err != nil {
		abort, cancel := context.WithTimeout(ctx, abortTimeout)
		defer cancel()
		_ = lane.abort(abort) // else its time-out ends it
		return k.explain(err, "publish", rightWrite, topicResource(topic))
	}
	return nil
}
