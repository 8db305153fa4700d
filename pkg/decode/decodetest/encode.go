// Package decodetest writes the bytes that package decode reads: replication
// frames and pgoutput messages, as PostgreSQL's walsender does. Tests of the
// packages above feed themselves with it.
//
// It shares no code with the decoder, and the goldens captured from real servers
// are read by both, so that a misunderstanding of the format cannot hide in two
// places at once.
package decodetest

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
)

// XLogData frames a message. In logical decoding both LSNs name the record.
func XLogData(lsn pglogrepl.LSN, serverTime time.Time, message []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'w'}, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, uint64(lsn))
	b = appendTime(b, serverTime)
	return append(b, message...)
}

// Keepalive says that everything up to lsn has been sent.
func Keepalive(lsn pglogrepl.LSN, serverTime time.Time, replyRequested bool) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'k'}, uint64(lsn))
	return appendBool(appendTime(b, serverTime), replyRequested)
}

// Begin opens a transaction.
func Begin(m decode.Begin) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(m.CommitLSN))
	return binary.BigEndian.AppendUint32(appendTime(b, m.CommitTime), m.XID)
}

// Commit ends one.
func Commit(m decode.Commit) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(m.CommitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(m.EndLSN))
	return appendTime(b, m.CommitTime)
}

// Relation describes a table.
func Relation(r decode.Relation) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, r.ID)
	b = appendString(b, r.Namespace)
	b = appendString(b, r.Name)
	b = append(b, r.ReplicaIdentity)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Columns)))
	for _, c := range r.Columns {
		b = appendString(appendBool(b, c.Key), c.Name)
		b = binary.BigEndian.AppendUint32(b, c.TypeOID)
		b = binary.BigEndian.AppendUint32(b, uint32(c.TypeMod))
	}
	return b
}

// Insert carries one row.
func Insert(relation uint32, values ...decode.Value) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'I'}, relation), 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		b = append(b, v.Format)
		if v.Format == decode.ValueText || v.Format == decode.ValueBinary {
			b = binary.BigEndian.AppendUint32(b, uint32(len(v.Data)))
			b = append(b, v.Data...)
		}
	}
	return b
}

// Text is a value in text format.
func Text(s string) decode.Value { return decode.Value{Format: decode.ValueText, Data: []byte(s)} }

// Binary is a value in binary format.
func Binary(s string) decode.Value { return decode.Value{Format: decode.ValueBinary, Data: []byte(s)} }

// Null is SQL NULL.
func Null() decode.Value { return decode.Value{Format: decode.ValueNull} }

// y2k is where PostgreSQL's clock starts.
var y2k = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func appendTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMicro()-y2k.UnixMicro()))
}

func appendString(b []byte, s string) []byte { return append(append(b, s...), 0) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
