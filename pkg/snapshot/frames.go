package snapshot

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
)

// writer puts frames of a replication stream into a batch, as the walsender does.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
type writer struct {
	batch *decode.Batch
	ends  []int // of the frames, in the buffer: it may still move
}

func (w *writer) frame(lsn pglogrepl.LSN, at time.Time, kind byte) {
	b := append(w.batch.Buffer, decode.FrameXLogData)
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	w.batch.Buffer = append(binary.BigEndian.AppendUint64(b, micros(at)), kind)
}

func (w *writer) end() { w.ends = append(w.ends, len(w.batch.Buffer)) }

// micros since 2000-01-01, PostgreSQL's way to tell time.
func micros(t time.Time) uint64 {
	const epoch = 946_684_800_000_000
	return uint64(t.UnixMicro() - epoch)
}

func (w *writer) begin(lsn pglogrepl.LSN, at time.Time) {
	w.frame(lsn, at, decode.KindBegin)
	b := binary.BigEndian.AppendUint64(w.batch.Buffer, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, micros(at))
	w.batch.Buffer = binary.BigEndian.AppendUint32(b, 0) // no xid
	w.end()
}

func (w *writer) commit(lsn, end pglogrepl.LSN, at time.Time) {
	w.frame(end, at, decode.KindCommit)
	b := binary.BigEndian.AppendUint64(append(w.batch.Buffer, 0), uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	w.batch.Buffer = binary.BigEndian.AppendUint64(b, micros(at))
	w.end()
}

func (w *writer) relation(r *decode.Relation, at time.Time) {
	w.frame(0, at, decode.KindRelation)
	b := binary.BigEndian.AppendUint32(w.batch.Buffer, r.ID)
	b = append(append(b, r.Namespace...), 0)
	b = append(append(b, r.Name...), 0, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Columns)))
	for _, c := range r.Columns {
		b = append(append(append(b, 0), c.Name...), 0)
		b = binary.BigEndian.AppendUint32(b, c.TypeOID)
		b = binary.BigEndian.AppendUint32(b, uint32(c.TypeMod))
	}
	w.batch.Buffer = b
	w.end()
}

// insert one row; formats are those of its values, nil is NULL.
func (w *writer) insert(lsn pglogrepl.LSN, at time.Time, relation uint32, formats []byte, values [][]byte) {
	w.frame(lsn, at, decode.KindInsert)
	b := append(binary.BigEndian.AppendUint32(w.batch.Buffer, relation), 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for i, v := range values {
		if v == nil {
			b = append(b, decode.ValueNull)
			continue
		}
		b = binary.BigEndian.AppendUint32(append(b, formats[i]), uint32(len(v)))
		b = append(b, v...)
	}
	w.batch.Buffer = b
	w.end()
}

// finish gives the batch its payloads.
func (w *writer) finish() *decode.Batch {
	start := 0
	for _, end := range w.ends {
		w.batch.Payloads = append(w.batch.Payloads, w.batch.Buffer[start:end:end])
		start = end
	}
	batch := w.batch
	w.batch, w.ends = nil, w.ends[:0]
	return batch
}
