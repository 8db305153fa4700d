package decode_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// kilobyteRow is a frame with one row of the workload the figures are given for.
func kilobyteRow() []byte {
	return decodetest.XLogData(1, at, row(
		decodetest.Text("1234567"), decodetest.Text("orders"), decodetest.Binary(strings.Repeat("x", 1024))))
}

func openTransaction(t testing.TB) *decode.Assembler {
	t.Helper()
	a := decode.NewAssembler()
	if _, err := feed(a, decodetest.Relation(outboxTable), begin(1), row(decodetest.Null(), decodetest.Null(), decodetest.Null())); err != nil {
		t.Fatal(err)
	}
	return a
}

func decodeFrame(a *decode.Assembler, payload []byte) (decode.Step, error) {
	frame, err := decode.ParseFrame(payload)
	if err != nil {
		return decode.StepNone, err
	}
	return a.Next(frame.LSN, frame.Data)
}

// A row costs no memory, whatever its size; neither do a transaction's ends, a
// keepalive and a status.
func TestNoAllocations(t *testing.T) {
	rows := openTransaction(t)
	payload := kilobyteRow()
	transactions := decode.NewAssembler()
	lsn := pglogrepl.LSN(0)
	first, last := begin(1), commit(1, 2)
	keepalive := decodetest.Keepalive(1, at, false)
	status := make([]byte, 0, decode.StatusUpdateSize)
	header := make([]byte, 0, 64)
	for name, f := range map[string]func(){
		"row": func() {
			if step, err := decodeFrame(rows, payload); step != decode.StepRow || err != nil {
				t.Fatal(step, err)
			}
		},
		"transaction": func() {
			lsn += 2
			first[7], first[8] = byte(lsn>>8), byte(lsn)
			last[8], last[9] = byte(lsn>>8), byte(lsn)
			last[16], last[17] = byte((lsn+1)>>8), byte(lsn+1)
			if steps, err := feed2(transactions, first, last); steps != [2]decode.Step{decode.StepBegin, decode.StepCommit} || err != nil {
				t.Fatal(steps, err)
			}
		},
		"keepalive": func() {
			if _, err := decode.ParseFrame(keepalive); err != nil {
				t.Fatal(err)
			}
		},
		"status": func() { status = decode.AppendStatusUpdate(status[:0], 2, 1, at, false) },
		"header": func() { header = rows.Row.Position.AppendHeader(header[:0], 1) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func feed2(a *decode.Assembler, first, second []byte) (steps [2]decode.Step, err error) {
	if steps[0], err = a.Next(1, first); err == nil {
		steps[1], err = a.Next(1, second)
	}
	return steps, err
}

func BenchmarkRow1KB(b *testing.B) {
	a := openTransaction(b)
	payload := kilobyteRow()
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if _, err := decodeFrame(a, payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParse is the frame alone.
func BenchmarkParse(b *testing.B) {
	payload := kilobyteRow()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode.ParseFrame(payload); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAssemble100Rows is a whole transaction.
func BenchmarkAssemble100Rows(b *testing.B) {
	a := openTransaction(b)
	if _, err := feed(a, commit(1, 2)); err != nil {
		b.Fatal(err)
	}
	first, insert, last := begin(1), kilobyteRow()[25:], commit(1, 2)
	lsn := uint64(2)
	b.ReportAllocs()
	b.SetBytes(int64(100 * len(insert)))
	for b.Loop() {
		lsn += 2
		binary.BigEndian.PutUint64(first[1:], lsn)
		binary.BigEndian.PutUint64(last[2:], lsn)
		binary.BigEndian.PutUint64(last[10:], lsn+1)
		step, err := a.Next(1, first)
		for range 100 {
			if err == nil {
				step, err = a.Next(1, insert)
			}
		}
		if err == nil {
			step, err = a.Next(1, last)
		}
		if step != decode.StepCommit || err != nil {
			b.Fatal(step, err)
		}
	}
}

// BenchmarkRow1KBPglogrepl is what the library's parser takes for the same.
func BenchmarkRow1KBPglogrepl(b *testing.B) {
	payload := kilobyteRow()
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		x, err := pglogrepl.ParseXLogData(payload[1:])
		if err != nil {
			b.Fatal(err)
		}
		if _, err := pglogrepl.Parse(x.WALData); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatusUpdate(b *testing.B) {
	buffer := make([]byte, 0, decode.StatusUpdateSize)
	b.ReportAllocs()
	for b.Loop() {
		buffer = decode.AppendStatusUpdate(buffer[:0], 2, 1, at, false)
	}
}
