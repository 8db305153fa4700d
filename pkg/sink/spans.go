package sink

import (
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

// maxTraces of a commit are kept: OpenTelemetry's own limit of links of a span.
const maxTraces = 128

// Commit is one Kafka commit with rows, for whoever traces them. In at-least-once
// it is that of a checkpoint, and has the transactions that it covers and the one
// before does not.
type Commit struct {
	Began, Ended time.Time // of taking in rows; the broker's answer
	Err          error     // nil: committed; otherwise its outcome is open
	Lane         int
	Rows         int
	Bytes        int           // of keys and values
	First, Last  pglogrepl.LSN // commit LSNs of the first and the last row's transaction
	Covered      pglogrepl.LSN // by its checkpoint
	Split        bool          // it ends inside a PostgreSQL transaction
	Snapshot     bool          // pages of a snapshot: its LSNs count them, and are none
	Traces       []Trace       // of its rows, each once, the first maxTraces
	MoreTraces   int           // rows behind, of other traces
}

// Trace is where a row was written: its W3C traceparent.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// at is where its checkpoint stands.
func (c *Commit) at(edge checkpoint.Edge) { c.Covered, c.Snapshot = edge.Covered, edge.Page != nil }

// take in a row that goes to Kafka.
func (c *Commit) take(r *row) {
	if c.Rows == 0 {
		c.Began, c.First = time.Now(), r.position.CommitLSN
	}
	c.Rows++
	c.Bytes += len(r.record.Key) + len(r.record.Value)
	c.Last = r.position.CommitLSN
	for i := range r.record.Headers {
		if h := &r.record.Headers[i]; h.Key == outbox.HeaderTrace {
			if trace, ok := parseTrace(h.Value); ok {
				c.link(trace)
			}
			return
		}
	}
}

func (c *Commit) link(trace Trace) {
	n := len(c.Traces)
	switch {
	case n > 0 && c.Traces[n-1] == trace: // rows of a transaction share one, mostly
	case n == maxTraces: // not looked for among so many: a row would pay for it
		c.MoreTraces++
	case !slices.Contains(c.Traces, trace):
		c.Traces = append(c.Traces, trace)
	}
}

// add what another one has, which follows.
func (c *Commit) add(next *Commit) {
	if c.Rows == 0 {
		*c = *next
		return
	}
	c.Rows += next.Rows
	c.Bytes += next.Bytes
	c.Last = next.Last
	c.MoreTraces += next.MoreTraces
	for _, trace := range next.Traces {
		c.link(trace)
	}
}

// parseTrace reads a traceparent: version, trace id, span id and flags, in lower
// case (https://www.w3.org/TR/trace-context). One that is none is no trace, and
// nobody's fault here: the header goes out as it is.
func parseTrace(text []byte) (trace Trace, ok bool) {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	switch {
	case len(text) < length, text[2] != '-', text[35] != '-', text[52] != '-':
		return trace, false
	case len(text) > length && (string(text[:2]) == "00" || text[length] != '-'):
		return trace, false
	}
	var version, flags [1]byte
	ok = unhex(version[:], text[:2]) && unhex(trace.TraceID[:], text[3:35]) && unhex(trace.SpanID[:], text[36:52]) && unhex(flags[:], text[53:55])
	trace.Flags = flags[0]
	return trace, ok && version[0] != 0xff && trace.TraceID != [16]byte{} && trace.SpanID != [8]byte{}
}

func unhex(into, text []byte) bool {
	for _, c := range text {
		if 'A' <= c && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(into, text)
	return err == nil
}

// uncovered are the transactions that wait for their checkpoint in at-least-once:
// the loop adds rows, the committer takes what it has made durable. Bounded by the
// window.
type uncovered struct {
	mu   sync.Mutex
	each []Commit
}

func (u *uncovered) take(r *row) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.each); n == 0 || u.each[n-1].Last != r.position.CommitLSN {
		u.each = append(u.each, Commit{})
	}
	u.each[len(u.each)-1].take(r)
}

// covered takes out what a checkpoint at edge covers.
func (u *uncovered) covered(edge checkpoint.Edge) *Commit {
	u.mu.Lock()
	defer u.mu.Unlock()
	commit, n := &Commit{}, 0
	for ; n < len(u.each) && u.each[n].Last < edge.Covered; n++ { // the end of a transaction lies behind its commit LSN
		commit.add(&u.each[n])
	}
	left := copy(u.each, u.each[n:])
	clear(u.each[left:])
	u.each = u.each[:left]
	return commit
}
