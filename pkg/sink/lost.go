package sink

import (
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reached remembers how far each partition was when it last acknowledged a record.
// A log only grows: an acknowledgement that is not beyond the one before is one of
// a leader that does not have what its predecessor acknowledged. Sequence numbers
// tell the same only inside a transaction, or without: brokers of 4.0 and newer
// begin them anew with each transaction (seen: a loss that nobody noticed). One loss
// cannot be told from here: that of a single row, where the marker of its
// transaction is written late and takes its place.
type reached struct {
	mu   sync.Mutex
	ends map[string]*topicEnds
	last *topicEnds // of the record before: most have the same topic
}

type topicEnds struct {
	name string
	id   [16]byte
	next []*atomic.Int64 // by partition: no offset below it may come
}

// forget a topic that was made anew: it begins at 0.
func (r *reached) forget(topic string, id [16]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := r.of(topic)
	if ends.id != id {
		ends.id, ends.next = id, nil
	}
}

func (r *reached) of(topic string) *topicEnds {
	if r.last != nil && r.last.name == topic {
		return r.last
	}
	ends := r.ends[topic]
	if ends == nil {
		ends = &topicEnds{name: topic}
		if r.ends == nil {
			r.ends = map[string]*topicEnds{}
		}
		r.ends[topic] = ends
	}
	r.last = ends
	return ends
}

// note an acknowledgement. It returns the partition's end, to be moved by what
// follows, and where it was before.
func (r *reached) note(topic string, partition int32, offset int64) (end *atomic.Int64, before int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := r.of(topic)
	for int(partition) >= len(ends.next) {
		ends.next = append(ends.next, new(atomic.Int64))
	}
	end = ends.next[partition]
	return end, end.Swap(offset + 1)
}

// losses is the hook of one client. That rows are gone is told, and the stream
// goes on: to hold it up would not bring them back.
type losses struct {
	seen *Seen
	log  zerolog.Logger

	// Of the record before. What follows on it needs no look, it only moves the end: a
	// broker loses what was written last. Promises come one after the other.
	topic     string
	partition int32
	offset    int64
	end       *atomic.Int64
}

// OnProduceRecordUnbuffered hears of every record just before its promise.
func (l *losses) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	if err != nil || r.Offset < 0 || r.Partition < 0 { // not acknowledged, or the broker did not say where
		return
	}
	follows := l.end != nil && r.Offset == l.offset+1 && r.Partition == l.partition && r.Topic == l.topic
	l.topic, l.partition, l.offset = r.Topic, r.Partition, r.Offset
	if follows {
		l.end.Store(r.Offset + 1)
		return
	}
	var before int64
	if l.end, before = l.seen.reached.note(r.Topic, r.Partition, r.Offset); r.Offset < before {
		l.log.Error().Str("topic", r.Topic).Int32("partition", r.Partition).Int64("acknowledged_up_to", before-1).Int64("acknowledged_now", r.Offset).
			Msg("kafka has lost what it acknowledged before (an unclean election, a disk lost, or the topic was made anew?): walstream audit names the rows")
	}
}

var _ kgo.HookProduceRecordUnbuffered = (*losses)(nil)
