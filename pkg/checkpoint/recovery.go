package checkpoint

import (
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
)

// Recovery says which rows are in doubt, and what has become of those read so far.
// It goes from page to page, and is never changed after it was made.
type Recovery struct {
	// Since: rows made from then on are in doubt; zero: all rows are.
	Since time.Time `json:"since,omitzero"`
	// XID and time of the last commit published: what began to write, or was
	// committed, later is in doubt too, whenever it was made. Zero: not known, or of
	// another history.
	XID        uint32    `json:"xid,omitempty"`
	CommitTime time.Time `json:"commit_time,omitzero"`
	// Forked: the server's history is not the one that was published.
	Forked bool `json:"forked,omitempty"`
	// Timeline and Lost: events of that timeline from that LSN on are of a tail that
	// the server has lost; 0: there is none that is known.
	Timeline uint32        `json:"timeline,omitempty"`
	Lost     pglogrepl.LSN `json:"lost_from,omitempty"`
	// Base is where the pages' LSNs begin: beyond what was published before. Expected
	// are the rows to be published, as they were counted beforehand.
	Base     pglogrepl.LSN `json:"base,omitempty"`
	Expected uint64        `json:"rows_expected,omitempty"`

	Earlier  []string `json:"earlier_pipelines,omitempty"` // whose records count too
	Topics   []string `json:"topics,omitempty"`            // read beside those that rows name
	TrustIDs bool     `json:"trust_ids,omitempty"`         // an event id in the topics is enough, whatever its value

	Read   uint64 `json:"rows_read"`  // rows in doubt
	Found  uint64 `json:"rows_found"` // of them: in the topics
	Left   uint64 `json:"rows_left"`  // of them: left to the stream
	Reused uint64 `json:"ids_in_use"` // of those not found: the topics have their id with another value
	Aside  uint64 `json:"rows_aside"` // of those found: dead letters
}

// Unmade reports that a recovery was begun, and its slot not yet made.
func (r *Record) Unmade() bool { return r.Phase == PhaseRecover && r.Covered == 0 }

// Recover is what is in doubt behind this checkpoint, on a server: rows made from
// window before the last commit published on, or all. A recovery that was begun
// and has lost its slot goes on with what it had in doubt.
func (r *Record) Recover(server Server, window time.Duration, all bool) Recovery {
	if r.Snapshot != nil && r.Snapshot.Recovery != nil {
		begun := *r.Snapshot.Recovery
		begun.Read, begun.Found, begun.Left, begun.Reused, begun.Aside = 0, 0, 0, 0, 0 // the tables are read from their begin
		begun.Earlier, begun.Topics = slices.Clone(begun.Earlier), slices.Clone(begun.Topics)
		return begun
	}
	sameServer := r.SystemID == server.SystemID
	known := Recovery{Base: r.Reach()}
	switch {
	case !sameServer || r.Timeline != server.Timeline && server.SwitchUnknown:
		known.Forked = true
	case r.Timeline != server.Timeline && r.InRecovery: // the stream went on over the switch point
	case r.Timeline != server.Timeline && server.SwitchPoint < r.Reach() && r.kept(server):
		known.Base = server.SwitchPoint // an idle position lay beyond it
	case r.Timeline != server.Timeline && server.SwitchPoint < r.Reach():
		known.Forked, known.Timeline, known.Lost = true, r.Timeline, server.SwitchPoint
		known.Base = server.SwitchPoint
	case r.Reach() > server.Flushed:
		known.Forked = true
	}
	if r.CommitTime.IsZero() || all {
		return known
	}
	known.CommitTime = r.CommitTime
	known.Since = r.CommitTime.Add(-window)
	if !known.Forked {
		known.XID = r.XID
	}
	return known
}

// settled takes the base back where from, the begin of the stream, leaves no room
// for the pages before it: they are then numbered as those of a first snapshot.
func (k *Recovery) settled(from pglogrepl.LSN) *Recovery {
	const spare = 8
	settled := *k
	if settled.Base >= from || uint64(from-settled.Base) < 2*settled.Expected+spare {
		settled.Base = 0
	}
	return &settled
}

// Begin is the edge of a recovery that begins where the stream does.
func (k *Recovery) Begin(from pglogrepl.LSN) Edge {
	return Edge{Covered: from, Page: &Page{From: from, Recovery: k.settled(from)}}
}
