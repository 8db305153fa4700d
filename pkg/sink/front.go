package sink

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// front is the loop's side of both Kafka sinks: it copies rows, holds them back
// until their topic is known, checks what can be known before sending, and passes
// them on in the order of the stream. All but failed is called by the loop alone.
type front struct {
	claim   *Claim
	box     *Mailbox
	lookout *lookout
	framing *framing
	pass    func(entry) bool // takes what may go to Kafka, unless it has to wait for what is under way

	// Every record's context. The first failure cancels it, so that the client
	// sends nothing more of what it has buffered.
	records context.Context
	cancel  context.CancelFunc

	arena  arena
	topics map[string]*topic
	begun  *checkpoint.Edge // of the transaction whose rows come
	// waiting entries: the first one's topic is still being looked up, or it may not
	// go before others are answered. Those behind wait too, whatever their topic:
	// should it be refused, they must not have been published. Their number is
	// bounded by the ledger's window.
	waiting []entry
	refused *row // at which the stream stopped, before sending it

	// Bad rows: see judge.go.
	letters  *topic // of dead letters; nil: none are written
	suspects *suspects
	named    map[decode.Position]*flaw
	larger   map[string]bool
	done     done
	passed   decode.Position // the newest row that went to a topic
}

// open tells the front what the process knows of bad rows.
func (f *front) open() {
	f.suspects, f.named, f.larger, f.done = f.claim.k.cfg.Seen.poison.begin()
	if f.claim.k.cfg.buries() {
		f.letters = &topic{name: f.claim.k.cfg.deadLetterTopic()}
		f.lookout.ask(f.letters.name)
	}
}

// entry of the stream: a row, or the end of a transaction.
type entry struct {
	row *row
	end *checkpoint.Edge
}

// topic as the loop sees it.
type topic struct {
	name       string
	known      bool
	limit      int             // max.message.bytes
	first      int             // what the client was told; larger rows need another one
	assumed    bool            // it may not be read
	compacted  bool            // rows need a key
	partitions int             // when it was looked up; they only grow
	err        error           // why no row may go there
	asOf       time.Time       // when it was looked up; zero: nothing that a cluster could tell is wrong with it
	passed     decode.Position // the newest row that went there
}

// begin notes what the rows that come have in common.
func (f *front) begin(edge checkpoint.Edge) { f.begun = f.arena.edge(edge) }

// submit takes the next row.
func (f *front) submit(e *outbox.Event, t checkpoint.Ticket) {
	if f.stopped() {
		return // the position is held before an earlier row
	}
	tp, ok := f.topics[e.Topic]
	if !ok {
		tp = f.meet(e.Topic)
	}
	r := f.arena.row(f.records, e, tp.name, t)
	r.framer = f.framing.of(e)
	f.take(r, tp)
}

// reject takes a row that cannot become an event.
func (f *front) reject(e *outbox.Event, bad *outbox.RowError, t checkpoint.Ticket) {
	if f.stopped() {
		return
	}
	r := f.arena.row(f.records, e, strings.Clone(e.Topic), t)
	r.flaw, r.unframed = &flaw{class: ClassMapping, err: bad}, e.Schema != nil
	f.take(r, nil)
}

func (f *front) take(r *row, tp *topic) {
	r.begun = f.begun
	if len(f.waiting) > 0 || !f.send(r, tp) {
		f.waiting = append(f.waiting, entry{row: r})
	}
}

// end takes the end of a transaction.
func (f *front) end(edge checkpoint.Edge) {
	switch e := (entry{end: f.arena.edge(edge)}); {
	case f.stopped():
	case len(f.waiting) > 0:
		f.waiting = append(f.waiting, e)
	default:
		f.pass(e)
	}
}

// topicsKept bounds what a column of names that are no topics costs: beyond so
// many, those that no row may go to are forgotten.
const topicsKept = 4096

// meet takes up a topic that no row has named before.
func (f *front) meet(name string) *topic {
	if len(f.topics)%topicsKept == topicsKept-1 && len(f.waiting) == 0 {
		maps.DeleteFunc(f.topics, func(_ string, tp *topic) bool { return tp.known && tp.err != nil })
	}
	tp := &topic{name: name, err: f.claim.k.cfg.checkTopic(name)}
	f.topics[name] = tp
	if tp.err != nil {
		tp.known = true
	} else {
		f.lookout.ask(name)
	}
	return tp
}

// send passes the row on, or what the policy makes of it. It returns false when it
// cannot be told yet, or when the row has to wait for others. A row with a flaw
// needs no topic.
func (f *front) send(r *row, tp *topic) bool {
	if f.done.rows > 0 && !f.lookout.transactional && f.done.has(r) {
		r.skip = true
		f.claim.k.cfg.Seen.poison.published(r)
		return f.passRow(r, 0)
	}
	if r.flaw != nil {
		return f.judge(r, r.flaw)
	}
	if !tp.known || !r.framer.ready() {
		return false
	}
	if err := f.inspect(r, tp); err != nil {
		if f.stale(r, tp) {
			return false
		}
		return f.judge(r, err)
	}
	limit := 0
	if len(f.larger) > 0 && f.larger[tp.name] {
		limit = tp.limit
	}
	if !f.passRow(r, limit) {
		return false
	}
	tp.passed, f.passed = r.position, r.position
	return true
}

// stopped: a row was refused, and no further one is taken.
func (f *front) stopped() bool { return f.refused != nil || f.records.Err() != nil }

// learn takes what is known of topics and schemas now.
func (f *front) learn() {
	f.framing.learn()
	for _, fact := range f.lookout.answers() {
		tp := f.topics[fact.name]
		if f.letters != nil && fact.name == f.letters.name {
			tp = f.letters
		}
		tp.known, tp.limit, tp.assumed, tp.compacted, tp.partitions = true, fact.limit, fact.assumed, fact.compacted, fact.partitions
		tp.err, tp.asOf = fact.err, time.Now()
		if fact.err != nil {
			if tp == f.letters && f.claim.k.cfg.Seen.tell("letters "+fact.err.Error()) {
				f.claim.k.log.Warn().Err(fact.err).Str("topic", fact.name).Msg("no dead letters can be written: a bad row will stop the stream")
			}
			continue
		}
		limit := fact.limit
		if f.larger[fact.name] {
			limit = maxRequest // of one row, compressed; more of them are held apart by their room
		}
		if tp.first == 0 {
			tp.first = limit
			f.claim.limits.Store(fact.name, clampBatch(limit))
		}
	}
}

// advance passes on what waited, up to the next row that has to wait.
func (f *front) advance() {
	for len(f.waiting) > 0 && !f.stopped() {
		next := f.waiting[0]
		if next.row != nil && !f.send(next.row, f.topics[next.row.record.Topic]) || next.row == nil && !f.pass(next) {
			return
		}
		f.waiting[0] = entry{}
		f.waiting = f.waiting[1:]
	}
}

// refuse ends the sink at a row that was not sent. What is under way goes on: it
// lies before the row, and what is acknowledged and covered by a checkpoint does
// not come twice after the next start.
func (f *front) refuse(r *row, err error) {
	f.refused = r
	f.lookout.givenBack(r)
	f.lookout.explain(failure{row: r, err: err})
	f.box.Signal() // with nothing under way, nothing else would: Drain sees that all has come to its end
}

// failed takes a record that the client gives back, inside its promise. The first
// failure cancels all records; a refusal has done so already (see kgoLogger), so
// nothing that the client has buffered behind goes out.
func (f *front) failed(r *row, err error) {
	f.lookout.givenBack(r)
	if isEcho(err) {
		return
	}
	f.cancel()
	f.lookout.explain(failure{row: r, err: err, sent: true})
}

// isEcho tells what an earlier failure, or Close, has done to a record.
func isEcho(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, kgo.ErrAborting)
}

// errNoReason stands in for a failure that nobody has explained.
var errNoReason = errors.New("the client gave records back without a reason")
