package audit

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/outbox"
)

// judge compares rows and records. It is pure but for the sorters' files: what
// is taken in goes through four orders, one after the other,
//
//	entries      by event      -> missing, duplicate, altered
//	appearances  by key        -> reordered
//	members      by xid        -> torn, as the table tells it
//	ordinals     by commit LSN -> torn, as the topics tell it
//
// so that no more than a few entries have to be in memory at a time.
type judge struct {
	scope   scope
	topics  names
	places  []place
	facts   facts
	result  *Result
	formats map[string]string // by topic, of values that have a schema
	hash    *hasher
	entries *sorter[entry]

	appearances *sorter[appearance]
	members     *sorter[member]
	ordinals    *sorter[ordinal]

	group group
	timed []bool // by table: at is a time
	found map[uint32]*rowRange
}

// scope is what is to be judged.
type scope struct {
	tables  int
	byTable bool // a range of ids or times: records without a row are outside of it
	claimed bool // the range has a lower bound: the user says that the topics reach back to it
	from    pglogrepl.LSN
	to      pglogrepl.LSN // 0: no end
}

func (s *scope) byLSN() bool { return s.from != 0 || s.to != 0 }

func (s *scope) holds(lsn uint64) bool {
	return lsn >= uint64(s.from) && (s.to == 0 || lsn <= uint64(s.to))
}

// facts are known when everything has been taken in.
type facts struct {
	due     dueness
	covered pglogrepl.LSN // by the checkpoint
	until   pglogrepl.LSN // the WAL's end when the table was read
	topics  map[string]topicFacts
	letters lettersFacts
	// complete: the ordinals of every transaction are those of the topics read,
	// and nothing has been forgotten, so that a hole proves a torn transaction.
	complete bool
}

// topicFacts say what cannot be found in a topic.
type topicFacts struct {
	forgets bool // records were removed, by age or by size or by hand
	// younger, in microseconds: rows made after it are younger than whatever was
	// forgotten. 0: that cannot be told.
	younger   int64
	compacted bool
	hidden    bool // an open transaction hides the end of a partition
}

// lettersFacts say what cannot be found among the dead letters.
type lettersFacts struct {
	topic     string // empty: there has never been one
	forgotten bool
	hidden    bool
	unread    string // why they could not be read
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// rowRange is where the rows of a table that were found begin and end.
type rowRange struct{ least, most int64 }

func newJudge(s scope, dir string, memory int) *judge {
	// While the entries are read the other three fill up: an entry is larger
	// than all of them together.
	return &judge{
		scope: s, result: &Result{}, hash: newHasher(),
		entries:     newSorter(entryCodec, dir, memory/2),
		appearances: newSorter(appearanceCodec, dir, memory/6),
		members:     newSorter(memberCodec, dir, memory/6),
		ordinals:    newSorter(ordinalCodec, dir, memory/6),
		found:       map[uint32]*rowRange{}, formats: map[string]string{},
	}
}

func (j *judge) close() {
	j.entries.close()
	j.appearances.close()
	j.members.close()
	j.ordinals.close()
}

// row of a table.
type row struct {
	owner      uint32
	id         []byte // event id; nil: the table has none
	topic      string
	key, value []byte
	format     string // of its value's schema; empty: it has none
	xid        uint32
	tid        uint64
	at         int64 // order among the rows of its table, by time or id; 0: there is none
	bad        bool  // it cannot become a record: what could be had of it
}

func (j *judge) addRow(r *row) error {
	topic, err := j.topics.number(r.topic)
	if err != nil {
		return err
	}
	if r.format != "" {
		j.formats[r.topic] = r.format
	}
	e := entry{kind: kindRow, place: topic, owner: r.owner, xid: r.xid, by: int64(r.tid), at: r.at}
	if r.bad {
		e.flags |= flagBad
	}
	j.identify(&e, r.id, r.topic, r.key, r.value)
	return j.entries.add(e)
}

// record of a topic.
type record struct {
	place         uint32
	offset        int64
	id            []byte // walstream-event-id; nil when it is the position
	key, value    []byte
	timeline      uint32
	lsn           pglogrepl.LSN
	ordinal       uint32
	producer      int64
	transactional bool
	replay        bool
}

func (j *judge) addRecord(r *record) error {
	topic := j.places[r.place].topic
	e := entry{
		kind: kindRecord, place: r.place, at: r.offset, by: r.producer,
		lsn: uint64(r.lsn), ordinal: r.ordinal, timeline: r.timeline,
	}
	if r.replay {
		j.result.Replayed++
		e.kind = kindReplay
	}
	if r.transactional {
		e.flags |= flagTransactional
	}
	if r.key != nil {
		e.flags |= flagKeyed
		e.key = j.hash.parts(0, []byte(topic), r.key)
	}
	j.identify(&e, r.id, topic, r.key, outbox.Unframed(r.value, j.formats[topic]))
	return j.entries.add(e)
}

// letter is a row that was put aside, as its dead letter has it.
type letter struct {
	place      uint32 // of the letter
	offset     int64
	id         []byte
	topic      string // where the row was to go
	key, value []byte
	unframed   bool // the value has no prefix, whatever its topic's have
	lsn        pglogrepl.LSN
	ordinal    uint32
}

func (j *judge) addLetter(l *letter) error {
	e := entry{kind: kindLetter, place: l.place, at: l.offset, lsn: uint64(l.lsn), ordinal: l.ordinal}
	value := l.value
	if !l.unframed {
		value = outbox.Unframed(value, j.formats[l.topic])
	}
	j.identify(&e, l.id, l.topic, l.key, value)
	return j.entries.add(e)
}

// comparedTopic is how much of a topic's name counts: a dead letter has no more of
// one that is far too long.
const comparedTopic = 1 << 10

func (j *judge) identify(e *entry, id []byte, topic string, key, value []byte) {
	topic = topic[:min(len(topic), comparedTopic)]
	content := [][]byte{[]byte(topic), key, value}
	e.digest = j.hash.parts(0, content...)
	switch {
	case id == nil:
		e.ident = j.hash.ident(content...)
		return
	case j.scope.tables > 1: // two tables may give out the same ids
		e.ident = j.hash.ident(id, []byte(topic))
	default:
		e.ident = j.hash.ident(id)
	}
	e.flags |= flagOwnID
}

// judge goes through the four orders.
func (j *judge) judge(f facts) (*Result, error) {
	j.facts = f
	r := j.result
	r.Covered, r.Until = f.covered, f.until
	if err := j.entries.each(j.take); err != nil {
		return nil, err
	}
	if err := j.finish(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{j.judgeOrder, j.judgeRows, j.judgeOrdinals} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.Spilled = j.entries.spill + j.appearances.spill + j.members.spill + j.ordinals.spill
	r.decide()
	return r, nil
}

// place numbers a partition.
func (j *judge) place(topic string, partition int32) uint32 {
	j.places = append(j.places, place{topic, partition})
	return uint32(len(j.places) - 1)
}

// where names a record.
func (j *judge) where(at uint32, offset int64) string {
	return fmt.Sprintf("%s/%d@%d", j.places[at].topic, j.places[at].partition, offset)
}

func (j *judge) topicFacts(topic uint32) topicFacts { return j.facts.topics[j.topics.list[topic]] }

// mostTopics bounds what a topic column or pattern may name: each is read.
const mostTopics = 10_000

// names numbers the topics.
type names struct {
	list    []string
	numbers map[string]uint32
}

func (n *names) number(name string) (uint32, error) {
	if number, ok := n.numbers[name]; ok {
		return number, nil
	}
	if len(n.list) == mostTopics {
		return 0, fmt.Errorf("the rows name more than %d topics: audit a range of them", mostTopics)
	}
	if n.numbers == nil {
		n.numbers = map[string]uint32{}
	}
	number := uint32(len(n.list))
	n.list, n.numbers[name] = append(n.list, name), number
	return number, nil
}
