package pgfake

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

// Config of a server. Zero values have defaults, but for Database and Table.
type Config struct {
	SystemID string
	Database string
	Version  int // server_version_num
	Table    *decode.Relation
	// WALSenderTimeout is the server's setting; sessions may bring their own.
	WALSenderTimeout time.Duration
	// SaveEvery is how often confirmed positions are written down; 0: at once.
	SaveEvery time.Duration

	// Unknown is told of a statement that statements.go does not have.
	Unknown func(sql string)
	// Broken is told of what no client may do.
	Broken func(what string)
	// OnConfirm is told of every confirmed position that is news. It runs under
	// the server's lock, and must not call back.
	OnConfirm func(slot string, lsn pglogrepl.LSN)
}

// state of the server.
type state int

const (
	up state = iota
	stopping
	down
	starting
)

// Server is a PostgreSQL server.
type Server struct {
	cfg Config

	mu           sync.Mutex
	types        *pgtype.Map
	changed      chan struct{} // closed at every change, and made anew
	state        state
	wal          []record
	flushed      pglogrepl.LSN
	xid          uint32
	slots        map[string]*slot
	publications map[string]*publication
	sessions     map[*session]struct{}
	nextPID      uint32
	nextOID      uint32
	stalled      time.Time // walsenders do nothing until then
	cutAfter     string    // the beginning of a statement whose answer is lost
	listeners    []net.Listener
	running      sync.WaitGroup
}

// New returns a server that is up, with its table and nothing in it.
func New(cfg Config) *Server {
	if cfg.SystemID == "" {
		cfg.SystemID = "7400000000000000001"
	}
	if cfg.Version == 0 {
		cfg.Version = 180004
	}
	if cfg.WALSenderTimeout == 0 {
		cfg.WALSenderTimeout = time.Minute
	}
	if cfg.Unknown == nil {
		cfg.Unknown = func(sql string) { panic("pgfake: unknown statement: " + sql) }
	}
	if cfg.Broken == nil {
		cfg.Broken = func(what string) { panic("pgfake: " + what) }
	}
	if cfg.OnConfirm == nil {
		cfg.OnConfirm = func(string, pglogrepl.LSN) {}
	}
	return &Server{
		cfg: cfg, types: pgtype.NewMap(), changed: make(chan struct{}), flushed: firstLSN, xid: 700,
		slots: map[string]*slot{}, publications: map[string]*publication{}, sessions: map[*session]struct{}{},
		nextPID: 1000, nextOID: 20_000,
	}
}

// Serve lets clients in, until Close.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() { s.serve(conn) })
		}
	})
}

// Close ends the server, its sessions and its goroutines.
func (s *Server) Close() {
	s.Crash()
	s.mu.Lock()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// tell whoever waits for a change; s.mu is held.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Commit writes a transaction with rows of the outbox table.
func (s *Server) Commit(rows ...Row) *Transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.xid++
	commit := s.flushed + pglogrepl.LSN(rowSize*len(rows))
	t := &Transaction{
		XID: s.xid, CommitLSN: commit, EndLSN: commit + commitSize,
		Time: time.Now().UTC().Truncate(time.Microsecond), Rows: len(rows), rows: rows,
	}
	s.append(record{end: t.EndLSN, tx: t})
	return t
}

// Other writes WAL that is none of the outbox.
func (s *Server) Other(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.xid++
	end := s.flushed + pglogrepl.LSN(bytes+7)&^7
	if last := len(s.wal) - 1; last >= 0 && s.wal[last].tx == nil && !s.sentBeyond(s.wal[last].end-1) {
		s.wal[last].end, s.flushed = end, end
		s.tell()
		return
	}
	s.append(record{end: end})
}

// sentBeyond: a walsender has read further than that.
func (s *Server) sentBeyond(lsn pglogrepl.LSN) bool {
	for other := range s.sessions {
		if other.sender != nil && other.sender.sent > lsn {
			return true
		}
	}
	return false
}

func (s *Server) append(r record) {
	r.start = s.flushed
	s.wal = append(s.wal, r)
	s.flushed = r.end
	s.tell()
}

// after returns the first record that ends beyond an LSN; s.mu is held.
func (s *Server) after(lsn pglogrepl.LSN) (record, bool) {
	i, _ := slices.BinarySearchFunc(s.wal, lsn, func(r record, lsn pglogrepl.LSN) int {
		if r.end <= lsn {
			return -1
		}
		return 1
	})
	if i == len(s.wal) {
		return record{}, false
	}
	return s.wal[i], true
}

// Flushed is the end of the WAL.
func (s *Server) Flushed() pglogrepl.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushed
}

// Sessions says how many there are, ordinary ones and walsenders.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Crash is an immediate stop: every connection is gone, and the slots fall back
// to what was written down of them. Nothing committed is lost.
func (s *Server) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = down
	for _, slot := range s.slots {
		slot.confirmed = slot.saved
	}
	for session := range s.sessions {
		session.drop()
	}
	s.tell()
}

// Recover begins after Crash: clients are told 57P03 until Start.
func (s *Server) Recover() { s.become(starting) }

// Start lets clients in again.
func (s *Server) Start() { s.become(up) }

func (s *Server) become(state state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	s.tell()
}

// Stop is a fast shutdown. It returns when the last walsender has gone, which
// each does when its client has confirmed everything or leaves.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = stopping
	for session := range s.sessions {
		if session.sender == nil {
			go session.fatal("57P01", "terminating connection due to administrator command") // not under the lock
		}
	}
	s.tell()
	for len(s.sessions) > 0 && s.state == stopping {
		s.wait(time.Time{})
	}
	if s.state != stopping {
		return // Crash, meanwhile
	}
	s.state = down
	for _, slot := range s.slots {
		slot.saved = slot.confirmed
	}
	s.tell()
}

// Stall makes the walsenders neither read nor write for a while, as one is that
// decodes a huge transaction of another table. Ordinary sessions go on.
func (s *Server) Stall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = time.Now().Add(d)
}

// LoseAnswer lets the next statement that begins so be carried out, and breaks
// the connection instead of answering it.
func (s *Server) LoseAnswer(statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAfter = statement
}

// losesAnswer says so, once; s.mu is held.
func (s *Server) losesAnswer(sql string) bool {
	if s.cutAfter == "" || !strings.HasPrefix(sql, s.cutAfter) {
		return false
	}
	s.cutAfter = ""
	return true
}

// wait for a change, or until a time that is set; s.mu is held.
func (s *Server) wait(until time.Time) {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// serverVersion is 18.4 of 180004.
func (s *Server) serverVersion() string {
	return fmt.Sprintf("%d.%d", s.cfg.Version/10000, s.cfg.Version%10000)
}
