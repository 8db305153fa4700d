package pipeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/replication"
)

// Rewind is how far back the stream can be read again, from a second slot that
// trails the first one.
type Rewind struct {
	// Window is how far back in time the slot is to reach; 0: there is none.
	Window time.Duration
	// MaxBytes of WAL that it may keep; 0: bounded by Budget and the server only.
	MaxBytes int64
	// Budget for what the server keeps of WAL; 0: none.
	Budget int64
	// Every is the least time between two moves of the slot; 0: five minutes.
	Every time.Duration
}

// Each move decodes what lies between, so the slot is moved seldom. Near a limit
// that does not count.
const rewindEvery = 5 * time.Minute

// Parts of a limit: from rewindHigh on the slot is moved until rewindLow is kept, and
// beyond rewindDanger it is given up, if nothing else helped. What is written between
// two looks must fit into the rest.
const (
	rewindLow    = 0.5
	rewindHigh   = 0.7
	rewindDanger = 0.9
	// rewindOwn part of a limit, at least, must be the trailing slot's alone: else
	// nothing is gained by giving it up.
	rewindOwn = 0.05
)

// rewindMark says that what ends at or below LSN was committed before At.
type rewindMark struct {
	At  time.Time
	LSN pglogrepl.LSN
}

// rewindMemory is what a process knows of its trailing slot, over all starts.
type rewindMemory struct {
	rule    Rewind
	marks   []rewindMark // rising
	moved   time.Time    // when the slot was moved last, by the server's clock
	givenUp string       // why; it is not made again
}

// marksKept in a window: the slot lags behind it by a part of so many.
const marksKept = 512

// mark remembers where the first slot stands. Going backwards, as after a change of
// servers, nothing that was remembered counts.
func (m *rewindMemory) mark(at time.Time, confirmed pglogrepl.LSN) {
	if n := len(m.marks); n > 0 {
		last := m.marks[n-1]
		switch {
		case confirmed < last.LSN:
			m.marks = m.marks[:0]
		case confirmed == last.LSN, at.Sub(last.At) < m.rule.Window/marksKept:
			return
		}
	}
	m.marks = append(m.marks, rewindMark{at, confirmed})
	if old := m.passed(at); old > 0 { // the newest of those that are passed says all that they say
		m.marks = slices.Delete(m.marks, 0, old)
	}
}

// recall takes from history what a process that has just begun cannot know.
func (m *rewindMemory) recall(buckets []history.Bucket, confirmed pglogrepl.LSN) {
	if len(m.marks) > 0 {
		return
	}
	var latest time.Time
	for i := range buckets {
		b := &buckets[i]
		if b.LastTime.After(latest) {
			latest = b.LastTime
		}
		if n := len(m.marks); !b.Unfinished && !latest.IsZero() && b.To <= confirmed && (n == 0 || b.To > m.marks[n-1].LSN) {
			m.marks = append(m.marks, rewindMark{latest, b.To})
		}
	}
}

// passed is the index of the newest mark that is older than the window; -1: none is.
func (m *rewindMemory) passed(now time.Time) int {
	at := -1
	for i := range m.marks {
		if now.Sub(m.marks[i].At) >= m.rule.Window {
			at = i
		}
	}
	return at
}

// reach is since when everything that was committed can be had from the slot; zero:
// not known.
func (m *rewindMemory) reach(from pglogrepl.LSN) (since time.Time) {
	for _, mark := range m.marks {
		if mark.LSN >= from {
			return mark.At
		}
	}
	return since
}

// rewindMove is what becomes of the slot now.
type rewindMove struct {
	To     pglogrepl.LSN // 0: nothing
	GiveUp string        // why
	Why    string        // it is moved further than the window asks for
}

// decide is pure. tried says that the slot was moved a moment ago, and this is what
// came of it.
func (m *rewindMemory) decide(r *replication.Rewind, tried bool) rewindMove {
	used, limit, name := m.used(r)
	if used >= rewindHigh && !tried {
		if to := r.WALEnd - pglogrepl.LSN(rewindLow*limit); r.WALEnd > pglogrepl.LSN(rewindLow*limit) && min(to, r.MainConfirmed) > r.Slot.ConfirmedFlush {
			return rewindMove{To: min(to, r.MainConfirmed), Why: fmt.Sprintf("%.0f %% of %s are used", 100*used, name)}
		}
	}
	if own := float64(distanceOf(r.Slot.Restart, r.MainRestart)); used >= rewindDanger && own >= rewindOwn*limit {
		return rewindMove{GiveUp: fmt.Sprintf("the server keeps %s of WAL for it, %.0f %% of %s, and moving it did not help",
			humanize.IBytes(uint64(distanceOf(r.Slot.Restart, r.WALEnd))), 100*used, name)}
	}
	every := m.rule.Every
	if every == 0 {
		every = rewindEvery
	}
	if tried || r.At.Sub(m.moved) < every {
		return rewindMove{}
	}
	to := r.Slot.ConfirmedFlush
	if at := m.passed(r.At); at >= 0 {
		to = max(to, min(m.marks[at].LSN, r.MainConfirmed))
	}
	if to > r.Slot.ConfirmedFlush || r.IdleTimeout { // moved to where it stands, it counts as used
		return rewindMove{To: to}
	}
	return rewindMove{}
}

// used is the part of the tightest limit that the slot has taken.
func (m *rewindMemory) used(r *replication.Rewind) (used, limit float64, name string) {
	kept := float64(distanceOf(r.Slot.Restart, r.WALEnd))
	for _, l := range []struct {
		bytes int64
		name  string
	}{{m.rule.MaxBytes, "--rewind-max"}, {m.rule.Budget, "--max-retained-wal"}, {m.keepSize(r), "max_slot_wal_keep_size"}} {
		if l.bytes > 0 && kept/float64(l.bytes) >= used {
			used, limit, name = kept/float64(l.bytes), float64(l.bytes), l.name
		}
	}
	return used, limit, name
}

// keepSize is what the server keeps for a slot before it is lost; 0: no limit.
func (m *rewindMemory) keepSize(r *replication.Rewind) int64 {
	if r.Slot.SafeWALSize == nil {
		return 0
	}
	return max(1, distanceOf(r.Slot.Restart, r.WALEnd)+*r.Slot.SafeWALSize)
}

func distanceOf(from, to pglogrepl.LSN) int64 {
	if to <= from {
		return 0
	}
	return int64(to - from)
}
