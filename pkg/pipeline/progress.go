package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/replication"
)

// State of the lifecycle.
type State string

// A run goes Connecting, (Standby,) Streaming, Draining, Stopped. Waiting is the
// pause after an error that may pass; Refused needs a person.
const (
	Connecting State = "connecting"
	Standby    State = "standby"
	Streaming  State = "streaming"
	Waiting    State = "waiting"
	Draining   State = "draining"
	Refused    State = "refused"
	Stopped    State = "stopped"
)

// States in the order of the lifecycle.
var States = []State{Connecting, Standby, Streaming, Waiting, Draining, Refused, Stopped}

// Progress is a picture of the pipeline at one moment, safe to keep and to read.
type Progress struct {
	At    time.Time
	State State
	Since time.Time // of the state
	// DownSince is since when nothing can be published, whatever states were gone
	// through meanwhile; zero while streaming or standing by.
	DownSince time.Time
	Reason    string // why it is in this state; empty when there is nothing to say
	Restarts  map[string]uint64

	Received, Published, Confirmed pglogrepl.LSN
	InFlightEvents, InFlightBytes  int
	// OldestCommit is when the oldest transaction was committed that is received
	// and not published; zero when there is none.
	OldestCommit time.Time
	// OldestAge is its age by the server's clock.
	OldestAge time.Duration
	Counters  Counters
	Health    replication.Health
	Silent    bool // the server says nothing; its walsender is alive
	// Trouble is why the last connection to a broker failed, while none answers.
	Trouble string
	// BehindSince is since when the server has had WAL that it has not sent, and
	// has sent nothing of it; zero when it has sent everything.
	BehindSince time.Time
}

// healthFresh is how long a reading of the server's WAL end counts.
const healthFresh = 10 * time.Second

// Known reports that lag can be told: the pipeline streams and the end of the
// server's WAL has just been read. Otherwise lag is unknown, not 0.
func (p *Progress) Known(now time.Time) bool {
	return (p.State == Streaming || p.State == Draining) && p.Health.Err == nil && now.Sub(p.Health.At) < healthFresh
}

// Stalled is for how long work has been waiting with none done; 0 when nothing
// waits.
func (p *Progress) Stalled(now time.Time) time.Duration {
	since := p.DownSince
	switch p.State {
	case Connecting, Waiting, Refused:
	case Standby, Stopped:
		return 0
	case Streaming, Draining:
		if since = p.Counters.ProgressAt; !p.BehindSince.IsZero() && p.BehindSince.Before(since) {
			since = p.BehindSince
		}
	}
	return max(0, now.Sub(since))
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
		if p.State != s {
			p.Since = p.At
		}
		p.State, p.Reason = s, reason
		switch s {
		case Streaming, Draining:
			p.DownSince = time.Time{}
			return
		case Standby, Stopped:
			p.DownSince = time.Time{}
		case Connecting, Waiting, Refused:
			if p.DownSince.IsZero() {
				p.DownSince = p.At
			}
		}
		// What was in flight went with the stream: it comes again.
		p.InFlightEvents, p.InFlightBytes, p.OldestCommit, p.BehindSince, p.Silent = 0, 0, time.Time{}, time.Time{}, false
	})
}

// observe publishes where the core has come to.
func (b *board) observe(core *Core, counters Counters, last replication.Health, silent bool, trouble string, now time.Time) {
	b.update(func(p *Progress) {
		switch {
		case last.Err != nil:
		case last.WALEnd <= core.received:
			p.BehindSince = time.Time{}
		case p.BehindSince.IsZero() || core.received > p.Received:
			p.BehindSince = now
		}
		p.Received, p.Published, p.Confirmed = core.received, core.ledger.Published().Covered, core.ledger.Confirmed()
		p.InFlightEvents, p.InFlightBytes = core.ledger.InFlight()
		p.OldestCommit, p.OldestAge = core.ledger.Oldest(), 0
		if !p.OldestCommit.IsZero() {
			p.OldestAge = core.clock.since(p.OldestCommit, now)
		}
		p.Counters, p.Health, p.Silent, p.Trouble = counters, last, silent, trouble
	})
}
