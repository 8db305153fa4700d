package checkpoint

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// edgeAt is the edge of a transaction that commits one byte before lsn.
func edgeAt(lsn pglogrepl.LSN) Edge {
	return Edge{Covered: lsn, CommitLSN: lsn - 1, XID: uint32(lsn), CommitTime: epoch.Add(time.Duration(lsn))}
}

var roomy = Limits{Events: 1 << 20, Bytes: 1 << 40}

// The story of the doc comment's picture.
func TestLedgerInWords(t *testing.T) {
	l := NewLedger(Edge{Covered: 100}, 90, roomy)
	requireLedger(t, l, "at the start", 100, 90, 100)

	l.Begin(epoch)
	first, second := l.Track(10), l.Track(20)
	l.Mark(500) // inside a transaction: says nothing
	l.End(edgeAt(200))
	l.Begin(epoch)
	third := l.Track(30)
	l.End(edgeAt(300))
	l.Mark(350)
	requireLedger(t, l, "all in flight, the start confirmed", 100, 100, 350)

	l.Ack(third)
	requireLedger(t, l, "the newest is acknowledged", 100, 100, 350)
	l.Ack(second)
	requireLedger(t, l, "a part of the oldest, too", 100, 100, 350)
	l.Ack(first)
	requireLedger(t, l, "all acknowledged, nothing durable", 350, 100, 350)
	if got := l.Published(); got.CommitLSN != 299 || got.XID != 300 {
		t.Errorf("the mark's edge names %+v, want the transaction before it", got)
	}
	l.Durable(edgeAt(200))
	requireLedger(t, l, "the first checkpoint", 350, 200, 350)
	l.Durable(Edge{Covered: 100})
	requireLedger(t, l, "an older report", 350, 200, 350)
	if !l.Pending() {
		t.Error("nothing is pending, though 350 is not durable")
	}
	l.Durable(l.Published())
	requireLedger(t, l, "the second", 350, 350, 350)
	if l.Pending() {
		t.Error("something is pending")
	}
	l.Mark(340)
	requireLedger(t, l, "a lower mark", 350, 350, 350)
}

// The slot may stand behind the checkpoint, after a crash between the two. It is
// told of the checkpoint when the stream has come by it: until then the server
// may be one that was restored from a copy.
func TestLedgerConfirmsTheStart(t *testing.T) {
	for name, pass := range map[string]func(*Ledger){
		"a mark right at it": func(l *Ledger) { l.Mark(100) },
		"a mark beyond it":   func(l *Ledger) { l.Mark(101) },
		"a new transaction":  func(l *Ledger) { l.Begin(epoch) },
	} {
		l := NewLedger(Edge{Covered: 100}, 90, roomy)
		l.Mark(99)
		l.Durable(Edge{Covered: 100})
		requireLedger(t, l, name+", before", 100, 90, 100)
		if l.Pending() || l.Covered() != 100 {
			t.Errorf("%s: before: pending %v, covered %s", name, l.Pending(), l.Covered())
		}
		if pass(l); l.Confirmed() != 100 {
			t.Errorf("%s: confirmed %s", name, l.Confirmed())
		}
	}
}

func requireLedger(t *testing.T, l *Ledger, when string, published, confirmed, newest pglogrepl.LSN) {
	t.Helper()
	if l.Published().Covered != published || l.Confirmed() != confirmed || l.Newest() != newest {
		t.Errorf("%s: published %s, confirmed %s, newest %s; want %s, %s, %s", when,
			l.Published().Covered, l.Confirmed(), l.Newest(), published, confirmed, newest)
	}
}

func TestLedgerPanicsOnMisuse(t *testing.T) {
	open := func(rows int) (*Ledger, []Ticket) {
		l := NewLedger(Edge{Covered: 100}, 100, roomy)
		l.Begin(epoch)
		var tickets []Ticket
		for range rows {
			tickets = append(tickets, l.Track(1))
		}
		return l, tickets
	}
	for name, test := range map[string]struct {
		misuse func()
		says   string
	}{
		"begin twice": {func() { l, _ := open(0); l.Begin(epoch) }, "begin inside an open span"},
		"row outside": {func() { NewLedger(Edge{}, 0, roomy).Track(1) }, "row outside a span"},
		"row after the end": {func() {
			l, _ := open(0)
			l.End(edgeAt(200))
			l.Track(1)
		}, "row outside a span"},
		"end before begin": {func() { NewLedger(Edge{}, 0, roomy).End(edgeAt(200)) }, "end without begin"},
		"end twice": {func() {
			l, _ := open(1)
			l.End(edgeAt(200))
			l.End(edgeAt(300))
		}, "end without begin"},
		"end does not rise":     {func() { l, _ := open(0); l.End(edgeAt(100)) }, "end 0/64 after 0/64"},
		"negative size":         {func() { l, _ := open(0); l.Track(-1) }, "row of -1 bytes"},
		"size beyond a row's":   {func() { l, _ := open(0); l.Track(math.MaxUint32 + 1) }, "row of 4294967296 bytes"},
		"ticket of nobody":      {func() { l, _ := open(1); l.Ack(Ticket{span: 7}) }, "unknown row"},
		"ticket when empty":     {func() { NewLedger(Edge{}, 0, roomy).Ack(Ticket{}) }, "unknown row"},
		"ticket already passed": {func() { l, x := open(1); l.End(edgeAt(200)); l.Ack(x[0]); l.Ack(x[0]) }, "unknown row"},
		"twice in an open span": {func() { l, x := open(1); l.Ack(x[0]); l.Ack(x[0]) }, "acknowledged twice"},
		"twice in place of another": {func() {
			l, x := open(3)
			l.Ack(x[0])
			l.Ack(x[1])
			l.Ack(x[1])
		}, "acknowledged twice"},
		"twice behind the oldest": {func() {
			l, _ := open(1)
			l.End(edgeAt(200))
			l.Begin(epoch)
			x := l.Track(1)
			l.Track(1)
			l.End(edgeAt(300))
			l.Ack(x)
			l.Ack(x)
		}, "acknowledged twice"},
		"durable beyond the published": {func() {
			l, _ := open(1)
			l.End(edgeAt(200))
			l.Durable(edgeAt(200))
		}, "checkpoint 0/C8 beyond the published edge 0/64"},
		"slot ahead of its checkpoint": {func() { NewLedger(Edge{Covered: 100}, 101, roomy) }, "slot at 0/65 beyond covered 0/64"},
		"no events allowed":            {func() { NewLedger(Edge{}, 0, Limits{Bytes: 1}) }, "limits"},
		"no bytes allowed":             {func() { NewLedger(Edge{}, 0, Limits{Events: 1}) }, "limits"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				said := fmt.Sprint(recover())
				if !strings.HasPrefix(said, "walstream: bug: ") || !strings.Contains(said, test.says) {
					t.Errorf("panic %q, want one that says %q", said, test.says)
				}
			}()
			test.misuse()
		})
	}
}

// naiveLedger keeps everything and counts anew each time it is asked.
type naiveLedger struct {
	start   Edge
	slot    pglogrepl.LSN
	passed  bool // the stream has come by the start
	durable pglogrepl.LSN
	spans   []naiveSpan
	open    bool
}

type naiveSpan struct {
	edge   Edge
	rows   map[Ticket]int // size by ticket
	closed bool
}

func (n *naiveLedger) published() (edge Edge, unpublished []naiveSpan) {
	edge = n.start
	for i, s := range n.spans {
		if !s.closed || len(s.rows) > 0 {
			return edge, n.spans[i:]
		}
		edge = s.edge
	}
	return edge, nil
}

func (n *naiveLedger) newest() Edge {
	for i := len(n.spans) - 1; i >= 0; i-- {
		if n.spans[i].closed {
			return n.spans[i].edge
		}
	}
	return n.start
}

func (n *naiveLedger) outstanding() (tickets []Ticket, bytes int) {
	for _, s := range n.spans {
		for ticket, size := range s.rows {
			tickets, bytes = append(tickets, ticket), bytes+size
		}
	}
	return tickets, bytes
}

// Under any order of operations the ledger says what the naive one says.
func TestLedgerAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := Edge{Covered: pglogrepl.LSN(rapid.IntRange(0, 50).Draw(t, "start"))}
		slot := pglogrepl.LSN(rapid.IntRange(0, int(start.Covered)).Draw(t, "slot"))
		limits := Limits{Events: rapid.IntRange(1, 20).Draw(t, "events"), Bytes: rapid.IntRange(1, 200).Draw(t, "bytes")}
		l := NewLedger(start, slot, limits)
		n := &naiveLedger{start: start, slot: slot, durable: start.Covered}
		order := map[Ticket]int{} // of issue, for a choice that rapid can repeat
		next := func(t *rapid.T) pglogrepl.LSN {
			return n.newest().Covered + pglogrepl.LSN(rapid.IntRange(1, 5).Draw(t, "step"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				if n.open {
					t.Skip()
				}
				at := epoch.Add(time.Duration(len(n.spans)) * time.Second)
				l.Begin(at)
				n.open, n.passed = true, true
				n.spans = append(n.spans, naiveSpan{edge: Edge{CommitTime: at}, rows: map[Ticket]int{}})
			},
			"row": func(t *rapid.T) {
				if !n.open {
					t.Skip()
				}
				size := rapid.IntRange(0, 50).Draw(t, "size")
				ticket := l.Track(size)
				for _, s := range n.spans {
					if _, twice := s.rows[ticket]; twice {
						t.Fatalf("ticket %+v issued twice", ticket)
					}
				}
				order[ticket] = len(order)
				n.spans[len(n.spans)-1].rows[ticket] = size
			},
			"end": func(t *rapid.T) {
				if !n.open {
					t.Skip()
				}
				s := &n.spans[len(n.spans)-1]
				edge := edgeAt(next(t))
				edge.CommitTime = s.edge.CommitTime
				l.End(edge)
				s.edge, s.closed, n.open = edge, true, false
			},
			"mark": func(t *rapid.T) {
				lsn := n.newest().Covered
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					lsn /= 2
				case 1: // nothing new
				default:
					lsn = next(t)
				}
				l.Mark(lsn)
				n.passed = n.passed || lsn >= n.start.Covered
				if newest := n.newest(); !n.open && lsn > newest.Covered {
					newest.Covered = lsn
					n.spans = append(n.spans, naiveSpan{edge: newest, closed: true})
				}
			},
			"ack": func(t *rapid.T) {
				tickets, _ := n.outstanding()
				if len(tickets) == 0 {
					t.Skip()
				}
				pick := rapid.IntRange(0, len(tickets)-1).Draw(t, "pick")
				ticket := nthByOrder(tickets, order, pick)
				l.Ack(ticket)
				for _, s := range n.spans {
					delete(s.rows, ticket)
				}
			},
			"durable": func(t *rapid.T) {
				published, _ := n.published()
				covered := pglogrepl.LSN(rapid.IntRange(0, int(published.Covered)).Draw(t, "covered"))
				l.Durable(Edge{Covered: covered})
				n.durable = max(n.durable, covered)
			},
			"": func(t *rapid.T) { requireSame(t, l, n, limits) },
		})
	})
}

// nthByOrder picks from tickets that come out of a map.
func nthByOrder(tickets []Ticket, order map[Ticket]int, n int) Ticket {
	for i := range tickets {
		for j := i + 1; j < len(tickets); j++ {
			if order[tickets[j]] < order[tickets[i]] {
				tickets[i], tickets[j] = tickets[j], tickets[i]
			}
		}
	}
	return tickets[n]
}

func requireSame(t *rapid.T, l *Ledger, n *naiveLedger, limits Limits) {
	published, waiting := n.published()
	tickets, bytes := n.outstanding()
	if got := l.Published(); got != published {
		t.Fatalf("published %+v, naive %+v", got, published)
	}
	confirmed := n.slot
	if n.passed {
		confirmed = n.durable
	}
	if l.Confirmed() != confirmed || l.Covered() != n.durable {
		t.Fatalf("confirmed %s, covered %s; naive %s, %s", l.Confirmed(), l.Covered(), confirmed, n.durable)
	}
	if l.Newest() != n.newest().Covered {
		t.Fatalf("newest %s, naive %s", l.Newest(), n.newest().Covered)
	}
	if e, b := l.InFlight(); e != len(tickets) || b != bytes {
		t.Fatalf("in flight %d (%d bytes), naive %d (%d)", e, b, len(tickets), bytes)
	}
	if want := len(waiting) > 0 || n.durable < n.newest().Covered; l.Pending() != want {
		t.Fatalf("pending %v, naive %v", l.Pending(), want)
	}
	var oldest time.Time
	if len(waiting) > 0 {
		oldest = waiting[0].edge.CommitTime
	}
	if !l.Oldest().Equal(oldest) {
		t.Fatalf("oldest %s, naive %s", l.Oldest(), oldest)
	}
	full := len(tickets) >= limits.Events || bytes >= limits.Bytes
	if full && !l.Full() || l.Full() && !full && len(waiting) <= limits.Events {
		t.Fatalf("full %v with %d rows, %d bytes, %d spans of %+v", l.Full(), len(tickets), bytes, len(waiting), limits)
	}
	if l.Confirmed() > l.Published().Covered || l.Published().Covered > l.Newest() {
		t.Fatalf("confirmed %s, published %s, newest %s", l.Confirmed(), l.Published().Covered, l.Newest())
	}
}

// Idle time costs no memory, whether nothing is in flight or the oldest row is
// stuck.
func TestLedgerIdleMarksMerge(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		l := NewLedger(Edge{Covered: 1}, 1, roomy)
		lsn := pglogrepl.LSN(10)
		var ticket Ticket
		if stuck {
			l.Begin(epoch)
			ticket = l.Track(1)
			l.End(edgeAt(lsn))
		}
		if n := testing.AllocsPerRun(1, func() {
			for range 100_000 {
				lsn += 2
				l.Mark(lsn)
				lsn += 2
				l.Begin(epoch) // a transaction of other tables only
				l.End(edgeAt(lsn))
			}
		}); n != 0 {
			t.Errorf("stuck %v: %v allocations", stuck, n)
		}
		if l.count > 2 {
			t.Errorf("stuck %v: %d spans", stuck, l.count)
		}
		if stuck {
			l.Ack(ticket)
		}
		if got := l.Published(); got != edgeAt(lsn) {
			t.Errorf("stuck %v: published %+v, want %+v", stuck, got, edgeAt(lsn))
		}
	}
}

// Behind one row that Kafka does not answer, everything else may be answered:
// what is kept stays within the window's number of events all the same.
func TestLedgerBoundBehindStuckHead(t *testing.T) {
	limits := Limits{Events: 1000, Bytes: 1 << 20}
	l := NewLedger(Edge{Covered: 1}, 1, limits)
	l.Begin(epoch)
	stuck := l.Track(1)
	lsn := pglogrepl.LSN(10)
	l.End(edgeAt(lsn))
	taken := 0
	for ; !l.Full() && taken < 1_000_000; taken++ {
		lsn += 10
		l.Begin(epoch)
		ticket := l.Track(1)
		l.Mark(lsn - 5)
		l.End(edgeAt(lsn))
		l.Mark(lsn + 5)
		l.Ack(ticket)
	}
	if events, _ := l.InFlight(); taken > limits.Events || events != 1 {
		t.Fatalf("%d transactions behind the stuck one, %d rows in flight: not bounded", taken, events)
	}
	if len(l.spans) > 2*limits.Events+2 {
		t.Errorf("%d places kept for %d events", len(l.spans), limits.Events)
	}
	l.Ack(stuck)
	if l.Full() || l.count != 0 || l.Published().Covered != lsn+5 {
		t.Errorf("after the answer: full %v, %d spans, published %s", l.Full(), l.count, l.Published().Covered)
	}
}

// The ring grows wherever its head stands.
func TestLedgerRingGrows(t *testing.T) {
	l := NewLedger(Edge{}, 0, roomy)
	lsn := pglogrepl.LSN(0)
	transaction := func() Ticket {
		l.Begin(epoch)
		defer func() { lsn += 2; l.End(edgeAt(lsn)) }()
		return l.Track(1)
	}
	for range 40 { // the head moves to the middle
		l.Ack(transaction())
	}
	var tickets []Ticket
	var ends []pglogrepl.LSN
	for range 300 {
		tickets = append(tickets, transaction())
		ends = append(ends, lsn)
	}
	for i := len(tickets) - 1; i > 0; i-- {
		l.Ack(tickets[i])
		if got := l.Published().Covered; got != ends[0]-2 {
			t.Fatalf("published %s with the oldest in flight, want %s", got, ends[0]-2)
		}
	}
	l.Ack(tickets[0])
	if got := l.Published().Covered; got != lsn {
		t.Errorf("published %s, want %s", got, lsn)
	}
}

func BenchmarkLedger100RowTransaction(b *testing.B) {
	l := NewLedger(Edge{}, 0, roomy)
	tickets := make([]Ticket, 100)
	lsn := pglogrepl.LSN(10)
	b.ReportAllocs()
	for b.Loop() {
		l.Begin(epoch)
		for i := range tickets {
			tickets[i] = l.Track(1024)
		}
		lsn += 10
		l.End(Edge{Covered: lsn})
		for _, ticket := range tickets {
			l.Ack(ticket)
		}
	}
}
