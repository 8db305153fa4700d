package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

const lanes = schedule.Lanes

// Claim holds the pipeline's transactional ids once both are taken: every earlier
// holder is fenced, and what it left open is aborted. A Claim that has failed
// once, or on which a sink was closed, is of no further use; the next start makes
// a new one.
type Claim struct {
	k      *Kafka
	lane   [lanes]*lane
	took   [lanes]producer
	check  func() error
	owned  int       // lanes taken
	limits *sync.Map // topic -> int32: the batch limits given to the clients
	// refused ends when a broker has refused a batch on a lane.
	refused context.Context
	refuse  context.CancelFunc
	closed  sync.Once
	broken  error // of the first checkpoint that failed: nothing is written after it

	leaving  bool               // nothing is published any more
	loaded   *checkpoint.Record // the one that counts; nil: none was loaded, or found
	recorder *history.Recorder
	buckets  atomic.Uint64 // written
}

// NewClaim returns one that owns nothing yet. Nothing is written to Kafka on its
// behalf while check returns an error: the slot may be another instance's.
func (k *Kafka) NewClaim(check func() error) *Claim {
	c := &Claim{k: k, check: check, limits: new(sync.Map)}
	c.refused, c.refuse = context.WithCancel(context.Background())
	return c
}

// Take a lane: whoever owned it is fenced. Lane 0 comes first (the checkpoint
// topic is made with it when it is missing, and that of history), then lane 1: two instances that each
// own one would both commit. Another order, or a lane again, is a bug.
func (c *Claim) Take(ctx context.Context, n int) error {
	if n != c.owned || n == lanes {
		panic(fmt.Sprintf("walstream: bug: lane %d is taken with %d of %d owned", n, c.owned, lanes))
	}
	k := c.k
	if n == 0 {
		if err := k.ensureCheckpointTopic(ctx); err != nil {
			return err
		}
		if !c.leaving {
			if err := k.ensureHistoryTopic(ctx); err != nil {
				return err
			}
		}
	}
	if err := c.finish(ctx, n); err != nil {
		id := k.cfg.transactionalID(n)
		return k.explain(err, fmt.Sprintf("look for what transactional id %q has left open", id), rightDescribe, fmt.Sprintf("transactional id %q", id))
	}
	client, err := k.newClient(append(k.lane(n, c.batchLimit, c.check), kgo.WithLogger(kgoLogger{log: k.log, refused: c.refuse})))
	if err != nil {
		return err
	}
	c.lane[n] = newLane(n, client)
	if c.took[n].id, c.took[n].epoch, err = client.ProducerID(ctx); err != nil {
		id := k.cfg.transactionalID(n)
		return k.explain(err, fmt.Sprintf("claim transactional id %q", id), rightWrite, fmt.Sprintf("transactional id %q", id))
	}
	c.owned++
	return nil
}

// mustOwn all lanes: with one alone, another instance may still commit.
func (c *Claim) mustOwn(doing string) {
	if c.owned != lanes {
		panic(fmt.Sprintf("walstream: bug: %s with %d of %d lanes", doing, c.owned, lanes))
	}
}

// owns reports that a producer id is that of a lane.
func (c *Claim) owns(ctx context.Context, id int64) bool {
	return slices.ContainsFunc(c.lane[:], func(l *lane) bool {
		own, _, err := l.client.ProducerID(ctx)
		return err == nil && own == id
	})
}

// batchLimit is asked by the clients once per partition. Every topic is looked
// up before its first record, so the limit is known by then.
func (c *Claim) batchLimit(topic string) int32 {
	if limit, ok := c.limits.Load(topic); ok {
		return limit.(int32)
	}
	return clampBatch(defaultMaxMessage)
}

// clampBatch turns a topic's max.message.bytes into the library's limit, which
// counts the length before the batch too: a varint, of one more than the length.
// Until the library has a broker's first answer it takes that for four bytes, and
// refuses a first row that is within two bytes of the limit.
func clampBatch(maxMessage int) int32 {
	return int32(min(max(maxMessage+kbin.UvarintLen(uint32(maxMessage+1)), minBatch), maxBatch))
}

// Load returns the newest checkpoint, the one that counts: nobody can write
// another any more. An open transaction on the topic is waited for, and is an
// error when it does not end.
func (c *Claim) Load(ctx context.Context) (checkpoint.Record, bool, error) {
	c.mustOwn("load the checkpoint that counts")
	record, found, err := c.k.newest(ctx, c)
	if c.loaded = nil; err == nil && found {
		c.loaded = &record
	}
	return record, found, err
}

var _ checkpoint.Store = (*Claim)(nil)

// Write makes one checkpoint durable, in a transaction of its own on lane 0, from
// which a start goes on: nothing is published between the one loaded and it. After
// an error the Claim writes no more: what became of the transaction is for the start
// order to find out. Not for concurrent use.
func (c *Claim) Write(ctx context.Context, record checkpoint.Record) error {
	c.record(&record)
	return c.write(ctx, record)
}

func (c *Claim) write(ctx context.Context, record checkpoint.Record) error {
	c.mustOwn("write a checkpoint")
	if c.broken != nil {
		return c.broken
	}
	records, err := c.checkpoint(record)
	if err != nil {
		return err
	}
	if err := commitAlone(ctx, c.lane[0], records...); err != nil {
		c.broken = c.k.checkpointError(err)
		return c.broken
	}
	c.buckets.Add(uint64(len(records) - 1))
	return nil
}

// checkpoint record as Kafka keeps it, with the buckets of history that end there
// before it: all of them go into one transaction.
func (c *Claim) checkpoint(record checkpoint.Record) (records []*kgo.Record, err error) {
	if records, err = c.recorded(&record); err != nil {
		return nil, err
	}
	record.Version = c.k.cfg.Version
	value, err := record.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(records, &kgo.Record{Topic: c.k.cfg.checkpointTopic(), Partition: 0, Key: []byte(c.k.cfg.Pipeline), Value: value}), nil
}

// commitAlone is one transaction with a few records. It returns when the context
// ends, which leaves the transaction to the client's Close: the client itself
// would wait for the answer to a request under way.
func commitAlone(ctx context.Context, lane *lane, records ...*kgo.Record) error {
	if err := lane.begin(ctx); err != nil {
		return err
	}
	for _, record := range records {
		lane.writes(record.Topic)
		if err := produceOne(ctx, lane.client, record); err != nil {
			return err
		}
	}
	return lane.commit(ctx)
}

func produceOne(ctx context.Context, client *kgo.Client, record *kgo.Record) error {
	answer := make(chan error, 1)
	client.Produce(ctx, record, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("produce: %w", ctx.Err())
	}
}

// checkpointError is transactionError for a transaction of its own.
func (k *Kafka) checkpointError(err error) error {
	return k.transactionError("write the checkpoint", err)
}

// transactionError sorts what a transaction can end with. Whatever is not a plain
// refusal leaves the outcome open.
func (k *Kafka) transactionError(doing string, err error) error {
	switch {
	case isFenced(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrFenced, err)
	case isAccess(err):
		return k.explain(err, doing, rightWrite, fmt.Sprintf("%s and transactional ids walstream.%s.*", topicResource(k.cfg.checkpointTopic()), k.cfg.Pipeline))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return k.explain(fmt.Errorf("%w: %w", ErrUncertain, err), doing, rightWrite, "")
}

// Close gives the connections up. The transactional ids stay taken until the
// next claim.
func (c *Claim) Close() {
	c.closed.Do(func() {
		c.refuse()
		for _, lane := range c.lane {
			if lane != nil {
				lane.client.Close()
			}
		}
	})
}
