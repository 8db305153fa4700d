package sink

import (
	"bytes"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// factsFresh is for how long what was learnt of a topic counts against a row that
// is then left out: a limit may have been raised, a topic made.
const factsFresh = 3 * time.Second

// What the check before sending finds; the broker is asked again before a row is
// refused for it.
var (
	errTooLarge    = fmt.Errorf("check before sending: %w", kerr.MessageTooLarge)
	errNoPartition = errors.New("no such partition")
	errNoKey       = errors.New("compaction needs a key")
)

// inspect is the check before sending: what is known to be wrong with a row.
func (f *front) inspect(r *row, tp *topic) error {
	unframed := f.frame(r)
	if len(f.named) > 0 {
		if named, ok := f.named[r.position]; ok {
			return named
		}
	}
	switch {
	case tp.err != nil:
		return tp.err
	case unframed != nil:
		return unframed
	case r.size > maxRow:
		return &flaw{class: ClassTooLarge, err: fmt.Errorf("its %d bytes are more than the %s of a request to Kafka", r.size, humanize.IBytes(maxRequest))}
	case r.size > tp.limit && !f.fitsCompressed(r, tp):
		return f.claim.k.tooLarge(r, tp.limit, tp.assumed, errTooLarge)
	case r.size > tp.limit && !f.larger[tp.name]:
		f.claim.k.cfg.Seen.poison.allowLarger(tp.name)
		return fmt.Errorf("a row fits topic %q only when compressed: %w", tp.name, ErrSentAgain)
	case r.size > tp.first && r.size <= tp.limit: // the client has learnt its limit once
		return fmt.Errorf("max.message.bytes of topic %q was raised to %d: %w", tp.name, tp.limit, ErrSentAgain)
	case int(r.record.Partition) >= tp.partitions:
		return noPartition(r, tp.partitions)
	case tp.compacted && r.record.Key == nil:
		return f.claim.k.cfg.noKey(tp.name)
	}
	for i := range r.record.Headers {
		if !utf8.ValidString(r.record.Headers[i].Key) {
			return &flaw{class: ClassHeader, err: fmt.Errorf("header %d has a name that is not UTF-8", i+1)}
		}
	}
	return nil
}

func (k *Kafka) tooLarge(r *row, limit int, assumed bool, err error) *flaw {
	if assumed {
		return &flaw{class: ClassTooLarge, err: fmt.Errorf("it is larger than %s, Kafka's default of max.message.bytes; the topic's own cannot be read without the right DescribeConfigs on it: %w",
			humanize.IBytes(uint64(limit)), err)}
	}
	return &flaw{class: ClassTooLarge, err: fmt.Errorf("its %d bytes exceed the topic's max.message.bytes of %d: raise it (%s): %w",
		r.size, limit, k.cfg.command("kafka-configs", "--alter --topic %s --add-config max.message.bytes=...", r.record.Topic), err)}
}

func noPartition(r *row, partitions int) *flaw {
	return &flaw{class: ClassPartition, err: fmt.Errorf("it asks for partition %d, the topic has %d: check the partition column: %w", r.record.Partition, partitions, errNoPartition)}
}

// noKey: brokers refuse such a row, and all of its batch with it. Found here, it
// costs none of them a second way; which one of a batch it is, takes starts to find.
func (c *Config) noKey(topic string) *flaw {
	return &flaw{class: ClassNoKey, err: fmt.Errorf("it has no key, and the topic is compacted: check the key column, or compact it no more (%s): %w",
		c.command("kafka-configs", "--alter --topic %s --add-config cleanup.policy=delete", topic), errNoKey)}
}

// fitsCompressed: the broker compares the compressed size with the limit, and this
// row is worth a try.
func (f *front) fitsCompressed(r *row, tp *topic) bool {
	k := f.claim.k
	if k.cfg.Compression == "none" || r.size > maxRow {
		return false
	}
	if r.compressed == 0 {
		r.compressed = k.compressedSize(r)
	}
	return r.compressed <= tp.limit
}

// maxRow is the largest row that goes into a request.
const maxRow = maxRequest - 64<<10

func (k *Kafka) compressedSize(r *row) int {
	compressor, err := kgo.DefaultCompressor(k.codecs()...)
	if err != nil || compressor == nil {
		return r.size
	}
	// As the record stands in a batch, but for what is 0 when it is alone.
	plain := make([]byte, 0, r.size)
	length := func(n int) { plain = kbin.AppendVarint(plain, int32(n)) }
	length(r.size - batchOverhead)
	plain = append(plain, 0, 0, 0)
	length(len(r.record.Key))
	plain = append(plain, r.record.Key...)
	length(len(r.record.Value))
	plain = append(plain, r.record.Value...)
	length(len(r.record.Headers))
	for i := range r.record.Headers {
		h := &r.record.Headers[i]
		length(len(h.Key))
		plain = append(plain, h.Key...)
		length(len(h.Value))
		plain = append(plain, h.Value...)
	}
	var packed bytes.Buffer
	out, _ := compressor.Compress(&packed, plain)
	return batchOverhead + len(out)
}

// stale asks for a topic's facts once more before a row is left out by them.
func (f *front) stale(r *row, tp *topic) bool {
	if tp.asOf.IsZero() || time.Since(tp.asOf) < factsFresh || f.claim.k.cfg.policy(r.position) == Stop || f.named[r.position] != nil {
		return false
	}
	tp.known = false
	f.lookout.ask(tp.name)
	return true
}

// judge lets the policy decide on a row that cannot be published. It returns false
// when the row has to wait.
func (f *front) judge(r *row, err error) bool {
	cfg := &f.claim.k.cfg
	fl, bad := errors.AsType[*flaw](err)
	policy := cfg.policy(r.position)
	if !bad {
		policy = Stop
	}
	if policy != Stop {
		if over := f.runaway(r, fl, policy); over != nil {
			f.refuse(r, over)
			return true
		}
	}
	switch policy {
	case Skip:
		r.skip = true
		if !f.passRow(r, 0) {
			return false
		}
	case DeadLetter:
		if !f.letters.known {
			return false
		}
		if r.stand == nil {
			if r.stand, err = f.bury(r, fl); err != nil {
				f.refuse(r, err)
				return true
			}
		}
		if !f.passRow(r.stand, 0) {
			return false
		}
	case Stop:
		f.refuse(r, err)
		return true
	}
	poison := &cfg.Seen.poison
	poison.count(BadRow{
		At: time.Now(), Action: policy, Class: fl.class, Reason: shortened(fl.Error()), Table: r.table, Topic: shortened(r.record.Topic),
		RowID: shortened(r.rowID), Position: r.position, Size: r.size,
	}, &f.claim.k.log)
	if cfg.OneShot != nil {
		poison.apply(r.position)
	}
	return true
}

// bury makes the dead letter that goes in the row's place.
func (f *front) bury(r *row, fl *flaw) (*row, error) {
	if f.letters.err != nil {
		return nil, fmt.Errorf("%w; and it cannot become a dead letter: topic %q: %w", fl, f.letters.name, f.letters.err)
	}
	by := ""
	if shot := f.claim.k.cfg.OneShot; shot != nil {
		by = shot.By
	}
	e, err := deadLetter(r, fl, by, f.letters.limit, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%w; and it cannot become a dead letter: topic %q: %w", fl, f.letters.name, err)
	}
	d := f.arena.row(f.records, e, f.letters.name, r.ticket)
	d.weight, d.begun, d.letterOf = r.weight, r.begun, r
	return d, nil
}

// passRow hands a row on, with the room it needs. limit is its topic's, of which
// batches must be kept where the client does not.
func (f *front) passRow(r *row, limit int) bool {
	s := f.suspects
	switch {
	case s == nil || r.position.Compare(s.from) < 0:
		r.room = limit
	case r.position.Compare(s.to) <= 0:
		r.room, r.apart = s.room, s.room == alone
	default:
		r.room = alone // all of them are answered when the first one behind goes
	}
	if !f.pass(entry{row: r}) {
		return false
	}
	f.lookout.stuck.sent.Add(1)
	if s != nil && r.position.Compare(s.to) > 0 {
		f.claim.k.cfg.Seen.poison.cleared(s)
		f.suspects = nil
	}
	return true
}
