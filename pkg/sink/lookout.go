package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/twmb/franz-go/pkg/kerr"
)

// lookoutPause between two attempts to ask a cluster that does not answer.
const lookoutPause = 500 * time.Millisecond

// lookout asks the cluster what the loop must not wait for: what a topic is like,
// and what a failure means. One goroutine; the loop takes the answers.
type lookout struct {
	k    *Kafka
	box  *Mailbox
	wake chan struct{} // one slot

	mu       sync.Mutex
	asked    []string
	answered []topicFacts
	failure  *failure
}

// failure is the first record that was not delivered.
type failure struct {
	row *row
	err error
}

func newLookout(k *Kafka, box *Mailbox) *lookout {
	return &lookout{k: k, box: box, wake: make(chan struct{}, 1)}
}

// ask for a topic's facts.
func (l *lookout) ask(topic string) {
	l.mu.Lock()
	l.asked = append(l.asked, topic)
	l.mu.Unlock()
	l.signal()
}

// explain the failure of a row; only the first one counts.
func (l *lookout) explain(r *row, err error) {
	l.mu.Lock()
	if l.failure == nil {
		l.failure = &failure{r, err}
	}
	l.mu.Unlock()
	l.signal()
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
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		names, failure := l.asked, l.failure
		l.asked = nil
		l.mu.Unlock()
		if failure != nil {
			l.box.PutErr(l.verdict(ctx, failure))
			return // the sink is at its end
		}
		if len(names) > 0 && !l.learn(ctx, names) {
			return
		}
	}
}

// learn waits for ever for a cluster that does not answer, as the rows do.
func (l *lookout) learn(ctx context.Context, names []string) bool {
	for {
		facts, err := l.k.learn(ctx, names)
		if err == nil {
			l.mu.Lock()
			l.answered = append(l.answered, facts...)
			l.mu.Unlock()
			l.box.Signal()
			return true
		}
		l.k.log.Warn().Err(err).Strs("topics", names).Msg("topic_lookup_failed")
		if sleep(ctx, lookoutPause) != nil {
			return false
		}
	}
}

// errTooLarge: the row exceeded the limit known of its topic.
var errTooLarge = fmt.Errorf("check before sending: %w", kerr.MessageTooLarge)

// verdict turns what the client says about a record into what it means. What
// the broker might have said out of a passing state is asked again.
func (l *lookout) verdict(ctx context.Context, f *failure) error {
	topic := f.row.record.Topic
	var code *kerr.Error
	switch {
	case errors.Is(f.err, kerr.MessageTooLarge), errors.Is(f.err, kerr.RecordListTooLarge):
		return l.tooLarge(ctx, f)
	case isUnknownTopic(f.err):
		return l.vanished(ctx, f)
	case isAccess(f.err):
		return l.k.explain(f.err, "publish", rightWrite, topicResource(topic))
	case errors.Is(f.err, kerr.InvalidTimestamp):
		return f.row.deliveryError(fmt.Errorf("kafka refuses the time %s: the clocks of PostgreSQL and Kafka disagree, or the topic's message.timestamp limits are too narrow: %w",
			f.row.record.Timestamp.UTC().Format(time.RFC3339Nano), f.err))
	case isLostState(f.err):
		return fmt.Errorf("publish to topic %q: the broker does not know what it acknowledged before (an unclean election, or a disk lost?): %w: %w", topic, ErrUncertain, f.err)
	case errors.As(f.err, &code) && !code.Retriable && !errors.Is(f.err, kerr.UnknownServerError):
		return f.row.deliveryError(f.err)
	}
	return l.unplaced(ctx, f)
}

func isLostState(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping) ||
		errors.Is(err, kerr.CorruptMessage)
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
		return f.row.deliveryError(fmt.Errorf("its %d bytes exceed the topic's max.message.bytes of %d: raise it (kafka-configs.sh --alter --topic %s --add-config max.message.bytes=...): %w",
			f.row.size, facts.limit, f.row.record.Topic, f.err))
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

// unplaced: the client itself gave the record back.
func (l *lookout) unplaced(ctx context.Context, f *failure) error {
	if wanted := int(f.row.wanted); wanted >= 0 {
		if facts, err := l.facts(ctx, f.row.record.Topic); err == nil && facts.err == nil && wanted >= facts.partitions {
			return f.row.deliveryError(fmt.Errorf("it asks for partition %d, the topic has %d", wanted, facts.partitions))
		}
	}
	return l.k.explain(fmt.Errorf("%w: %w", ErrUncertain, f.err), "publish", rightWrite, topicResource(f.row.record.Topic))
}

func (r *row) deliveryError(err error) *DeliveryError {
	return &DeliveryError{Topic: r.record.Topic, Position: r.position, RowID: r.rowID, Size: r.size, Err: err}
}
