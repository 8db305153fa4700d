package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/twmb/franz-go/pkg/kerr"
)

// settleTime is how long a refusal waits for the records under way and for a
// checkpoint that covers them, so that a process that is started over and over
// in front of a refused row does not publish the rows before it each time.
const settleTime = 5 * time.Second

// recheckTime between two looks at the topics in use.
const recheckTime = time.Minute

// lookoutPause between two attempts to ask a cluster that does not answer.
const lookoutPause = time.Second

// lookout asks the cluster what the loop must not wait for: what a topic is like,
// and what a failure means. One goroutine; the loop takes the answers.
type lookout struct {
	k    *Kafka
	box  *Mailbox
	wake chan struct{} // one slot

	// transactional: an epoch that is no longer ours means that we are fenced.
	transactional bool

	recheck    time.Duration
	partitions map[string]int // of the topics learnt; the goroutine's own

	settled    chan struct{} // closed by the loop: nothing is under way any more
	settleOnce sync.Once

	mu       sync.Mutex
	asked    []string
	answered []topicFacts
	failure  *failure
}

// failure is the first record that was not delivered.
type failure struct {
	row  *row
	err  error
	sent bool // the client gave it back; otherwise we did not hand it over
}

func newLookout(k *Kafka, box *Mailbox) *lookout {
	return &lookout{
		k: k, box: box, wake: make(chan struct{}, 1), settled: make(chan struct{}),
		recheck: recheckTime, partitions: map[string]int{},
	}
}

// settle says that what was under way when the sink stopped has come to its end.
func (l *lookout) settle() { l.settleOnce.Do(func() { close(l.settled) }) }

// ask for a topic's facts.
func (l *lookout) ask(topic string) {
	l.mu.Lock()
	l.asked = append(l.asked, topic)
	l.mu.Unlock()
	l.signal()
}

// explain the failure; only the first one counts.
func (l *lookout) explain(f failure) {
	l.mu.Lock()
	if l.failure == nil {
		l.failure = &f
	}
	l.mu.Unlock()
	l.signal()
}

// explaining reports that a failure is known.
func (l *lookout) explaining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure != nil
}

func (l *lookout) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// answers takes what has been learnt since the last call.
func (l *lookout) answers() []topicFacts {
	l.mu.Lock()
	defer l.mu.Unlock()
	facts := l.answered
	l.answered = nil
	return facts
}

func (l *lookout) run(ctx context.Context) {
	recheck := time.NewTicker(l.recheck)
	defer recheck.Stop()
	for {
		select {
		case <-l.wake:
		case <-recheck.C:
			l.countPartitions(ctx)
			continue
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		names, failure := l.asked, l.failure
		l.asked = nil
		l.mu.Unlock()
		if failure != nil {
			verdict := l.verdict(ctx, failure)
			select {
			case <-l.settled:
			case <-time.After(settleTime):
			case <-ctx.Done():
			}
			l.box.PutErr(verdict)
			return // the sink is at its end
		}
		if len(names) > 0 && !l.learn(ctx, names) {
			return
		}
	}
}

// learn waits for ever for a cluster that does not answer, as the rows do. It
// returns false when the sink is at its end.
func (l *lookout) learn(ctx context.Context, names []string) bool {
	for {
		facts, err := l.k.learn(ctx, names)
		if err == nil {
			for _, f := range facts {
				if f.err != nil {
					continue
				}
				l.partitions[f.name] = f.partitions
				if f.assumed {
					l.k.log.Warn().Str("topic", f.name).Int("assumed_bytes", f.limit).Msg("cannot read the topic's max.message.bytes: assuming Kafka's default")
				}
			}
			l.mu.Lock()
			l.answered = append(l.answered, facts...)
			l.mu.Unlock()
			l.box.Signal()
			return true
		}
		if !Retriable(err) {
			if ctx.Err() == nil {
				l.box.PutErr(l.k.explain(err, "look up topics", rightDescribe, fmt.Sprintf("topics %q", names)))
			}
			return false
		}
		l.k.log.Warn().Err(err).Strs("topics", names).Msg("cannot look up topics: their rows wait")
		if sleep(ctx, lookoutPause) != nil {
			return false
		}
	}
}

// countPartitions tells people when a topic got more partitions: from then on
// its keys go to other ones, and their order across the change is not kept. A
// cluster that does not answer is somebody else's to report.
func (l *lookout) countPartitions(ctx context.Context) {
	if len(l.partitions) == 0 {
		return
	}
	resp, err := l.k.metadata(ctx, slices.Collect(maps.Keys(l.partitions)))
	if err != nil {
		return
	}
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		if topic.Topic == nil || topic.ErrorCode != 0 {
			continue
		}
		before, now := l.partitions[*topic.Topic], len(topic.Partitions)
		if before != now {
			l.k.log.Warn().Str("topic", *topic.Topic).Int("before", before).Int("now", now).Msg("the topic's number of partitions changed: keys go to other partitions from here on")
			l.partitions[*topic.Topic] = now
		}
	}
}

// What the check before sending finds; the broker is asked again before a row is
// refused for it.
var (
	errTooLarge    = fmt.Errorf("check before sending: %w", kerr.MessageTooLarge)
	errNoPartition = errors.New("no such partition")
)

// verdict turns what is known of a failure into what it means. What may be true
// for the moment only is asked again.
func (l *lookout) verdict(ctx context.Context, f *failure) error {
	topic := topicResource(f.row.record.Topic)
	var access *AccessError
	var code *kerr.Error
	switch err := f.err; {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return l.tooLarge(ctx, f)
	case isUnknownTopic(err):
		return l.vanished(ctx, f)
	case errors.Is(err, errNoPartition):
		return l.noPartition(ctx, f)
	case errors.As(err, &access):
		return fmt.Errorf("publish: %w", err)
	case l.transactional && isFenced(err):
		return fmt.Errorf("publish to %s: %w: %w", topic, ErrFenced, err)
	case l.transactional && isAborted(err):
		return fmt.Errorf("publish to %s: the transaction cannot be committed any more: %w: %w", topic, ErrUncertain, err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return l.k.explain(err, "publish", rightWrite, fmt.Sprintf("transactional ids walstream.%s.*", l.k.cfg.Pipeline))
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return l.k.explain(err, "publish", rightIdempotent, "cluster")
	case isAccess(err):
		return l.k.explain(err, "publish", rightWrite, topic)
	case !f.sent:
		return f.row.deliveryError(err)
	case errors.Is(err, kerr.InvalidTimestamp):
		return f.row.deliveryError(fmt.Errorf("kafka refuses its time %s: the clocks of PostgreSQL and Kafka disagree, or the topic's limits on message.timestamp are too narrow: %w",
			f.row.record.Timestamp.UTC().Format(time.RFC3339Nano), err))
	case isLostState(err):
		return fmt.Errorf("publish to %s: the broker does not know what it acknowledged before (an unclean election, or a disk lost?): %w: %w", topic, ErrUncertain, err)
	case errors.As(err, &code) && !Retriable(err):
		// A broker answers for a batch, not for a record.
		return f.row.deliveryError(fmt.Errorf("kafka refuses it, or a row sent together with it and behind it: %w", err))
	default:
		return l.k.explain(fmt.Errorf("%w: %w", ErrUncertain, err), "publish", rightWrite, topic)
	}
}

func isLostState(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping) ||
		errors.Is(err, kerr.CorruptMessage)
}

// isAborted: the broker has ended the transaction, or will not commit it.
func isAborted(err error) bool {
	return errors.Is(err, kerr.TransactionAbortable) || errors.Is(err, kerr.InvalidTxnState)
}

// facts of one topic, asked anew.
func (l *lookout) facts(ctx context.Context, topic string) (topicFacts, error) {
	found, err := l.k.learn(ctx, []string{topic})
	if err != nil {
		return topicFacts{}, fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return found[0], nil
}

func (l *lookout) tooLarge(ctx context.Context, f *failure) error {
	facts, err := l.facts(ctx, f.row.record.Topic)
	switch {
	case err != nil:
		return fmt.Errorf("publish: %w: %w", err, f.err)
	case facts.err != nil:
		return f.row.deliveryError(facts.err)
	case f.row.size > facts.limit && facts.assumed:
		return f.row.deliveryError(fmt.Errorf("it is larger than %s, Kafka's default of max.message.bytes; the topic's own cannot be read without the right DescribeConfigs on it: %w",
			humanize.IBytes(uint64(facts.limit)), f.err))
	case f.row.size > facts.limit:
		return f.row.deliveryError(fmt.Errorf("its %d bytes exceed the topic's max.message.bytes of %d: raise it (%s): %w",
			f.row.size, facts.limit, l.k.cfg.command("kafka-configs", "--alter --topic %s --add-config max.message.bytes=...", f.row.record.Topic), f.err))
	}
	// The row fits by itself: the limit has changed since it was read.
	return fmt.Errorf("publish to topic %q: max.message.bytes has changed to %d: %w: %w", f.row.record.Topic, facts.limit, ErrUncertain, f.err)
}

func (l *lookout) vanished(ctx context.Context, f *failure) error {
	facts, err := l.facts(ctx, f.row.record.Topic)
	switch {
	case err != nil:
		return fmt.Errorf("publish: %w: %w", err, f.err)
	case facts.err != nil:
		return f.row.deliveryError(facts.err)
	}
	return fmt.Errorf("publish to topic %q: it was gone for a while, or has been made anew: %w: %w", f.row.record.Topic, ErrUncertain, f.err)
}

func (l *lookout) noPartition(ctx context.Context, f *failure) error {
	facts, err := l.facts(ctx, f.row.record.Topic)
	switch wanted := int(f.row.record.Partition); {
	case err != nil:
		return fmt.Errorf("publish: %w", err)
	case facts.err != nil:
		return f.row.deliveryError(facts.err)
	case wanted >= facts.partitions:
		return f.row.deliveryError(fmt.Errorf("it asks for partition %d, the topic has %d: check the partition column", wanted, facts.partitions))
	}
	return fmt.Errorf("publish to topic %q: it has %d partitions now: %w", f.row.record.Topic, facts.partitions, ErrUncertain)
}

func (r *row) deliveryError(err error) *DeliveryError {
	return &DeliveryError{Topic: r.record.Topic, Position: r.position, RowID: r.rowID, Size: r.size, Err: err}
}
