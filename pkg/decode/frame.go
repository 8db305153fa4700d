package decode

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// Kinds of frame: the first byte of a CopyData payload in a replication stream.
// https://www.postgresql.org/docs/current/protocol-replication.html
const (
	FrameXLogData  = 'w'
	FrameKeepalive = 'k'
)

// Frame is the payload of one CopyData message. Data aliases the buffer it was
// parsed from.
type Frame struct {
	Kind byte // FrameXLogData or FrameKeepalive

	// LSN of an XLogData names its record (0 for a Relation); that of a
	// keepalive says that everything up to it has been sent.
	LSN        pglogrepl.LSN
	ServerTime time.Time

	Data           []byte // XLogData: one pgoutput message
	ReplyRequested bool   // keepalive: answer with a status update at once
}

// ParseFrame reads one CopyData payload.
func ParseFrame(b []byte) (Frame, error) {
	c := cursor{data: b}
	f := Frame{Kind: c.byte()}
	switch f.Kind {
	case FrameXLogData:
		f.LSN = pglogrepl.LSN(c.uint64())
		c.uint64() // server's WAL end: equal to LSN in logical decoding
		f.ServerTime = pgTime(int64(c.uint64()))
		f.Data = c.take(c.rest())
	case FrameKeepalive:
		f.LSN = pglogrepl.LSN(c.uint64())
		f.ServerTime = pgTime(int64(c.uint64()))
		f.ReplyRequested = c.byte() != 0
	default:
		return Frame{}, &Error{Reason: "unknown kind of replication frame"}
	}
	if c.bad {
		return Frame{}, &Error{LSN: f.LSN, Offset: c.pos, Reason: "frame ends too early"}
	}
	if c.rest() > 0 {
		return Frame{}, &Error{LSN: f.LSN, Offset: c.pos, Reason: fmt.Sprintf("%d bytes left over", c.rest())}
	}
	return f, nil
}

// StatusUpdateSize is the length of an encoded standby status update.
const StatusUpdateSize = 34

// AppendStatusUpdate appends a standby status update: everything up to received
// has been read, everything up to confirmed is safe to forget. All three fields
// are written out here, since a library that puts the write position in place
// of a zero flush position confirms what nobody has delivered.
func AppendStatusUpdate(dst []byte, received, confirmed pglogrepl.LSN, now time.Time, wantReply bool) []byte {
	dst = append(dst, 'r')
	dst = binary.BigEndian.AppendUint64(dst, uint64(received))
	dst = binary.BigEndian.AppendUint64(dst, uint64(confirmed)) // flushed
	dst = binary.BigEndian.AppendUint64(dst, uint64(confirmed)) // applied
	dst = binary.BigEndian.AppendUint64(dst, uint64(now.UnixMicro()-pgEpochMicros))
	if wantReply {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// PostgreSQL counts microseconds from 2000-01-01 UTC.
const pgEpochMicros = 946_684_800_000_000

func pgTime(micros int64) time.Time { return time.UnixMicro(micros + pgEpochMicros) }
