package pipeline

import (
	"errors"
	"hash/fnv"
	"strconv"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// simBroker is a Kafka: partitions and one checkpoint topic with a fence.
type simBroker struct {
	s         *sim
	log       [][]simRow // by partition
	published map[int]bool
	refuses   map[int]int // times that a row is refused yet
	record    checkpoint.Record
	found     bool
	epoch     int
}

func (b *simBroker) partition(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32()) % len(b.log)
}

var (
	errRefused = errors.New("record refused")
	errFenced  = errors.New("fenced")
	errUnknown = errors.New("the outcome of the checkpoint's transaction is unknown")
)

// simEvent is an event between Submit and its answer.
type simEvent struct {
	row      simRow
	position decode.Position
	ticket   checkpoint.Ticket
}

// simSink is an instance's side of Kafka. What it does, it does when the
// simulation says so: records go out and are answered partition by partition, in
// order within each, as an idempotent producer's are.
type simSink struct {
	b        *simBroker
	name     int
	epoch    int
	base     checkpoint.Record
	start    checkpoint.Edge
	queue    [][]simEvent // by partition: not sent
	sent     [][]simEvent // in the log, not answered
	seen     map[int]bool
	wanted   checkpoint.Edge // checkpoint asked for, not begun
	writing  checkpoint.Edge // its transaction is open
	report   checkpoint.Report
	err      error
	inFlight int
	limit    int
}

func newSimSink(b *simBroker, name, limit int, start checkpoint.Edge, base checkpoint.Record) *simSink {
	return &simSink{
		b: b, name: name, epoch: b.epoch, base: base, start: start, limit: limit, seen: map[int]bool{},
		queue: make([][]simEvent, len(b.log)), sent: make([][]simEvent, len(b.log)),
	}
}

func (k *simSink) Submit(e *outbox.Event, t checkpoint.Ticket) {
	s := k.b.s
	number, err := strconv.Atoi(string(e.Value))
	if err != nil {
		s.fail("event with value %q", e.Value)
	}
	s.say("%d: submit row %d at %s", k.name, number, e.Position)
	if k.seen[number] {
		s.fail("row %d submitted twice by one instance", number)
	}
	k.seen[number] = true
	if e.Position.CommitLSN < k.start.Covered {
		s.fail("row %d at %s submitted, though the checkpoint of the start covers %s", number, e.Position, k.start.Covered)
	}
	if k.inFlight++; k.inFlight > k.limit {
		s.fail("%d rows in flight, the window is %d", k.inFlight, k.limit)
	}
	p := k.b.partition(string(e.Key))
	k.queue[p] = append(k.queue[p], simEvent{simRow{number, string(e.Key)}, e.Position, t})
}

func (k *simSink) Begin(checkpoint.Edge) {}

func (k *simSink) End(edge checkpoint.Edge) {}

func (k *simSink) Checkpoint(edge checkpoint.Edge) {
	k.b.s.say("%d: checkpoint %s wanted", k.name, edge.Covered)
	if edge.Covered <= k.wanted.Covered {
		k.b.s.fail("checkpoint %s asked for after %s", edge.Covered, k.wanted.Covered)
	}
	if oldest := k.oldest(); oldest != 0 && oldest < edge.Covered {
		k.b.s.fail("checkpoint %s asked for with a row of transaction %s unacknowledged", edge.Covered, oldest)
	}
	k.wanted = edge
}

func (k *simSink) Drain(report *checkpoint.Report) {
	report.Acked = append(report.Acked, k.report.Acked...)
	report.Durable, report.Err = k.report.Durable, k.report.Err
	k.inFlight -= len(k.report.Acked)
	k.report.Reset()
}

func (k *simSink) Ready() <-chan struct{} { return neverReady }

// oldest is the commit LSN of the oldest transaction with a row that was not
// answered; 0 when there is none.
func (k *simSink) oldest() (oldest pglogrepl.LSN) {
	for p := range k.queue {
		for _, events := range [][]simEvent{k.sent[p], k.queue[p]} {
			if len(events) > 0 && (oldest == 0 || events[0].position.CommitLSN < oldest) {
				oldest = events[0].position.CommitLSN
			}
		}
	}
	return oldest
}

// produce writes up to n records of a partition.
func (k *simSink) produce(p, n int) {
	for ; n > 0 && len(k.queue[p]) > 0 && k.err == nil; n-- {
		e := k.queue[p][0]
		if k.b.refuses[e.row.number] > 0 {
			k.b.refuses[e.row.number]--
			k.b.s.say("%d: row %d refused", k.name, e.row.number)
			k.fail(errRefused)
			return
		}
		k.queue[p] = k.queue[p][1:]
		k.sent[p] = append(k.sent[p], e)
		k.b.log[p] = append(k.b.log[p], e.row)
		k.b.published[e.row.number] = true
	}
}

// answer acknowledges up to n records of a partition.
func (k *simSink) answer(p, n int) {
	for ; n > 0 && len(k.sent[p]) > 0 && k.err == nil; n-- {
		k.report.Acked = append(k.report.Acked, k.sent[p][0].ticket)
		k.sent[p] = k.sent[p][1:]
	}
}

// fail is the end of the sink: nothing waiting goes out any more.
func (k *simSink) fail(err error) {
	k.err, k.report.Err = err, err
	for p := range k.queue {
		k.queue[p] = nil
	}
}

// commit moves the checkpoint's transaction on by one step: begin it, or end it.
func (k *simSink) commit(trouble int) {
	b := k.b
	if k.err != nil {
		return
	}
	if k.writing.Covered == 0 {
		if k.wanted.Covered > max(k.start.Covered, k.base.Covered) {
			k.writing = k.wanted
		}
		return
	}
	edge := k.writing
	k.writing = checkpoint.Edge{}
	if k.epoch != b.epoch {
		b.s.fenced++
		b.s.say("%d: fenced", k.name)
		k.fail(errFenced)
		return
	}
	if trouble == 1 { // aborted, nobody knows
		k.fail(errUnknown)
		return
	}
	k.base = k.base.With(edge)
	b.write(k.base)
	if trouble == 2 { // committed, nobody knows
		k.fail(errUnknown)
		return
	}
	k.report.Durable = edge
}

// write makes a record the newest.
func (b *simBroker) write(record checkpoint.Record) {
	b.record, b.found = record, true
	b.s.say("checkpoint %s is durable", record.Covered)
}
