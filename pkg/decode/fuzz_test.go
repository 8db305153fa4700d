package decode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// The oracle is pglogrepl's parser of protocol version 1. Where it is asked, the
// two agree, but for this:
//
//   - it takes bytes left over behind a message, and columns of unknown format,
//     and 'u' in an insert, where we refuse;
//   - it refuses a row without columns, which PostgreSQL allows;
//   - it indexes past the end of short messages, where we refuse (it is run
//     under recover);
//   - it allocates whatever length a message claims (it is not asked about
//     claims beyond maxClaim);
//   - its times are nanoseconds since 1970 in 64 bits, which ends 292 years away
//     from there; ours are microseconds (times are compared within that range);
//   - it knows no state: order of messages, known relations and column counts
//     are our own checks.

const maxClaim = 1 << 20

func FuzzParseFrame(f *testing.F) {
	f.Add(decodetest.XLogData(1, at, begin(1)))
	f.Add(decodetest.XLogData(0, at, nil))
	f.Add(decodetest.Keepalive(1<<40, at, true))
	f.Add(append(decodetest.Keepalive(1, at, false), 0))
	f.Add([]byte("x"))
	eachGolden(f, func(g golden) {
		for _, b := range g.payloads {
			f.Add(b)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame decode.Frame
		var err error
		boundAllocation(t, len(b), func() { frame, err = decode.ParseFrame(b) })
		if err != nil {
			requireDecodeError(t, err, len(b))
		}
		if len(b) == 0 {
			return
		}
		switch b[0] {
		case decode.FrameXLogData:
			want, wantErr := pglogrepl.ParseXLogData(b[1:])
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("error %v, pglogrepl's %v", err, wantErr)
			}
			if err != nil {
				return
			}
			if frame.LSN != want.WALStart || !bytes.Equal(frame.Data, want.WALData) || frame.ReplyRequested {
				t.Errorf("%+v, pglogrepl %+v", frame, want)
			}
			requireSameTime(t, b[17:], frame.ServerTime, want.ServerTime)
		case decode.FrameKeepalive:
			want, wantErr := pglogrepl.ParsePrimaryKeepaliveMessage(b[1:])
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("error %v, pglogrepl's %v", err, wantErr)
			}
			if err != nil {
				return
			}
			if frame.LSN != want.ServerWALEnd || frame.ReplyRequested != want.ReplyRequested || frame.Data != nil {
				t.Errorf("%+v, pglogrepl %+v", frame, want)
			}
			requireSameTime(t, b[9:], frame.ServerTime, want.ServerTime)
		default:
			if err == nil {
				t.Errorf("kind %q accepted", b[0])
			}
		}
	})
}

// FuzzAssembler reads a run of messages, each behind its length in two bytes,
// and holds the assembler's steps against a model of the order they may come in.
func FuzzAssembler(f *testing.F) {
	relation := decodetest.Relation(outboxTable)
	full := row(decodetest.Text("1"), decodetest.Null(), decodetest.Binary("payload"))
	f.Add(join(relation, begin(1), full, full, commit(1, 2), begin(3), commit(3, 4)))
	f.Add(join(begin(1), relation, full, []byte("U"), []byte("D"), []byte("T"), []byte("M"), []byte("O"), []byte("Y"), commit(1, 2)))
	f.Add(join(begin(5), begin(6)))
	f.Add(join(relation, full))
	f.Add(join(begin(5), commit(6, 7)))
	eachGolden(f, func(g golden) { f.Add(join(g.messages()...)) })
	f.Fuzz(func(t *testing.T, stream []byte) {
		a := decode.NewAssembler()
		m := model{t: t, a: a}
		for {
			message, rest, ok := cut(stream)
			if !ok {
				return
			}
			stream = rest
			var step decode.Step
			var err error
			boundAllocation(t, len(message), func() { step, err = a.Next(1, message) })
			requireOracle(t, a, step, err, message)
			if err != nil {
				requireDecodeError(t, err, len(message))
				return
			}
			m.check(step)
		}
	})
}

// FuzzInsert reads one row of a relation with as many columns as the row claims.
func FuzzInsert(f *testing.F) {
	f.Add(row(decodetest.Text("1"), decodetest.Null(), decodetest.Binary("payload")))
	f.Add(row())
	f.Add(row(decodetest.Text(""), decode.Value{Format: decode.ValueUnchanged}))
	f.Add(append(row(decodetest.Null()), 'n'))
	f.Add(append(replace(threeNulls()[:9], 8, 't'), 0xff, 0xff, 0xff, 0xff))
	f.Add(append(replace(threeNulls()[:9], 8, 'b'), 0x00, 0x00, 0xff, 0xff))
	eachGolden(f, func(g golden) {
		for _, m := range g.messages() {
			if m[0] == decode.KindInsert {
				f.Add(m)
			}
		}
	})
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) < 8 || message[0] != decode.KindInsert {
			return
		}
		table := decode.Relation{ID: binary.BigEndian.Uint32(message[1:])}
		if n := int(binary.BigEndian.Uint16(message[6:])); n <= len(message) {
			table.Columns = make([]decode.Column, n)
		}
		a := decode.NewAssembler()
		if _, err := feed(a, decodetest.Relation(table), begin(1)); err != nil {
			t.Fatal(err)
		}
		var step decode.Step
		var err error
		boundAllocation(t, len(message), func() { step, err = a.Next(1, message) })
		if err != nil {
			requireDecodeError(t, err, len(message))
		}
		requireOracle(t, a, step, err, message)
		if err == nil && !bytes.Equal(decodetest.Insert(table.ID, a.Row.Values...), message) {
			t.Errorf("written again, the row is another one")
		}
	})
}

// model knows which steps may follow which.
type model struct {
	t    *testing.T
	a    *decode.Assembler
	open bool
	last decode.Position
}

func (m *model) check(step decode.Step) {
	switch step {
	case decode.StepBegin:
		if m.open || m.a.Begin.CommitLSN <= m.last.CommitLSN {
			m.t.Errorf("begin %s after %v, open %v", m.a.Begin.CommitLSN, m.last, m.open)
		}
		m.open, m.last = true, decode.Position{CommitLSN: m.a.Begin.CommitLSN}
	case decode.StepRow:
		p := m.a.Row.Position
		if !m.open || p.CommitLSN != m.last.CommitLSN || p.Ordinal != m.last.Ordinal+1 {
			m.t.Errorf("row %v after %v, open %v", p, m.last, m.open)
		}
		if len(m.a.Row.Values) != len(m.a.Row.Relation.Columns) || m.a.Row.Begin.CommitLSN != p.CommitLSN {
			m.t.Errorf("row %+v", m.a.Row)
		}
		m.last = p
	case decode.StepCommit:
		if !m.open || m.a.Commit.CommitLSN != m.last.CommitLSN || m.a.Commit.EndLSN <= m.a.Commit.CommitLSN {
			m.t.Errorf("commit %+v after %v, open %v", m.a.Commit, m.last, m.open)
		}
		m.open = false
	}
	if m.open != m.a.Open() {
		m.t.Errorf("Open %v", m.a.Open())
	}
}

// requireOracle holds one message against pglogrepl.
func requireOracle(t *testing.T, a *decode.Assembler, step decode.Step, err error, message []byte) {
	t.Helper()
	if len(message) == 0 || claimsMuch(message) {
		return
	}
	want, wantErr := parseOracle(message)
	if err != nil {
		requireRefused(t, err, want, wantErr)
		return
	}
	switch message[0] {
	case decode.KindBegin, decode.KindCommit, decode.KindRelation, decode.KindInsert:
		if wantErr != nil && !(step == decode.StepRow && len(a.Row.Values) == 0) {
			t.Fatalf("accepted, but pglogrepl says %v", wantErr)
		}
	}
	switch want := want.(type) {
	case *pglogrepl.BeginMessage:
		if step != decode.StepBegin || a.Begin.CommitLSN != want.FinalLSN || a.Begin.XID != want.Xid {
			t.Errorf("%+v, pglogrepl %+v", a.Begin, want)
		}
		requireSameTime(t, message[9:], a.Begin.CommitTime, want.CommitTime)
	case *pglogrepl.CommitMessage:
		if step != decode.StepCommit || a.Commit.CommitLSN != want.CommitLSN || a.Commit.EndLSN != want.TransactionEndLSN {
			t.Errorf("%+v, pglogrepl %+v", a.Commit, want)
		}
		requireSameTime(t, message[18:], a.Commit.CommitTime, want.CommitTime)
	case *pglogrepl.RelationMessage:
		if step != decode.StepNone {
			t.Errorf("relation is step %d", step)
		}
		requireRelation(t, want, message)
	case *pglogrepl.InsertMessage:
		if step != decode.StepRow {
			t.Errorf("insert is step %d", step)
		}
		requireRow(t, want, &a.Row)
	}
}

// requireRefused holds an error about the bytes, not about state, against what
// pglogrepl made of them.
func requireRefused(t *testing.T, err error, want pglogrepl.Message, wantErr error) {
	t.Helper()
	switch {
	case strings.Contains(err.Error(), "left over") && wantErr != nil:
		t.Errorf("%v, but pglogrepl says %v", err, wantErr)
	case strings.Contains(err.Error(), "ends too early") && wantErr == nil:
		insert, ok := want.(*pglogrepl.InsertMessage)
		if !ok || !slices.ContainsFunc(insert.Tuple.Columns, func(c *pglogrepl.TupleDataColumn) bool {
			return !strings.ContainsRune("ntb", rune(c.DataType))
		}) {
			t.Errorf("%v, but pglogrepl accepts %+v", err, want)
		}
	}
}

// requireRelation reads the relation through a row of it.
func requireRelation(t *testing.T, want *pglogrepl.RelationMessage, message []byte) {
	t.Helper()
	nulls := make([]decode.Value, want.ColumnNum)
	for i := range nulls {
		nulls[i] = decodetest.Null()
	}
	a := decode.NewAssembler()
	if _, err := feed(a, message, begin(1), decodetest.Insert(want.RelationID, nulls...)); err != nil {
		t.Fatalf("row of the relation: %v", err)
	}
	got := a.Row.Relation
	if got.ID != want.RelationID || got.Namespace != want.Namespace || got.Name != want.RelationName ||
		got.ReplicaIdentity != want.ReplicaIdentity || len(got.Columns) != len(want.Columns) {
		t.Fatalf("%+v, pglogrepl %+v", got, want)
	}
	for i, c := range got.Columns {
		w := want.Columns[i]
		if c.Name != w.Name || c.TypeOID != w.DataType || c.TypeMod != w.TypeModifier || c.Key != (w.Flags&1 != 0) {
			t.Errorf("column %d: %+v, pglogrepl %+v", i, c, w)
		}
	}
}

func requireRow(t *testing.T, want *pglogrepl.InsertMessage, got *decode.Row) {
	t.Helper()
	if got.Relation.ID != want.RelationID || len(got.Values) != len(want.Tuple.Columns) {
		t.Fatalf("%+v, pglogrepl %+v", got, want)
	}
	for i, v := range got.Values {
		w := want.Tuple.Columns[i]
		if v.Format != w.DataType || !bytes.Equal(v.Data, w.Data) || v.Null() != (w.DataType == pglogrepl.TupleDataTypeNull) {
			t.Errorf("column %d: %+v, pglogrepl %+v", i, v, w)
		}
	}
}

func requireSameTime(t *testing.T, field []byte, got, want time.Time) {
	t.Helper()
	const range290 = 290 * 365 * 24 * 60 * 60 * 1_000_000
	const y2kMicros = 30 * 366 * 24 * 60 * 60 * 1_000_000 // a little more than 2000 is after 1970
	if us := int64(binary.BigEndian.Uint64(field)); us < -range290 || us > range290-y2kMicros {
		return
	}
	if !got.Equal(want) {
		t.Errorf("time %v, pglogrepl %v", got, want)
	}
}

func requireDecodeError(t *testing.T, err error, size int) {
	t.Helper()
	var broken *decode.Error
	if !errors.As(err, &broken) || broken.Reason == "" || broken.Offset < 0 || broken.Offset > size {
		t.Fatalf("error %#v", err)
	}
}

// parseOracle returns an error also where pglogrepl panics.
func parseOracle(message []byte) (m pglogrepl.Message, err error) {
	defer func() {
		if recover() != nil {
			m, err = nil, errors.New("pglogrepl panics")
		}
	}()
	return pglogrepl.Parse(message)
}

// claimsMuch reports that some field of the message might be a length that
// pglogrepl would allocate.
func claimsMuch(message []byte) bool {
	for i, b := range message {
		rest := message[i+1:]
		if (b == 't' || b == 'b') && len(rest) >= 4 && binary.BigEndian.Uint32(rest) > maxClaim {
			return true
		}
	}
	return message[0] == decode.KindTruncate && len(message) > 4 && binary.BigEndian.Uint32(message[1:]) > maxClaim
}

// boundAllocation fails when f allocates out of proportion to the bytes it was
// given. The runtime counts small allocations late and those of others too:
// hence the slack, which a claimed length still exceeds.
func boundAllocation(t *testing.T, size int, f func()) {
	t.Helper()
	const slack = 1 << 20
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	f()
	metrics.Read(sample)
	if grown := sample[0].Value.Uint64() - before; grown > slack+64*uint64(size) {
		t.Errorf("%d bytes allocated for %d", grown, size)
	}
}

// join writes messages as FuzzAssembler reads them.
func join(messages ...[]byte) (stream []byte) {
	for _, m := range messages {
		stream = binary.BigEndian.AppendUint16(stream, uint16(len(m)))
		stream = append(stream, m...)
	}
	return stream
}

func cut(stream []byte) (message, rest []byte, ok bool) {
	if len(stream) < 2 {
		return nil, nil, false
	}
	n := min(int(binary.BigEndian.Uint16(stream)), len(stream)-2)
	return stream[2 : 2+n : 2+n], stream[2+n:], true
}
