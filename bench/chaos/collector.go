package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/verdict"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// id of a transaction.
type id struct {
	writer int
	number int64
}

func (i id) String() string { return fmt.Sprintf("%d/%d", i.writer, i.number) }

// arrival is a record as far as the collector asks.
type arrival struct {
	id
	index, size int
	key         string
	place       verdict.Place
	offset      int64
	position    decode.Position
}

func (a *arrival) String() string {
	return fmt.Sprintf("%s/%d@%d (transaction %s, row %d of %d, position %s)", a.place.Topic, a.place.Partition, a.offset, a.id, a.index, a.size, a.position)
}

// collector puts the transactions together again from the records of a
// read_committed reader.
type collector struct {
	transactions map[id]*arrived
	partial      map[id]*arrived
	keys         map[string]*latest

	records, duplicates, reordered int
	altered                        int // another key, topic or position than the row's
	examples                       []string
}

// arrived is what is there of a transaction.
type arrived struct {
	size, count int
	indexes     []uint64
	commit      pglogrepl.LSN
}

// latest record of a key.
type latest struct {
	id
	index int
	place verdict.Place
}

func newCollector() *collector {
	return &collector{transactions: map[id]*arrived{}, partial: map[id]*arrived{}, keys: map[string]*latest{}}
}

// parse takes what the load wrote from a record.
func parse(r *kgo.Record) (a arrival, err error) {
	a.key, a.place, a.offset = string(r.Key), verdict.Place{Topic: r.Topic, Partition: r.Partition}, r.Offset
	parts := bytes.SplitN(r.Value, []byte("/"), 5)
	if len(parts) != 5 {
		return a, fmt.Errorf("%s/%d@%d holds %.60q, which the load has not written", r.Topic, r.Partition, r.Offset, r.Value)
	}
	numbers := [4]int64{}
	for i := range numbers {
		n, parseErr := strconv.ParseInt(string(parts[i]), 10, 64)
		numbers[i], err = n, errors.Join(err, parseErr)
	}
	if numbers[3] < 1 || numbers[3] > 1<<30 {
		err = errors.Join(err, fmt.Errorf("%s/%d@%d is of a transaction of %d rows", r.Topic, r.Partition, r.Offset, numbers[3]))
	}
	a.id, a.index, a.size = id{int(numbers[0]), numbers[1]}, int(numbers[2]), int(numbers[3])
	for _, h := range r.Headers {
		if h.Key == outbox.HeaderPosition {
			var headerErr error
			_, a.position, headerErr = verdict.ParsePosition(string(h.Value))
			err = errors.Join(err, headerErr)
		}
	}
	return a, err
}

func (c *collector) take(a *arrival) {
	c.records++
	t := c.transactions[a.id]
	if t == nil {
		t = &arrived{size: a.size, indexes: make([]uint64, a.size/64+1), commit: a.position.CommitLSN}
		c.transactions[a.id], c.partial[a.id] = t, t
	}
	// Rows are numbered as they are published.
	if a.index < 0 || a.index >= t.size || a.size != t.size || a.position.CommitLSN != t.commit || int(a.position.Ordinal) != a.index+1 ||
		a.key != fmt.Sprintf("k-%d-%d", a.writer, a.index%keysOfWriter) || a.place.Topic != topics[a.index%2] {
		c.altered++
		c.example("altered", a.String())
		return
	}
	word, bit := a.index/64, uint64(1)<<(a.index%64)
	if t.indexes[word]&bit != 0 {
		c.duplicates++
		c.example("duplicate", a.String())
		return
	}
	t.indexes[word] |= bit
	if t.count++; t.count == t.size {
		delete(c.partial, a.id)
	}
	c.order(a)
}

func (c *collector) order(a *arrival) {
	last := c.keys[a.key]
	if last == nil {
		c.keys[a.key] = &latest{a.id, a.index, a.place}
		return
	}
	if a.number < last.number || a.number == last.number && a.index < last.index || a.place != last.place {
		c.reordered++
		c.example("reordered", fmt.Sprintf("%s is behind row %d of transaction %s in %v", a, last.index, last.id, last.place))
		return
	}
	*last = latest{a.id, a.index, a.place}
}

// torn tells the transactions of which a reader sees a part: a split one's part
// is the rows up to the ordinal of a checkpoint, no others.
func (c *collector) torn(splits map[pglogrepl.LSN]uint32) (torn, split []string) {
	for id, t := range c.partial {
		what := fmt.Sprintf("transaction %s at %s: %d of %d rows are visible, a checkpoint says %d", id, t.commit, t.count, t.size, splits[t.commit])
		if ordinal := splits[t.commit]; ordinal > 0 && t.hasFirst(int(ordinal)) {
			split = append(split, what)
		} else {
			torn = append(torn, what)
		}
	}
	return torn, split
}

// hasFirst: the first n rows, and no others.
func (a *arrived) hasFirst(n int) bool {
	for i := range n {
		if a.indexes[i/64]&(1<<(i%64)) == 0 {
			return false
		}
	}
	return a.count == n
}

// missing compares with what was written, and counts the rows that are not there,
// the transactions that are there in part, and the records of none that was
// committed.
func (c *collector) missing(written map[id]int) (missing, torn, foreign int) {
	for id, size := range written {
		t := c.transactions[id]
		switch {
		case t == nil:
			missing += size
			c.example("missing", fmt.Sprintf("transaction %s of %d rows", id, size))
		case t.size != size:
			c.altered++
			c.example("altered", fmt.Sprintf("transaction %s has %d rows, its records say %d", id, size, t.size))
		case t.count < size:
			missing += size - t.count
			torn++
			c.example("missing", fmt.Sprintf("%d of %d rows of transaction %s at %s", size-t.count, size, id, t.commit))
		}
	}
	for id, t := range c.transactions {
		if _, committed := written[id]; !committed {
			foreign += t.count
			c.example("foreign", fmt.Sprintf("%d rows of transaction %s at %s, which was not committed", t.count, id, t.commit))
		}
	}
	return missing, torn, foreign
}

// examplesKept in all: enough to begin looking.
const examplesKept = 30

func (c *collector) example(kind, text string) {
	if len(c.examples) < examplesKept {
		c.examples = append(c.examples, kind+": "+text)
	}
}
