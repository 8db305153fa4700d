package sink

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// row is one submitted event on its way. It is the context of its own record:
// the shared one, by which all are cancelled at once, with the row around it, so
// that the promise finds the row without a closure for each.
type row struct {
	shared   context.Context
	record   kgo.Record
	ticket   checkpoint.Ticket
	position decode.Position
	rowID    string
	table    string
	size     int              // of the record alone in a batch
	weight   int              // what the ledger's window counts
	framer   *framer          // of a value that has no prefix yet
	begun    *checkpoint.Edge // where its transaction began
	flaw     *flaw            // what is wrong with it, when that is known before sending
	skip     bool             // the policy leaves it out: acknowledged, not sent
	unframed bool             // its value would have got the prefix of a schema
	numbered bool             // id is the number in its id column
	timed    bool             // its timestamp is that of the timestamp column
	apart    bool             // nothing else is under way with it, from when it goes until it is answered
	id       int64            // see numbered
	stand    *row             // the dead letter in its place
	letterOf *row             // it is the dead letter of that one
	room     int              // how much may be under way with it; 0: anything

	compressed int // its size when it goes apart; 0: not known
}

// fits says whether it may go now, with so much under way.
func (r *row) fits(underWay int64) bool {
	return r.room == 0 || underWay == 0 || underWay+int64(r.weight) <= int64(r.room)
}

func (r *row) Deadline() (time.Time, bool) { return r.shared.Deadline() }
func (r *row) Done() <-chan struct{}       { return r.shared.Done() }
func (r *row) Err() error                  { return r.shared.Err() }
func (r *row) Value(key any) any           { return r.shared.Value(key) }

// What the schedule asks.
func (r *row) Weight() int             { return r.weight }
func (r *row) Begun() *checkpoint.Edge { return r.begun }
func (r *row) Ordinal() uint32         { return r.position.Ordinal }

const (
	rowSlab    = 128
	edgeSlab   = 64
	headerSlab = 1024
	byteChunk  = 256 << 10
)

// arena copies events into slabs: a handful of allocations per hundred rows. A
// slab is freed by the garbage collector when its last row is.
type arena struct {
	rows    []row
	edges   []checkpoint.Edge
	headers []kgo.RecordHeader
	bytes   []byte
}

// row copies the event. The topic's name is the caller's own copy.
func (a *arena) row(ctx context.Context, e *outbox.Event, topic string, t checkpoint.Ticket) *row {
	if len(a.rows) == 0 {
		a.rows = make([]row, rowSlab)
	}
	r := &a.rows[0]
	a.rows = a.rows[1:]
	*r = row{
		shared: ctx, ticket: t, position: e.Position, rowID: e.RowID, table: e.Table, size: recordSize(e), weight: e.Size(),
		id: e.ID, numbered: e.Numbered, timed: e.Timed,
		record: kgo.Record{
			Topic: topic, Partition: e.Partition, Timestamp: e.Timestamp,
			Key: a.copy(e.Key), Value: a.copy(e.Value), Headers: a.copyHeaders(e.Headers),
			Context: r,
		},
	}
	return r
}

// edge copies one.
func (a *arena) edge(edge checkpoint.Edge) *checkpoint.Edge {
	if len(a.edges) == 0 {
		a.edges = make([]checkpoint.Edge, edgeSlab)
	}
	e := &a.edges[0]
	a.edges = a.edges[1:]
	*e = edge
	return e
}

// copy keeps nil (null) and empty apart.
func (a *arena) copy(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) == 0:
		return empty
	case len(b) > byteChunk/4:
		return append([]byte(nil), b...)
	case len(b) > cap(a.bytes)-len(a.bytes):
		a.bytes = make([]byte, 0, byteChunk)
	}
	start := len(a.bytes)
	a.bytes = append(a.bytes, b...)
	return a.bytes[start:len(a.bytes):len(a.bytes)]
}

var empty = []byte{}

func (a *arena) copyHeaders(headers []outbox.Header) []kgo.RecordHeader {
	n := len(headers)
	if n == 0 {
		return nil
	}
	if n > len(a.headers) {
		a.headers = make([]kgo.RecordHeader, max(headerSlab, n))
	}
	out := a.headers[:n:n]
	a.headers = a.headers[n:]
	for i := range headers {
		out[i] = kgo.RecordHeader{Key: headers[i].Key, Value: a.copy(headers[i].Value)}
	}
	return out
}
