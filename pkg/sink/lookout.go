package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/repeat"
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
	// ended proves that no transaction of ours from before is open on topics; nil
	// where rows are in none.
	ended func(context.Context, []topicFacts) error

	recheck time.Duration
	topics  map[string]int // learnt, and their limits; the goroutine's own
	stuck   stuck

	settled    chan struct{} // closed by the loop: nothing is under way any more
	settleOnce sync.Once

	mu       sync.Mutex
	asked    []string
	answered []topicFacts
	failure  *failure
	refused  refusedBatch
	undone   *row // the first one of all that the client gave back
}

// failure is the first record that was not delivered.
type failure struct {
	row  *row
	err  error
	sent bool // the client gave it back; otherwise we did not hand it over
}

// refusedBatch is what has failed with the first record: a broker answers for a
// batch, not for a record.
type refusedBatch struct {
	from, to     decode.Position
	rows, weight int
}

func (b *refusedBatch) add(r *row) {
	if b.rows == 0 || r.position.Compare(b.from) < 0 {
		b.from = r.position
	}
	if b.rows == 0 || r.position.Compare(b.to) > 0 {
		b.to = r.position
	}
	b.rows++
	b.weight += r.weight
}

func newLookout(k *Kafka, box *Mailbox) *lookout {
	return &lookout{
		k: k, box: box, wake: make(chan struct{}, 1), settled: make(chan struct{}),
		stuck:   stuck{trouble: repeat.Episode{Calm: stuckCalm}},
		recheck: recheckTime, topics: map[string]int{},
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

// explain the failure; only the first one counts, and what failed with it. A row
// that was not handed over lies behind all that were.
func (l *lookout) explain(f failure) {
	l.mu.Lock()
	if l.failure == nil || f.sent && !l.failure.sent {
		l.failure = &f
	}
	if f.sent && f.row.record.Topic == l.failure.row.record.Topic {
		l.refused.add(f.row)
	}
	l.mu.Unlock()
	l.signal()
}

// givenBack notes a row that the client did not deliver, whatever the reason.
func (l *lookout) givenBack(r *row) {
	l.mu.Lock()
	if l.undone == nil || r.position.Compare(l.undone.position) < 0 {
		l.undone = r
	}
	l.mu.Unlock()
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
	recheck, look := time.NewTicker(l.recheck), time.NewTicker(stuckTime/2)
	defer recheck.Stop()
	defer look.Stop()
	defer l.k.stuck.Store(nil)
	for {
		select {
		case <-l.wake:
		case <-recheck.C:
			l.countPartitions(ctx)
			continue
		case now := <-look.C:
			l.lookIfStuck(ctx, now)
			l.k.cfg.Seen.poison.summarize(now, &l.k.log)
			continue
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		names, failure := l.asked, l.failure
		l.asked = nil
		l.mu.Unlock()
		if failure != nil {
			l.conclude(ctx)
			return // the sink is at its end
		}
		if len(names) > 0 && !l.learn(ctx, names) {
			return
		}
	}
}

// conclude reports what the failure means, when what was under way is settled: it
// may have failed too, and lies before a row that was not handed over.
func (l *lookout) conclude(ctx context.Context) {
	select {
	case <-l.settled:
		l.noteDone()
	case <-time.After(settleTime):
	case <-ctx.Done():
	}
	l.mu.Lock()
	failure := l.failure
	l.mu.Unlock()
	l.box.PutErr(l.isolate(failure, l.verdict(ctx, failure)))
}

// learn waits for ever for a cluster that does not answer, as the rows do. It
// returns false when the sink is at its end.
func (l *lookout) learn(ctx context.Context, names []string) bool {
	var trouble repeat.Episode
	for {
		facts, err := l.look(ctx, names)
		now := time.Now()
		if err == nil {
			if trouble.Open(now) {
				l.k.log.Info().Strs("topics", names).Int("failures", trouble.Count()).Stringer("after", trouble.Lasted(now).Round(time.Millisecond)).
					Msg("topics are looked up: their rows go on")
			}
			for _, f := range facts {
				if f.err != nil {
					continue
				}
				l.topics[f.name] = f.limit
				if f.assumed && l.k.cfg.Seen.tell("assumed "+f.name) {
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
				l.box.PutErr(l.lookError(err, names))
			}
			return false
		}
		if trouble.Trouble(err.Error(), now) {
			l.k.log.Warn().Err(err).Strs("topics", names).Int("failures", trouble.Count()).Stringer("for", trouble.Lasted(now).Round(time.Millisecond)).
				Msg("cannot look up topics: their rows wait")
		}
		if sleep(ctx, lookoutPause) != nil {
			return false
		}
	}
}

// look at topics before their first row.
func (l *lookout) look(ctx context.Context, names []string) ([]topicFacts, error) {
	facts, err := l.k.learn(ctx, names)
	if err == nil && l.ended != nil {
		err = l.ended(ctx, facts)
	}
	return facts, err
}

func (l *lookout) lookError(err error, names []string) error {
	const doing = "look up topics"
	if _, told := errors.AsType[*AccessError](err); told {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return l.k.explain(err, doing, rightDescribe, fmt.Sprintf("topics %q", names))
}

// countPartitions tells people when a topic got more partitions: from then on
// its keys go to other ones, and their order across the change is not kept. A
// cluster that does not answer is somebody else's to report.
func (l *lookout) countPartitions(ctx context.Context) {
	if len(l.topics) == 0 {
		return
	}
	resp, err := l.k.metadata(ctx, slices.Collect(maps.Keys(l.topics)))
	if err != nil {
		return
	}
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		if topic.Topic != nil && topic.ErrorCode == 0 {
			l.k.count(*topic.Topic, len(topic.Partitions))
		}
	}
}

// verdict turns what is known of a failure into what it means. What may be true
// for the moment only is asked again.
func (l *lookout) verdict(ctx context.Context, f *failure) error {
	topic := topicResource(f.row.record.Topic)
	var access *AccessError
	var code *kerr.Error
	var runaway *RunawayError
	switch err := f.err; {
	case errors.As(err, &runaway):
		return f.unsent()
	case errors.Is(err, ErrSentAgain):
		return fmt.Errorf("publish: %w", err)
	case !f.sent && isTold(err):
		return f.unsent()
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return l.tooLarge(ctx, f)
	case isUnknownTopic(err):
		return l.vanished(ctx, f)
	case errors.Is(err, errNoPartition):
		return l.noPartition(ctx, f)
	case errors.Is(err, errNoKey):
		return l.noKey(ctx, f)
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
		return f.unsent()
	case f.row.letterOf != nil && isRefusal(err):
		return f.row.deliveryError(fmt.Errorf("kafka refuses the dead letter: %w", err))
	case errors.Is(err, kerr.InvalidTimestamp):
		return f.badTime()
	case isRefusal(err):
		return f.row.deliveryError(&flaw{class: ClassRefused, err: fmt.Errorf("kafka refuses it: %w", err), told: true})
	case errors.Is(err, kerr.InvalidProducerIDMapping):
		return fmt.Errorf("publish to %s: the broker has forgotten our transactional id (idle for longer than its transactional.id.expiration.ms?): %w: %w", topic, ErrUncertain, err)
	case isLostState(err):
		return fmt.Errorf("publish to %s: the broker does not know what it acknowledged before (an unclean election, or a disk lost?): %w: %w", topic, ErrUncertain, err)
	case errors.As(err, &code) && !Retriable(err):
		return f.row.deliveryError(fmt.Errorf("kafka refuses it, or a row sent together with it and behind it: %w", err))
	default:
		return l.k.explain(fmt.Errorf("%w: %w", ErrUncertain, err), "publish", rightWrite, topic)
	}
}

func isLostState(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.CorruptMessage)
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
	mayFit := f.row.compressed > 0 && f.sent // it was a try
	switch before := l.topics[f.row.record.Topic]; {
	case err != nil:
		return fmt.Errorf("publish: %w: %w", err, f.err)
	case facts.err != nil:
		return f.row.deliveryError(facts.err)
	case f.row.size > facts.limit && !mayFit:
		return f.row.deliveryError(l.k.tooLarge(f.row, facts.limit, facts.assumed, f.err))
	case f.sent && before == facts.limit && f.row.letterOf == nil: // the batch fitted, as far as we can tell
		return f.row.deliveryError(&flaw{class: ClassTooLarge, told: true, err: fmt.Errorf("kafka finds it too large, in spite of the topic's max.message.bytes of %d: %w", facts.limit, f.err)})
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
		return f.row.deliveryError(noPartition(f.row, facts.partitions))
	}
	return fmt.Errorf("publish to topic %q: it has %d partitions now: %w", f.row.record.Topic, facts.partitions, ErrUncertain)
}

func (l *lookout) noKey(ctx context.Context, f *failure) error {
	facts, err := l.facts(ctx, f.row.record.Topic)
	switch {
	case err != nil:
		return fmt.Errorf("publish: %w", err)
	case facts.err != nil:
		return f.row.deliveryError(facts.err)
	case facts.compacted:
		return f.row.deliveryError(f.err)
	}
	return fmt.Errorf("publish to topic %q: it is not compacted any more: %w", f.row.record.Topic, ErrUncertain)
}

func (r *row) deliveryError(err error) *DeliveryError {
	return &DeliveryError{Topic: r.record.Topic, Position: r.position, RowID: r.rowID, Size: r.size, Err: err}
}
