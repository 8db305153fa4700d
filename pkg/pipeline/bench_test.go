package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
	"github.com/walstream/walstream/pkg/outbox"
)

// promptSink answers everything at the next Drain.
type promptSink struct {
	tickets []checkpoint.Ticket
	durable checkpoint.Edge
	bytes   int
}

func (*promptSink) Begin(checkpoint.Edge) {}
func (s *promptSink) Submit(e *outbox.Event, t checkpoint.Ticket) {
	s.tickets, s.bytes = append(s.tickets, t), s.bytes+len(e.Value)
}

func (*promptSink) Reject(_ *outbox.Event, bad *outbox.RowError, _ checkpoint.Ticket) { panic(bad) }
func (*promptSink) End(checkpoint.Edge)                                               {}
func (s *promptSink) Checkpoint(edge checkpoint.Edge)                                 { s.durable = edge }

func (*promptSink) Ready() <-chan struct{}                                { return neverReady }
func (s *promptSink) SendStatus(pglogrepl.LSN, pglogrepl.LSN, bool) error { return nil }
func (s *promptSink) Drain(r *checkpoint.Report) {
	r.Acked = append(r.Acked, s.tickets...)
	r.Durable, s.durable, s.tickets = s.durable, checkpoint.Edge{}, s.tickets[:0]
}

const benchRows = 100

// benchTransaction is a transaction of our own table, 1 KB of payload a row, in
// binary; commit is moved on by at.
type benchTransaction struct {
	frames [][]byte
	core   *Core
	sink   *promptSink
	lsn    pglogrepl.LSN
}

func newBenchTransaction(b testing.TB) *benchTransaction {
	b.Helper()
	mapping, err := outbox.NewMapping([]outbox.MappingConfig{{Schema: "public", Table: "outbox", Pipeline: "bank.bank_outbox_slot"}})
	if err != nil {
		b.Fatal(err)
	}
	mapping.SetTimeline(1)
	relation := decode.Relation{ID: 7, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd'}
	values := []decode.Value{}
	for _, c := range []struct {
		name  string
		oid   uint32
		value decode.Value
	}{
		{"id", 20, decodetest.Binary("\x00\x00\x00\x00\x00\x00\x12\x34")},
		{"event_id", 2950, decodetest.Binary("0123456789abcdef")},
		{"aggregate_type", 25, decodetest.Binary("account")},
		{"aggregate_id", 25, decodetest.Binary("acc-7")},
		{"event_type", 25, decodetest.Binary("deposited")},
		{"topic", 25, decodetest.Binary("deposits")},
		{"key", 25, decodetest.Null()},
		{"payload", 17, decodetest.Binary(strings.Repeat("x", 1024))},
		{"headers", 3802, decodetest.Binary("\x01{}")},
	} {
		relation.Columns = append(relation.Columns, decode.Column{Name: c.name, TypeOID: c.oid, TypeMod: -1})
		values = append(values, c.value)
	}
	t := &benchTransaction{sink: &promptSink{}, lsn: 1000}
	t.core = NewCore(CoreConfig{
		Start: checkpoint.Edge{Covered: 500}, SlotConfirmed: 500, Limits: checkpoint.Limits{Events: 1 << 20, Bytes: 1 << 30},
		Mapper: mapping, Sink: t.sink, Source: t.sink, Pacer: NewPacer(5*time.Second, 0, midnight),
	})
	t.frames = append(t.frames, relationFrame(midnight, relation), nil)
	for range benchRows {
		t.frames = append(t.frames, decodetest.XLogData(1, midnight, decodetest.Insert(relation.ID, values...)))
	}
	t.frames = append(t.frames, nil)
	t.ends()
	for _, frame := range [][]byte{t.frames[1], t.frames[0], t.frames[2], t.frames[len(t.frames)-1]} {
		if err := t.core.OnFrame(frame, midnight); err != nil {
			b.Fatal(err)
		}
	}
	t.frames = t.frames[1:] // a relation is sent once
	return t
}

// ends makes Begin and Commit of the next commit LSN.
func (t *benchTransaction) ends() {
	t.lsn += 100
	last := len(t.frames) - 1
	t.frames[last-benchRows-1] = beginFrame(t.lsn-50, midnight, decode.Begin{CommitLSN: t.lsn, CommitTime: midnight, XID: uint32(t.lsn)})
	t.frames[last] = commitFrame(midnight, decode.Commit{CommitLSN: t.lsn, EndLSN: t.lsn + 10, CommitTime: midnight})
}

func (t *benchTransaction) run(b testing.TB) {
	for _, frame := range t.frames {
		if err := t.core.OnFrame(frame, midnight); err != nil {
			b.Fatal(err)
		}
	}
	if err := t.core.OnAcks(midnight); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCore100Rows is the loop's whole work for a transaction of a hundred
// rows: frames, transaction, mapping, ledger, acknowledgements, checkpoint. What it
// allocates are the frames of Begin and Commit, which the benchmark makes, and now
// and then a block of row ids.
func BenchmarkCore100Rows(b *testing.B) {
	t := newBenchTransaction(b)
	b.SetBytes(benchRows * 1024)
	b.ReportAllocs()
	for b.Loop() {
		t.ends()
		t.run(b)
	}
}

// A row passes from the socket's bytes to the sink without memory of its own.
func TestCoreAllocatesNothingForARow(t *testing.T) {
	transaction := newBenchTransaction(t)
	transaction.run100(t)
	ends := testing.AllocsPerRun(200, transaction.ends)
	whole := testing.AllocsPerRun(200, func() {
		transaction.ends()
		transaction.run(t)
	})
	if perRow := (whole - ends) / benchRows; perRow > 0.05 {
		t.Errorf("%v allocations for each row", perRow)
	}
	if transaction.sink.bytes == 0 {
		t.Error("no row came through")
	}
}

// run100 lets what grows once grow.
func (t *benchTransaction) run100(b testing.TB) {
	for range 100 {
		t.ends()
		t.run(b)
	}
}
