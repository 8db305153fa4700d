package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lane is one transactional id of the pipeline and the client that owns it. Used
// by one goroutine at a time.
type lane struct {
	n      int
	client *kgo.Client
	stored map[string]bool // topics that the client is known to have stored
	fresh  []string        // topics of the open transaction that it may not have

	// Of the producer in the open transaction.
	id    int64
	epoch int16
	asked bool // the broker was asked to commit
}

func newLane(n int, client *kgo.Client) *lane {
	return &lane{n: n, client: client, stored: map[string]bool{}}
}

// errNewProducer: the client has given itself a new epoch, by which the broker
// aborts what was in the transaction so far. (It does so when a partition was
// truncated beyond what it wrote.)
var errNewProducer = errors.New("the producer was initialised anew inside the transaction")

// begin a transaction. It asks no broker.
func (l *lane) begin(ctx context.Context) (err error) {
	l.asked = false
	if err := l.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if l.id, l.epoch, err = l.client.ProducerID(ctx); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	return nil
}

// writes notes that the transaction has a record for topic.
func (l *lane) writes(topic string) {
	if !l.stored[topic] {
		l.stored[topic] = true
		l.fresh = append(l.fresh, topic)
	}
}

// commit the transaction, whose records are all answered. After an error, what
// became of it is open if the broker was asked.
//
// franz-go (1.22.3) sends the records that wait for a topic's metadata before it
// stores what it has learnt of the topic. While it has not, the topic's
// partitions are no part of the transaction for it: without others it takes the
// transaction for empty, aborts it and reports success (seen); with others it
// does not renumber them with the epoch that follows. So commit waits until every
// topic is stored.
func (l *lane) commit(ctx context.Context) error {
	for _, topic := range l.fresh {
		if err := l.awaitStored(ctx, topic); err != nil {
			return err
		}
	}
	l.fresh = l.fresh[:0]
	id, epoch, err := l.client.ProducerID(ctx)
	if err == nil && (id != l.id || epoch != l.epoch) {
		err = errNewProducer
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	l.asked = true
	if err := l.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// storedWait is how long the client may take to store a topic of which a record
// has been answered: it is a matter of microseconds.
const storedWait = 10 * time.Second

func (l *lane) awaitStored(ctx context.Context, topic string) error {
	for began := time.Now(); ; {
		leader, _, err := l.client.PartitionLeader(topic, 0)
		if leader >= 0 {
			return nil
		}
		if time.Since(began) > storedWait {
			return fmt.Errorf("commit: the client does not know topic %q after writing to it: %w", topic, errors.Join(err, ErrUncertain))
		}
		if err := sleep(ctx, 20*time.Microsecond); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
}

// abort the transaction, so that what it hides from readers appears at once
// instead of after its time-out. Nothing depends on it. A transaction that the
// broker was asked to commit is left alone. The lane is of no further use.
func (l *lane) abort(ctx context.Context) error {
	if l.asked {
		return nil
	}
	if err := l.client.AbortBufferedRecords(ctx); err != nil {
		return err
	}
	return l.client.EndTransaction(ctx, kgo.TryAbort)
}
