package replication

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/walstream/walstream/pkg/decode"
)

const (
	// batchSize is what one read of the socket may bring. Large reads make the
	// walsender cheaper: it finds room in the socket more often.
	batchSize = 256 << 10
	// batchCount bounds what is read and not yet handled.
	batchCount = 4
	// maxMessage is what PostgreSQL can send in one message: a value is at most
	// 1 GB, a message a little more than its values.
	maxMessage = 1<<31 - 1
	headerSize = 5 // kind, length
)

// Message kinds of the wire protocol that occur in a stream.
// https://www.postgresql.org/docs/current/protocol-message-formats.html
const (
	msgCopyData        = 'd'
	msgCopyDone        = 'c'
	msgError           = 'E'
	msgNotice          = 'N'
	msgParameterStatus = 'S'
	msgNotification    = 'A'
	msgCommandComplete = 'C'
	msgReadyForQuery   = 'Z'
)

// Reader turns the read half of a replication connection into batches of
// CopyData payloads. Its goroutine ends at the end of the stream, at an error,
// or at a read deadline in the past.
type Reader struct {
	in      io.Reader
	batches chan *decode.Batch
	free    chan *decode.Batch
	stop    chan struct{}
	tail    []byte // an incomplete message, carried into the next batch
	heard   atomic.Int64
	blocked atomic.Bool // no batch is free: the silence is ours
	err     error       // valid once batches is closed

	passOver bool // Stream.PassOver
}

func newReader(in io.Reader) *Reader {
	r := &Reader{
		in: in, batches: make(chan *decode.Batch, batchCount),
		free: make(chan *decode.Batch, batchCount), stop: make(chan struct{}),
	}
	for range batchCount {
		r.free <- &decode.Batch{Buffer: make([]byte, 0, batchSize)}
	}
	r.heard.Store(time.Now().UnixNano())
	return r
}

// Batches delivers what was read, in order; it is closed when the stream has
// ended, and Err then says why.
func (r *Reader) Batches() <-chan *decode.Batch { return r.batches }

// Release gives a batch back. Its payloads must not be used any more.
func (r *Reader) Release(b *decode.Batch) {
	if cap(b.Buffer) > 4*batchSize { // one huge row should not hold memory for ever
		b.Buffer = make([]byte, 0, batchSize)
	}
	b.Reset()
	r.free <- b
}

// Err is why the stream ended; io.EOF after an orderly end.
func (r *Reader) Err() error { return r.err }

// HeardAt is when bytes last came in; now while the reader is not reading
// because nobody took what it has.
func (r *Reader) HeardAt() time.Time {
	if r.blocked.Load() {
		return time.Now()
	}
	return time.Unix(0, r.heard.Load())
}

func (r *Reader) run() {
	defer close(r.batches)
	for r.err == nil {
		batch := r.take()
		if batch == nil {
			r.err = errReaderStopped
			return
		}
		r.err = r.fill(batch)
		if len(batch.Payloads) > 0 {
			r.batches <- batch // has room for all batches there are
		}
	}
}

var errReaderStopped = errors.New("reader stopped")

func (r *Reader) take() *decode.Batch {
	select {
	case b := <-r.free:
		return b
	default:
	}
	r.blocked.Store(true)
	defer func() {
		r.heard.Store(time.Now().UnixNano())
		r.blocked.Store(false)
	}()
	select {
	case b := <-r.free:
		return b
	case <-r.stop:
		return nil
	}
}

// fill reads until the batch holds at least one payload.
func (r *Reader) fill(batch *decode.Batch) error {
	buf := append(batch.Buffer[:0], r.tail...)
	r.tail = r.tail[:0]
	for len(batch.Payloads) == 0 {
		if len(buf) == cap(buf) { // a message larger than the buffer: grow as its bytes come, not as it claims
			buf = append(buf, make([]byte, cap(buf))...)[:len(buf)]
		}
		n, err := r.in.Read(buf[len(buf):cap(buf)])
		if n > 0 {
			r.heard.Store(time.Now().UnixNano())
		}
		buf = buf[:len(buf)+n]
		used, scanErr := r.scan(buf, batch)
		if scanErr != nil {
			return scanErr
		}
		if err != nil {
			return fmt.Errorf("%w: read: %w", ErrStreamEnded, err)
		}
		switch {
		case len(batch.Payloads) > 0:
			r.tail = append(r.tail, buf[used:]...)
		case used > 0: // only messages about the session: forget them
			buf = append(buf[:0], buf[used:]...)
		}
	}
	batch.Buffer = buf
	return nil
}

// scan collects the complete messages of buf and returns how many bytes they
// take.
func (r *Reader) scan(buf []byte, batch *decode.Batch) (used int, err error) {
	for len(buf)-used >= headerSize {
		kind := buf[used]
		length := int(binary.BigEndian.Uint32(buf[used+1:])) + 1
		if length < headerSize || length > maxMessage {
			return used, &decode.Error{Kind: kind, Reason: fmt.Sprintf("message of %d bytes", length)}
		}
		if len(buf)-used < length {
			return used, nil
		}
		body := buf[used+headerSize : used+length : used+length]
		used += length
		switch kind {
		case msgCopyData:
			batch.Payloads = append(batch.Payloads, body)
		case msgNotice:
			if err := r.notice(body); err != nil {
				return used, err
			}
		case msgParameterStatus, msgNotification, msgCopyDone, msgCommandComplete:
		case msgReadyForQuery:
			return used, io.EOF
		case msgError:
			var e pgproto3.ErrorResponse
			if err := e.Decode(body); err != nil {
				return used, &decode.Error{Kind: kind, Reason: err.Error()}
			}
			return used, ended(pgconn.ErrorResponseToPgError(&e))
		default:
			return used, &decode.Error{Kind: kind, Reason: "unexpected message in a replication stream"}
		}
	}
	return used, nil
}

// notice: from PostgreSQL 18 on, the server passes over changes that were made
// while the publication did not exist, with a warning where older ones end the
// stream. Its words depend on the server's language, its place in the source does
// not (pgoutput.c, LoadPublications).
func (r *Reader) notice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return &decode.Error{Kind: msgNotice, Reason: err.Error()}
	}
	if r.passOver || n.Code != stateNotInPrerequisite || n.Routine != "LoadPublications" {
		return nil
	}
	return fmt.Errorf("%w: %s: %s. %s", ErrPublicationMissing, n.Severity, n.Message, strings.TrimSuffix(n.Detail, "."))
}

// ended is the server's reason for ending the stream.
func ended(err *pgconn.PgError) error {
	if err.Code == stateUndefinedObject {
		return fmt.Errorf("%w: %w", ErrPublicationMissing, err)
	}
	return fmt.Errorf("%w: %w", ErrStreamEnded, classify(err))
}

// messageReader gives pgconn one message at a time, so that nothing of the
// stream is left in its buffers when the reader takes over.
type messageReader struct {
	in   *bufio.Reader
	left int // bytes of the current message
}

// messageReaderBuffer is small: reads larger than it go straight to the socket.
const messageReaderBuffer = 4096

func newMessageReader(in io.Reader) *messageReader {
	return &messageReader{in: bufio.NewReaderSize(in, messageReaderBuffer)}
}

func (m *messageReader) Read(p []byte) (int, error) {
	if m.left == 0 {
		header, err := m.in.Peek(headerSize)
		if err != nil {
			return 0, err
		}
		m.left = int(binary.BigEndian.Uint32(header[1:])) + 1
	}
	n, err := m.in.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}
