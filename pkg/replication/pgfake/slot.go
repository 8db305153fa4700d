package pgfake

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// slot is a logical replication slot.
type slot struct {
	name             string
	confirmed, saved pglogrepl.LSN
	savedAt          time.Time
	holder           *session
}

// publication of the outbox table's inserts.
type publication struct {
	name     string
	oid, row uint32 // of it, and of its entry for the table
	xmin     uint32
}

// Slot is what the server knows of one.
type Slot struct {
	Confirmed pglogrepl.LSN
	Active    bool
}

// Slot returns a slot; false when there is none of that name.
func (s *Server) Slot(name string) (Slot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[name]
	if slot == nil {
		return Slot{}, false
	}
	return Slot{Confirmed: slot.confirmed, Active: slot.holder != nil}, true
}

func (s *Server) createSlot(name string) (pglogrepl.LSN, *failure) {
	if s.slots[name] != nil {
		return 0, fail("42710", "replication slot %q already exists", name)
	}
	s.append(record{end: s.flushed + 56}) // of the transactions that run
	s.slots[name] = &slot{name: name, confirmed: s.flushed, saved: s.flushed, savedAt: time.Now()}
	s.tell()
	return s.flushed, nil
}

// confirm what a client has of the slot.
func (s *Server) confirm(slot *slot, lsn pglogrepl.LSN) {
	if lsn > slot.confirmed {
		if r, found := s.after(lsn); found && r.tx != nil && lsn > r.start {
			s.cfg.Broken("a status confirms " + lsn.String() + ", inside the transaction that ends at " + r.end.String())
		}
		slot.confirmed = lsn
		s.cfg.OnConfirm(slot.name, lsn)
	}
	if now := time.Now(); now.Sub(slot.savedAt) >= s.cfg.SaveEvery {
		slot.saved, slot.savedAt = slot.confirmed, now
	}
}

func (s *Server) createPublication(name string) *failure {
	if s.publications[name] != nil {
		return fail("42710", "publication %q already exists", name)
	}
	s.xid++
	s.nextOID += 2
	s.publications[name] = &publication{name: name, oid: s.nextOID, row: s.nextOID + 1, xmin: s.xid}
	return nil
}

// failure is an error that a client is told.
type failure struct{ code, message string }

func fail(code, format string, args ...any) *failure {
	return &failure{code: code, message: fmt.Sprintf(format, args...)}
}
