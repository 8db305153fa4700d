package checkpoint

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

// BenchmarkLedgerInFlight has a thousand transactions of one row in flight.
func BenchmarkLedgerInFlight(b *testing.B) {
	l := NewLedger(Edge{Covered: 100}, 100, roomy)
	lsn := pglogrepl.LSN(100)
	tickets := make([]Ticket, 1000)
	track := func(i int) {
		lsn += 10
		l.Begin(epoch)
		tickets[i] = l.Track(1024)
		l.End(Edge{Covered: lsn, CommitLSN: lsn - 1, XID: 1, CommitTime: epoch})
	}
	for i := range tickets {
		track(i)
	}
	b.ReportAllocs()
	next := 0
	for b.Loop() {
		l.Ack(tickets[next])
		track(next)
		next = (next + 1) % len(tickets)
	}
}
