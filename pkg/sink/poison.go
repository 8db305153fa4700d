package sink

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// Policy is what becomes of a row that cannot become an acceptable record.
type Policy string

const (
	// Stop at it: the position is held before the row. The zero Policy too.
	Stop Policy = "stop"
	// DeadLetter puts a record into the dead-letter topic in its place.
	DeadLetter Policy = "dead-letter"
	// Skip leaves it out, counted and logged.
	Skip Policy = "skip"
)

// Class of what is wrong with a row, for metrics.
type Class string

// What can be wrong with a row.
const (
	ClassMapping   Class = "mapping"           // it cannot become an event
	ClassTopicName Class = "topic-name"        // a name Kafka does not take, or must not be written from a row
	ClassNotListed Class = "topic-not-allowed" // not in topics-allowed
	ClassNoTopic   Class = "topic-missing"     // and it may not be made
	ClassTooLarge  Class = "too-large"
	ClassPartition Class = "partition"   // one the topic does not have
	ClassNoKey     Class = "key-missing" // and the topic is compacted
	ClassHeader    Class = "header"      // a name that is no text
	ClassSchema    Class = "schema"      // its value does not fit it, or the registry does not know it
	ClassTime      Class = "timestamp"   // of a column, and Kafka refuses it
	ClassRefused   Class = "refused"     // by the broker, for another reason
)

// Classes there are.
var Classes = []Class{
	ClassMapping, ClassTopicName, ClassNotListed, ClassNoTopic, ClassTooLarge, ClassPartition, ClassNoKey, ClassHeader, ClassSchema, ClassTime, ClassRefused,
}

// flaw is what is wrong with a row: the policy decides. What is wrong with the
// cluster, or with our rights there, is none.
type flaw struct {
	class Class
	err   error
	told  bool // by a broker, and nothing else tells
}

func (f *flaw) Error() string { return f.err.Error() }
func (f *flaw) Unwrap() error { return f.err }

// Flaw tells whether err is a row that the policy decides on, and the class of
// what is wrong with it.
func Flaw(err error) (Class, bool) {
	if f, ok := errors.AsType[*flaw](err); ok {
		return f.class, true
	}
	return "", false
}

// OneShot lets named rows pass in a way that the policy would not, once: the way
// past a stop. By is who asked.
type OneShot struct {
	Positions []decode.Position
	Policy    Policy
	By        string
}

// BadRow is one that did not become a record: what people are told of it. It never
// holds a payload.
type BadRow struct {
	At       time.Time       `json:"at"`
	Action   Policy          `json:"action"`
	Class    Class           `json:"class"`
	Reason   string          `json:"reason"`
	Table    string          `json:"table,omitempty"`
	Topic    string          `json:"topic"`
	RowID    string          `json:"row_id,omitempty"`
	Position decode.Position `json:"-"`
	Size     int             `json:"size"`
}

// Poisoned is a count of bad rows, by what was done and why.
type Poisoned map[Policy]map[Class]uint64

// Rows are all of them.
func (p Poisoned) Rows() (n uint64) {
	for _, classes := range p {
		for _, rows := range classes {
			n += rows
		}
	}
	return n
}

const (
	recentRows   = 10 // kept to be shown
	namedRows    = 1000
	countedRows  = 10_000
	badRowsLines = 5 // logged one by one within badRowsTime; then a summary
	badRowsTime  = 10 * time.Second
)

// poison is what a process knows of bad rows, beyond the life of one sink.
type poison struct {
	mu       sync.Mutex
	suspects *suspects
	named    map[decode.Position]*flaw // those only the broker could tell
	larger   map[string]bool           // topics with rows that fit when compressed only
	counted  map[decode.Position]bool  // rows counted: after a restart they come again
	counts   Poisoned
	recent   []BadRow
	applied  map[decode.Position]bool // of the one-shot decision
	done     done
	runs     runs

	lines  int // logged since windowAt
	silent int // not logged since
	window time.Time
}

// suspects are the rows of a batch that the broker has refused, or of the part of
// it that is left: one of them is bad, and only sending them in smaller groups
// tells which.
type suspects struct {
	from, to decode.Position
	rows     int
	room     int // how many bytes of rows may be under way together; alone: one row
}

// alone as the room of a row: it goes when nothing is under way.
const alone = 1

// parts into which suspects are divided: the requests it takes to narrow them down.
const parts = 32

func suspected(from, to decode.Position, rows, weight int) *suspects {
	s := &suspects{from: from, to: to, rows: rows, room: alone}
	if rows > parts {
		s.room = max(weight/parts, alone)
	}
	return s
}

func (p *poison) suspect(s *suspects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspects = s
}

// cleared: the stream has passed them.
func (p *poison) cleared(s *suspects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.suspects == s {
		p.suspects = nil
	}
}

// name a culprit.
func (p *poison) name(at decode.Position, f *flaw) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.named == nil || len(p.named) >= namedRows {
		p.named = map[decode.Position]*flaw{} // it costs to find them again, no more
	}
	p.named[at] = f
}

// allowLarger batches for a topic from the next start on.
func (p *poison) allowLarger(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.larger == nil {
		p.larger = map[string]bool{}
	}
	p.larger[topic] = true
}

// begin of a sink: what it has to know, which changes only between sinks.
func (p *poison) begin() (*suspects, map[decode.Position]*flaw, map[string]bool, done) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspects, maps.Clone(p.named), maps.Clone(p.larger), p.done
}

// count a row that the policy let pass. One that comes again after a restart is
// counted once.
func (p *poison) count(row BadRow, log *zerolog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counted[row.Position] {
		return
	}
	if p.counted == nil || len(p.counted) >= countedRows {
		p.counted = map[decode.Position]bool{}
	}
	p.counted[row.Position] = true
	counts := Poisoned{}
	for action, classes := range p.counts {
		counts[action] = maps.Clone(classes)
	}
	if counts[row.Action] == nil {
		counts[row.Action] = map[Class]uint64{}
	}
	counts[row.Action][row.Class]++
	p.counts = counts // readers keep the one they have
	p.recent = append(slices.Clone(p.recent[max(0, len(p.recent)-recentRows+1):]), row)
	p.log(row, log)
}

// log one line for each row, and only a summary when there are many.
func (p *poison) log(row BadRow, log *zerolog.Logger) {
	p.summary(row.At, log)
	if p.lines == badRowsLines {
		p.silent++
		return
	}
	p.lines++
	log.Warn().Str("action", string(row.Action)).Str("class", string(row.Class)).Str("reason", row.Reason).
		Str("table", row.Table).Str("topic", row.Topic).Str("row_id", row.RowID).
		Stringer("position", row.Position).Int("size", row.Size).Msg("a row cannot become a record")
}

// summary of what was not logged, when its time is up.
func (p *poison) summary(now time.Time, log *zerolog.Logger) {
	if now.Sub(p.window) < badRowsTime {
		return
	}
	if p.silent > 0 {
		log.Warn().Int("rows", p.silent).Msg("more rows that cannot become records; walstream dead-letters and /status have the newest")
	}
	p.window, p.lines, p.silent = now, 0, 0
}

// summarize is called now and then.
func (p *poison) summarize(now time.Time, log *zerolog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.summary(now, log)
}

// apply the one-shot decision to the row.
func (p *poison) apply(at decode.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied == nil {
		p.applied = map[decode.Position]bool{}
	}
	p.applied[at] = true
}

// BadRows counts the rows that did not become records in this process, and shows
// the newest ones. The results are for reading.
func (s *Seen) BadRows() (Poisoned, []BadRow) {
	s.poison.mu.Lock()
	defer s.poison.mu.Unlock()
	return s.poison.counts, s.poison.recent
}

// Applied tells whether the one-shot decision was applied to the row at a position.
func (s *Seen) Applied(at decode.Position) bool {
	s.poison.mu.Lock()
	defer s.poison.mu.Unlock()
	return s.poison.applied[at]
}

// policy for the row at a position.
func (c *Config) policy(at decode.Position) Policy {
	if c.OneShot != nil && slices.Contains(c.OneShot.Positions, at) {
		return c.OneShot.Policy
	}
	return c.OnPoison
}

// buries: rows may become dead letters.
func (c *Config) buries() bool {
	return c.OnPoison == DeadLetter || c.OneShot != nil && c.OneShot.Policy == DeadLetter
}

// checkTopic is outbox.CheckTopic and the list of what is allowed.
func (c *Config) checkTopic(name string) error {
	if err := outbox.CheckTopic(name); err != nil {
		return &flaw{class: ClassTopicName, err: err}
	}
	if len(c.TopicsAllowed) == 0 {
		return nil
	}
	for _, pattern := range c.TopicsAllowed {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return nil
		}
	}
	return &flaw{class: ClassNotListed, err: fmt.Errorf("the topic is not among those of topics-allowed")}
}
