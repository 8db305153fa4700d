package checkpoint

import (
	"fmt"
	"math"
	"time"

	"github.com/jackc/pglogrepl"
)

// Ticket is the receipt for one submitted row, acknowledged exactly once.
type Ticket struct {
	span  uint64 // sequence number of its span
	row   uint32 // of the span, from 1
	bytes uint32
}

// span is one transaction on its way, and the keepalives right behind it.
type span struct {
	edge        Edge
	outstanding int    // rows not yet acknowledged
	rows        uint32 // rows ever tracked
	// receipts is the sum of the outstanding rows' receipts. It is 0 with nothing
	// outstanding, unless one row was acknowledged in the place of another.
	receipts uint64
	closed   bool
}

// receipt spreads a row's number over 64 bits: sums of different rows differ.
func (t Ticket) receipt() uint64 {
	x := (uint64(t.row) + 1) * 0x9E3779B97F4A7C15
	x ^= x >> 32
	return x * 0xD6E8FEB86659FD93
}

// Limits of what may be in flight: submitted and not yet answered by Kafka.
type Limits struct {
	Events int
	Bytes  int
}

// Ledger turns acknowledgements, which come in any order, into the one LSN that
// may be confirmed. Spans queue in the order of the stream:
//
//	Begin, Track..., End   a transaction; Mark   "everything up to here was sent"
//
//	            confirmed      published                    newest
//	 ───────────────●──────────────●──────[span][span][open span]
//	  durable checkpoint   rows acknowledged      in flight
//
// Published is the end of the longest prefix of closed spans whose rows are all
// acknowledged. Confirmed is the newest published edge that a durable checkpoint
// covers; the start's own counts from the moment the stream has come by it, which
// proves that the server's history is the published one. Neither ever falls. A Mark extends the span before it and adjacent
// spans without rows merge, so idle time costs no memory. It belongs to one
// goroutine.
//
// Misuse panics: an order of calls that no stream has, a ticket that was never
// issued or is acknowledged twice, a checkpoint beyond what is published.
type Ledger struct {
	limits    Limits
	spans     []span // a ring: head, head+1, ...
	head      int
	count     int
	firstSeq  uint64 // sequence number of the span at head
	open      bool
	published Edge
	covered   pglogrepl.LSN // by a durable checkpoint
	confirmed pglogrepl.LSN // covered, once the stream has come by the start
	newest    Edge          // the last End or Mark
	events    int
	bytes     int
}

// NewLedger starts at what a durable checkpoint covers (start) and what the slot
// has confirmed, which is never beyond it. Begin and Mark are called only for
// what Resume let pass.
func NewLedger(start Edge, slotConfirmed pglogrepl.LSN, limits Limits) *Ledger {
	if slotConfirmed > start.Covered {
		bug("ledger starts with slot at %s beyond covered %s", slotConfirmed, start.Covered)
	}
	if limits.Events < 1 || limits.Bytes < 1 {
		bug("ledger limits %+v", limits)
	}
	return &Ledger{
		limits: limits, spans: make([]span, 64),
		published: start, covered: start.Covered, confirmed: slotConfirmed, newest: start,
	}
}

// Begin opens the span of a transaction committed at that time.
func (l *Ledger) Begin(commitTime time.Time) {
	if l.open {
		bug("ledger: begin inside an open span")
	}
	l.open = true
	l.confirmed = l.covered
	l.push(span{edge: Edge{CommitTime: commitTime}})
}

// Track adds a row of so many bytes to the open span.
func (l *Ledger) Track(bytes int) Ticket {
	if !l.open {
		bug("ledger: row outside a span")
	}
	if bytes < 0 || bytes > math.MaxUint32 {
		bug("ledger: row of %d bytes", bytes)
	}
	s := l.at(l.count - 1)
	s.rows++
	t := Ticket{span: l.firstSeq + uint64(l.count-1), row: s.rows, bytes: uint32(bytes)}
	s.outstanding++
	s.receipts += t.receipt()
	l.events++
	l.bytes += bytes
	return t
}

// End closes the open span: edge.Covered is the commit's end LSN.
func (l *Ledger) End(edge Edge) {
	if !l.open {
		bug("ledger: end without begin")
	}
	if edge.Covered <= l.newest.Covered {
		bug("ledger: end %s after %s", edge.Covered, l.newest.Covered)
	}
	l.open = false
	l.newest = edge
	s := l.at(l.count - 1)
	s.edge, s.closed = edge, true
	if s.outstanding == 0 && l.count > 1 {
		if before := l.at(l.count - 2); before.outstanding == 0 {
			before.edge, *s = edge, span{}
			l.count--
		}
	}
	l.advance()
}

// Mark notes that everything up to lsn has been sent. It stands behind whatever
// is pending. A position not beyond the newest is ignored, and so is one inside
// an open transaction: it says nothing about the rows still to come.
func (l *Ledger) Mark(lsn pglogrepl.LSN) {
	if l.open || lsn < l.newest.Covered {
		return
	}
	l.confirmed = l.covered
	if lsn == l.newest.Covered {
		return
	}
	l.newest.Covered = lsn
	if l.count > 0 {
		l.at(l.count - 1).edge = l.newest // published with the span before it, no sooner
		return
	}
	l.published = l.newest
}

// Ack takes Kafka's answer for one row.
func (l *Ledger) Ack(t Ticket) {
	i := t.span - l.firstSeq
	if t.span < l.firstSeq || i >= uint64(l.count) {
		bug("ledger: acknowledgement of an unknown row (span %d, in flight %d..%d)", t.span, l.firstSeq, l.firstSeq+uint64(l.count))
	}
	s := l.at(int(i))
	s.outstanding--
	s.receipts -= t.receipt()
	if s.outstanding < 0 || (s.outstanding == 0 && s.receipts != 0) {
		bug("ledger: a row was acknowledged twice (span %d)", t.span)
	}
	l.events--
	l.bytes -= int(t.bytes)
	if i == 0 {
		l.advance()
	}
}

// Durable takes the report that a checkpoint record covering edge is durable.
func (l *Ledger) Durable(edge Edge) {
	if edge.Covered > l.published.Covered {
		bug("ledger: checkpoint %s beyond the published edge %s", edge.Covered, l.published.Covered)
	}
	if edge.Covered > l.covered { // hence beyond the start
		l.covered, l.confirmed = edge.Covered, edge.Covered
	}
}

// Published is the edge up to which every row is acknowledged: what the next
// checkpoint may cover.
func (l *Ledger) Published() Edge { return l.published }

// Covered is what the newest durable checkpoint covers.
func (l *Ledger) Covered() pglogrepl.LSN { return l.covered }

// Confirmed is what may be told to PostgreSQL.
func (l *Ledger) Confirmed() pglogrepl.LSN { return l.confirmed }

// Newest is the last End or Mark: where the stream has come to.
func (l *Ledger) Newest() pglogrepl.LSN { return l.newest.Covered }

// Pending reports whether anything is open or not yet covered by a durable
// checkpoint.
func (l *Ledger) Pending() bool { return l.count > 0 || l.covered < l.newest.Covered }

// Oldest is the commit time of the oldest transaction with a row that Kafka has
// not answered, or that is still open; zero when there is none.
func (l *Ledger) Oldest() time.Time {
	if l.count == 0 {
		return time.Time{}
	}
	return l.at(0).edge.CommitTime
}

// InFlight returns the rows and bytes that Kafka has not answered.
func (l *Ledger) InFlight() (events, bytes int) { return l.events, l.bytes }

// Full reports that no further row may be submitted until Kafka answers. Spans
// count too, or the transactions acknowledged behind one stuck partition would
// queue without end, and all come twice after a crash.
func (l *Ledger) Full() bool {
	return l.events >= l.limits.Events || l.bytes >= l.limits.Bytes || l.count > l.limits.Events
}

// advance drops the published prefix.
func (l *Ledger) advance() {
	for l.count > 0 {
		s := l.at(0)
		if !s.closed || s.outstanding > 0 {
			return
		}
		l.published = s.edge
		*s = span{}
		l.head = (l.head + 1) & (len(l.spans) - 1)
		l.count--
		l.firstSeq++
	}
}

func (l *Ledger) at(i int) *span { return &l.spans[(l.head+i)&(len(l.spans)-1)] }

func (l *Ledger) push(s span) {
	if l.count == len(l.spans) {
		grown := make([]span, 2*len(l.spans)) // stays a power of two
		for i := range l.count {
			grown[i] = *l.at(i)
		}
		l.spans, l.head = grown, 0
	}
	l.count++
	*l.at(l.count - 1) = s
}

// bug ends the process on a broken invariant: a restart is safe, going on is not.
func bug(format string, args ...any) {
	panic(fmt.Sprintf("walstream: bug: "+format, args...))
}
