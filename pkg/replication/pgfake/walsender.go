package pgfake

import (
	"encoding/binary"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// walsender streams a slot. Its fields are guarded by the server's lock; the
// session's goroutine reads the client, another one writes.
type walsender struct {
	session *session
	slot    *slot
	table   *decode.Relation
	format  int16
	start   pglogrepl.LSN // a transaction that was committed before it is passed over
	named   bool          // the publication was there when a change was decoded

	sent           pglogrepl.LSN
	written        pglogrepl.LSN // as the client says
	flushed        pglogrepl.LSN
	heard          time.Time
	asked          bool // for a reply, since it was heard
	wantsKeepalive bool // the client has asked
	quiet          bool // it was told, and has heard nothing new since
	copyDone       bool // the client's end of the stream
	gone           bool
	relationSent   bool
	ended          chan struct{} // the writing goroutine has
}

// rowsAtATime are written without looking up.
const rowsAtATime = 64

var startReplication = regexp.MustCompile(
	`^START_REPLICATION SLOT "?([^" ]+)"? LOGICAL ([0-9A-F]+/[0-9A-F]+) \(proto_version '1', publication_names '"([^"]+)"'(, binary 'true')?\)$`)

// command of the replication protocol; handled is false for anything else.
func (c *session) command(sql string) (handled, goOn bool) {
	s := c.server
	sql = strings.TrimSpace(sql)
	switch {
	case sql == "IDENTIFY_SYSTEM":
		s.mu.Lock()
		row := []any{s.cfg.SystemID, "1", s.flushed.String(), s.cfg.Database}
		s.mu.Unlock()
		c.rows("IDENTIFY_SYSTEM", []column{{"systemid", tText}, {"timeline", tText}, {"xlogpos", tText}, {"dbname", tText}}, nil, [][]any{row}, true)
		c.ready()
		return true, true
	case strings.HasPrefix(sql, "START_REPLICATION"):
		words := startReplication.FindStringSubmatch(flat(sql))
		if words == nil {
			s.cfg.Unknown(sql)
			return true, false
		}
		w, refused := c.take(words[1], words[2], words[3], words[4] != "")
		if refused != nil {
			c.refuse(refused)
			c.ready()
			return true, true
		}
		return true, w.stream()
	}
	return false, true
}

// take the slot.
func (c *session) take(name, from, publication string, binaryFormat bool) (*walsender, *failure) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[name]
	switch {
	case s.state == stopping:
		return nil, fail("57P03", "the database system is shutting down")
	case slot == nil:
		return nil, fail("42704", "replication slot %q does not exist", name)
	case slot.holder != nil:
		return nil, fail("55006", "replication slot %q is active for PID %d", name, slot.holder.pid)
	}
	lsn, err := pglogrepl.ParseLSN(from)
	if err != nil {
		return nil, fail("22P02", "%v", err)
	}
	slot.holder = c
	w := &walsender{
		session: c, slot: slot, table: s.cfg.Table, format: pgtype.TextFormatCode, named: s.publications[publication] != nil,
		start: max(lsn, slot.confirmed), heard: time.Now(), ended: make(chan struct{}),
	}
	w.sent = w.start
	if binaryFormat {
		w.format = pgtype.BinaryFormatCode
	}
	c.sender = w
	return w, nil
}

// stream until either side ends it; true: the session goes on.
func (w *walsender) stream() bool {
	c, s := w.session, w.session.server
	c.send(&pgproto3.CopyBothResponse{})
	go func() {
		defer close(w.ended)
		w.write()
	}()
	w.read()
	s.mu.Lock()
	w.gone = !w.copyDone
	s.tell()
	s.mu.Unlock()
	if w.gone {
		c.drop() // whoever is stuck in a write
	}
	<-w.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	c.sender = nil
	if w.slot.holder == c {
		w.slot.holder = nil
	}
	s.tell()
	return !w.gone
}

// read what the client says, until it says no more.
func (w *walsender) read() {
	for {
		message, err := w.session.backend.Receive()
		if err != nil || !w.hear(message) {
			return
		}
	}
}

func (w *walsender) hear(message pgproto3.FrontendMessage) bool {
	s := w.session.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for time.Now().Before(s.stalled) && s.state != down {
		s.wait(s.stalled)
	}
	switch m := message.(type) {
	case *pgproto3.CopyData:
		w.status(m.Data)
		s.tell()
		return true
	case *pgproto3.CopyDone:
		w.copyDone = true
		s.tell()
		return false
	}
	return false // Terminate
}

// status is a standby status update.
func (w *walsender) status(data []byte) {
	s := w.session.server
	if len(data) != 34 || data[0] != 'r' {
		s.cfg.Broken("a message in the stream that is no status update")
		return
	}
	lsn := func(at int) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(data[at:])) }
	written, flushed := lsn(1), lsn(9)
	if flushed > written || flushed > max(w.sent, w.start) {
		s.cfg.Broken("a status confirms " + flushed.String() + ", beyond " + min(written, w.sent).String() + ", which is all that was sent")
	}
	if flushed < w.flushed {
		s.cfg.Broken("a status falls back from " + w.flushed.String() + " to " + flushed.String())
	}
	w.written, w.flushed = written, flushed
	w.heard, w.asked, w.quiet = time.Now(), false, false
	w.wantsKeepalive = w.wantsKeepalive || data[33] == 1
	if w.slot.holder == w.session && flushed != 0 {
		s.confirm(w.slot, flushed)
	}
}

// write the stream, and see to the time-out.
func (w *walsender) write() {
	for {
		messages, goOn := w.next()
		if len(messages) > 0 {
			w.session.send(messages...)
		}
		if !goOn {
			return
		}
	}
}

// next is what to write now; it waits until there is something.
func (w *walsender) next() (messages []pgproto3.BackendMessage, goOn bool) {
	s := w.session.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		timeout := w.session.timeout()
		now := time.Now()
		switch {
		case w.gone, s.state == down:
			return nil, false
		case now.Before(s.stalled):
			s.wait(s.stalled)
			continue
		case w.copyDone:
			return []pgproto3.BackendMessage{
				&pgproto3.CopyDone{}, &pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}, &pgproto3.ReadyForQuery{TxStatus: 'I'},
			}, false
		case timeout > 0 && now.Sub(w.heard) >= timeout:
			w.session.drop()
			return nil, false
		case timeout > 0 && now.Sub(w.heard) >= timeout/2 && !w.asked:
			w.asked = true
			return w.keepalive(w.sent, true), true
		case w.wantsKeepalive:
			w.wantsKeepalive = false
			return w.keepalive(w.sent, false), true
		}
		if record, ok := s.after(w.sent); ok {
			return w.decode(record)
		}
		if s.state == stopping && w.flushed >= w.sent {
			return []pgproto3.BackendMessage{&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}}, w.dismiss()
		}
		if w.flushed < w.sent && w.written < w.sent && !w.asked && !w.quiet {
			w.quiet = true // a ping before sleeping, in case the client has nothing else to answer
			return w.keepalive(w.sent, false), true
		}
		var due time.Time
		if timeout > 0 {
			if due = w.heard.Add(timeout / 2); w.asked {
				due = w.heard.Add(timeout)
			}
		}
		s.wait(due)
	}
}

// dismiss the client at the end of a shutdown.
func (w *walsender) dismiss() bool {
	w.gone = true
	go w.session.drop()
	return false
}

func (w *walsender) keepalive(lsn pglogrepl.LSN, reply bool) []pgproto3.BackendMessage {
	return []pgproto3.BackendMessage{&pgproto3.CopyData{Data: decodetest.Keepalive(lsn, time.Now(), reply)}}
}

// decode a record; what nobody published moves the position only. The lock is
// given up while rows are written.
func (w *walsender) decode(r record) (messages []pgproto3.BackendMessage, goOn bool) {
	t := r.tx
	if t == nil || t.CommitLSN < w.start {
		w.sent, w.quiet = r.end, false
		return nil, true
	}
	s := w.session.server
	if !w.named {
		w.session.send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "42704", Message: "publication does not exist"})
		return nil, w.dismiss()
	}
	before := w.sent
	data := func(lsn pglogrepl.LSN, message []byte) pgproto3.BackendMessage {
		return &pgproto3.CopyData{Data: decodetest.XLogData(lsn, time.Now(), message)}
	}
	messages = append(messages, data(before, decodetest.Begin(decode.Begin{CommitLSN: t.CommitLSN, CommitTime: t.Time, XID: t.XID})))
	if !w.relationSent {
		w.relationSent = true
		messages = append(messages, data(0, decodetest.Relation(*w.table)))
	}
	for i, insert := range t.inserts(s.types, w.table, w.format) {
		lsn := before + pglogrepl.LSN(rowSize*(i+1))
		messages = append(messages, data(min(lsn, t.CommitLSN), insert))
		if (i+1)%rowsAtATime == 0 {
			// A real one asks inside a transaction when its client was not heard for long.
			asks := (i/rowsAtATime)%4 == 3
			messages = append(messages, w.keepalive(min(lsn, t.CommitLSN-1), asks)...)
			s.mu.Unlock()
			w.session.send(messages...)
			s.mu.Lock()
			messages = messages[:0]
			if w.gone || s.state == down {
				return nil, false
			}
			for time.Now().Before(s.stalled) && s.state != down {
				s.wait(s.stalled)
			}
		}
	}
	w.sent, w.quiet = t.EndLSN, false
	return append(messages, data(t.EndLSN, decodetest.Commit(decode.Commit{CommitLSN: t.CommitLSN, EndLSN: t.EndLSN, CommitTime: t.Time}))), true
}
