package pipeline

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// State of the lifecycle.
type State string

// A run goes Connecting, (Standby,) (Snapshotting,) Streaming, Draining, Stopped. Waiting is the
// pause after an error that may pass; Paused is an operator's, who asked to leave
// the slot in peace; Refused needs a person.
const (
	Connecting   State = "connecting"
	Standby      State = "standby"
	Snapshotting State = "snapshot"
	Streaming    State = "streaming"
	Waiting      State = "waiting"
	Paused       State = "paused"
	Draining     State = "draining"
	Refused      State = "refused"
	Stopped      State = "stopped"
)

// States in the order of the lifecycle.
var States = []State{Connecting, Standby, Snapshotting, Streaming, Waiting, Paused, Draining, Refused, Stopped}

// Progress is a picture of the pipeline at one moment, safe to keep and to read.
type Progress struct {
	At    time.Time
	State State
	Since time.Time // of the state
	// DownSince is since when nothing can be published, whatever states were gone
	// through meanwhile; zero while streaming or standing by.
	DownSince time.Time
	Reason    string // why it is in this state; empty when there is nothing to say
	// ForeignHolder, of Standby: the slot is not another instance's of this pipeline.
	ForeignHolder bool
	Restarts      map[string]uint64

	Received, Published, Confirmed pglogrepl.LSN
	InFlightEvents, InFlightBytes  int
	// OldestCommit is when the oldest transaction was committed that is received
	// and not published; zero when there is none.
	OldestCommit time.Time
	// OldestAge is its age by the server's clock.
	OldestAge time.Duration
	Counters  Counters
	// Poisoned counts the rows that did not become records, and BadRows are the
	// newest of them.
	Poisoned sink.Poisoned
	BadRows  []sink.BadRow
	// BadRun is how many there were since the last good row, of one topic or of all.
	BadRun int
	// Snapshot is set while rows from before the slot are published.
	Snapshot *SnapshotProgress
	// Rewind is set where a trailing slot is asked for, from the first look at it on.
	Rewind *RewindProgress
	Health replication.Health // of the stream's own session
	Slot   replication.Health // the newest reading while nothing was streamed
	// HeardAt is when the server said something last, on either connection.
	HeardAt time.Time
	Silent  bool // the server says nothing; its walsender is alive
	// Trouble is why the last connection to a broker failed, while none answers.
	Trouble string
	// BehindSince is since when the server has had WAL that it has not sent, and
	// has sent nothing of it; zero when it has sent everything.
	BehindSince time.Time
}

// healthFresh is how long a reading of the server's WAL end counts.
const healthFresh = 10 * time.Second

// Known reports that lag can be told: the pipeline streams and the end of the
// server's WAL has just been read. Otherwise lag is unknown, not 0: during a
// snapshot nobody knows what waits in the stream.
func (p *Progress) Known(now time.Time) bool {
	return (p.State == Streaming || p.State == Draining && p.Snapshot == nil) && p.SlotKnown(now)
}

// HoldsSlot: what Health says of slot and walsender is of this run.
func (p *Progress) HoldsSlot() bool {
	return p.State == Snapshotting || p.State == Streaming || p.State == Draining
}

// ReadsSlot: Health is of the slot as it stands: of this run, or looked at while an
// operator keeps the pipeline paused and the server keeps WAL all the same.
func (p *Progress) ReadsSlot() bool { return p.HoldsSlot() || p.State == Paused }

// SlotKnown reports that the slot has just been read.
func (p *Progress) SlotKnown(now time.Time) bool {
	return p.ReadsSlot() && p.Health.Err == nil && now.Sub(p.Health.At) < healthFresh && (!p.HoldsSlot() || p.silentSince(now).IsZero())
}

// SlotHealth is the newest reading of the slot, in any state; not known where
// nobody could read it for a while.
func (p *Progress) SlotHealth(now time.Time) (h replication.Health, known bool) {
	if p.ReadsSlot() {
		return p.Health, p.SlotKnown(now)
	}
	return p.Slot, p.Slot.Err == nil && now.Sub(p.Slot.At) < healthFresh
}

// Stalled is for how long work has been waiting with none done; 0 when nothing
// waits.
func (p *Progress) Stalled(now time.Time) time.Duration {
	since := p.DownSince
	switch p.State {
	case Connecting, Waiting, Refused:
	case Standby, Paused, Stopped:
		return 0
	case Snapshotting, Streaming, Draining:
		if since = p.Counters.ProgressAt; !p.BehindSince.IsZero() && p.BehindSince.Before(since) {
			since = p.BehindSince
		}
		if heard := p.silentSince(now); !heard.IsZero() && heard.Before(since) {
			since = heard
		}
	}
	return max(0, now.Sub(since))
}

// quiet is how long the server may say nothing on either connection: the session
// asks every two seconds, and gives an answer five.
const quiet = 5 * time.Second

// silentSince is since when nothing has come from the server, if that is long ago:
// whether work waits there nobody can tell, so it counts as if some did.
func (p *Progress) silentSince(now time.Time) time.Time {
	if p.HeardAt.IsZero() || now.Sub(p.HeardAt) < quiet {
		return time.Time{}
	}
	return p.HeardAt
}

// board is where the loop leaves its progress for everyone else.
type board struct{ current atomic.Pointer[Progress] }

func (b *board) load() *Progress { return b.current.Load() }

// update publishes a changed copy.
func (b *board) update(change func(*Progress)) {
	next := *b.current.Load()
	next.At = time.Now()
	change(&next)
	b.current.Store(&next)
}

func (b *board) state(s State, reason string) {
	b.update(func(p *Progress) {
		held := p.HoldsSlot()
		if p.State != s {
			p.Since = p.At
		}
		p.State, p.Reason = s, reason
		if s != Snapshotting && s != Draining {
			p.Snapshot = nil
		}
		switch s {
		case Snapshotting, Streaming, Draining:
			p.DownSince = time.Time{}
			return
		case Standby, Paused, Stopped:
			p.DownSince = time.Time{}
		case Connecting, Waiting, Refused:
			if p.DownSince.IsZero() {
				if p.DownSince = p.At; held { // an end by silence began with it
					p.DownSince = cmp.Or(p.silentSince(p.At), p.At)
				}
			}
		}
		// What was in flight went with the stream: it comes again.
		p.InFlightEvents, p.InFlightBytes, p.OldestCommit, p.BehindSince, p.Silent = 0, 0, time.Time{}, time.Time{}, false
	})
}

// heard publishes when something came from the server.
func (b *board) heard(at time.Time) {
	b.update(func(p *Progress) {
		if at.After(p.HeardAt) {
			p.HeardAt = at
		}
	})
}

// observe publishes where the core has come to.
func (b *board) observe(core *Core, counters Counters, last replication.Health, silent bool, trouble string, now time.Time) {
	b.update(func(p *Progress) {
		received, published, confirmed := core.positions()
		switch {
		case last.Err != nil:
		case last.WALEnd <= received, core.page != nil: // the stream waits for its turn
			p.BehindSince = time.Time{}
		case p.BehindSince.IsZero() || received > p.Received:
			p.BehindSince = now
		}
		p.Received, p.Published, p.Confirmed = received, published, confirmed
		p.InFlightEvents, p.InFlightBytes = core.ledger.InFlight()
		p.OldestCommit, p.OldestAge = core.ledger.Oldest(), 0
		if !p.OldestCommit.IsZero() {
			p.OldestAge = core.clock.since(p.OldestCommit, now)
		}
		p.Counters, p.Health, p.Silent, p.Trouble = counters, last, silent, trouble
	})
}

// snapshot publishes how far a snapshot has come.
func (b *board) snapshot(progress SnapshotProgress) {
	b.update(func(p *Progress) { p.Snapshot = &progress })
}

// poisoned publishes which rows did not become records, when there are new ones.
func (b *board) poisoned(seen *sink.Seen) {
	counts, newest := seen.BadRows()
	if len(newest) == 0 {
		return
	}
	run := seen.BadRun()
	b.update(func(p *Progress) { p.Poisoned, p.BadRows, p.BadRun = counts, newest, run })
}
