package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

// ErrSentAgain: rows are sent once more from the checkpoint, in another way: apart
// from each other, to find which one of them Kafka refuses, or past it.
var ErrSentAgain = errors.New("rows are sent again in another way")

// done is how much of a transaction an earlier sink of this process has published,
// at-least-once: rows that are sent again to find a bad one need not all come twice.
// It holds for that transaction of that history alone, as a checkpoint does.
type done struct {
	begun checkpoint.Edge
	rows  uint32
}

func (d *done) has(r *row) bool {
	return r.position.Ordinal <= d.rows && r.begun != nil &&
		r.begun.CommitLSN == d.begun.CommitLSN && r.begun.XID == d.begun.XID && r.begun.CommitTime.Equal(d.begun.CommitTime)
}

// noteDone: everything sent is answered, so that what lies before the first row
// that was given back is published.
func (l *lookout) noteDone() {
	l.mu.Lock()
	first := l.undone
	l.mu.Unlock()
	if l.transactional || first == nil || first.begun == nil {
		return
	}
	poison := &l.k.cfg.Seen.poison
	poison.mu.Lock()
	defer poison.mu.Unlock()
	poison.done = done{begun: *first.begun, rows: first.position.Ordinal - 1}
}

// isRefusal tells what a broker answers to a batch for what is in it.
func isRefusal(err error) bool {
	for _, target := range []error{
		kerr.InvalidRecord, kerr.PolicyViolation, kerr.InvalidTopicException, kerr.InvalidTimestamp,
		kerr.MessageTooLarge, kerr.RecordListTooLarge,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// isTold: a broker has refused the row before, alone.
func isTold(err error) bool {
	f, ok := errors.AsType[*flaw](err)
	return ok && f.told
}

// unsent is the error of a row that the check before sending refused.
func (f *failure) unsent() error {
	if _, mapping := errors.AsType[*outbox.RowError](f.err); mapping {
		return f.err // it names the row itself
	}
	return f.row.deliveryError(f.err)
}

// badTime: the time of the commit is nobody's fault but the clocks'.
func (f *failure) badTime() error {
	at := f.row.record.Timestamp
	err := fmt.Errorf("kafka refuses its time %s: the clocks of PostgreSQL and Kafka disagree, or the topic's limits on message.timestamp are too narrow: %w",
		at.UTC().Format(time.RFC3339Nano), f.err)
	if f.row.begun != nil && at.Equal(f.row.begun.CommitTime) {
		return f.row.deliveryError(err)
	}
	return f.row.deliveryError(&flaw{class: ClassTime, err: err, told: true})
}

// isolate turns the verdict on the first row of a batch that a broker has refused
// into one on the row that is bad. A broker answers for a batch; so the rows of it
// are sent again in smaller groups, at last one by one: each waits until the one
// before is answered. What is refused alone is named, and the policy decides on it
// at the next start. All this is remembered by the process, not by Kafka.
func (l *lookout) isolate(f *failure, verdict error) error {
	delivery, ok := errors.AsType[*DeliveryError](verdict)
	if !ok || !f.sent || f.row.letterOf != nil {
		return verdict
	}
	poison := &l.k.cfg.Seen.poison
	fl, bad := errors.AsType[*flaw](verdict)
	told := bad && fl.told || errors.Is(f.err, kerr.InvalidTimestamp)
	switch {
	case told && !f.row.apart:
		l.mu.Lock()
		batch := l.refused
		l.mu.Unlock()
		poison.suspect(suspected(batch.from, batch.to, batch.rows, batch.weight))
		return fmt.Errorf("topic %q: kafka refuses one of the %d rows from %s to %s, which were sent together: %w, apart from each other: %w",
			delivery.Topic, batch.rows, batch.from, batch.to, ErrSentAgain, f.err)
	case !bad:
		return verdict
	case told: // where it stops, what lies before it is published first
		poison.name(f.row.position, fl)
	case l.k.cfg.policy(f.row.position) == Stop:
		return verdict
	}
	// What is known of its topic is found by the check before sending.
	return fmt.Errorf("%w, past the row that kafka refuses: %s", ErrSentAgain, delivery.Error()) // which is not final
}
