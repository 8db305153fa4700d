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
	size     int              // of the record alone in a batch
	weight   int              // what the ledger's window counts
	begun    *checkpoint.Edge // where its transaction began; nil in at-least-once
}

func (r *row) Deadline() (time.Time, bool) { return r.shared.Deadline() }
func (r *row) Done() <-chan struct{}       { return r.shared.Done() }
func (r *row) Err() error                  { return r.shared.Err() }
func (r *row) Value(key any) any           { return r.shared.Value(key) }

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
		shared: ctx, ticket: t, position: e.Position, rowID: e.RowID, size: recordSize(e), weight: e.Size(),
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
