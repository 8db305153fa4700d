package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/history"
)

// FormatVersion of the record written by this release. A newer one is refused;
// the one before is always readable.
const FormatVersion = 1

// Phase of a pipeline's life.
type Phase string

const (
	// PhaseSetup: publication and slot are being made, nothing is covered yet.
	PhaseSetup Phase = "setup"
	// PhaseSnapshot: rows that were there before the slot are published from the
	// table; the stream from Covered on waits for its turn.
	PhaseSnapshot Phase = "snapshot"
	// PhaseRecover: rows of a time in doubt are compared with the topics, and
	// published from the table where these do not have them; the stream from Covered
	// on waits for its turn. Covered is 0 until the slot was made anew.
	PhaseRecover Phase = "recover"
	// PhaseStream: rows are published from the stream.
	PhaseStream Phase = "stream"
)

// Page is how far a snapshot has come. It is never changed after it was made.
type Page struct {
	From pglogrepl.LSN `json:"-"` // where the stream will begin: what Covered is until then

	Number uint32   `json:"page"`            // of the last page published; 0: none
	Table  string   `json:"table,omitempty"` // the page's, with its schema
	After  []string `json:"after,omitempty"` // the primary key, as text, of its last row
	Rows   uint64   `json:"rows"`            // published so far, of all tables
	Where  string   `json:"where,omitempty"` // the condition on rows, in SQL; empty: none

	// Recovery is set where rows are left out that the topics hold.
	Recovery *Recovery `json:"recovery,omitempty"`
}

// phase that a page belongs to.
func (p *Page) phase() Phase {
	if p.Recovery != nil {
		return PhaseRecover
	}
	return PhaseSnapshot
}

// Edge is a place in the stream up to which everything is published.
type Edge struct {
	// Covered is what may be confirmed: a commit's end LSN or a keepalive's LSN.
	Covered pglogrepl.LSN
	// Commit LSN, XID and time of the newest published transaction; zero when
	// none has been published yet. They prove, at the next start, that the
	// server's history is still the one that was published. An operator's
	// accept-lost-tail leaves a CommitLSN without an XID: what lies below it is
	// published, and no transaction proves it.
	CommitLSN  pglogrepl.LSN
	XID        uint32
	CommitTime time.Time
	// Ordinal is not 0 when that transaction was split: its rows up to this one
	// are published, the rest is not, and Covered still lies before it.
	Ordinal uint32
	// Replay is what a replay has to say beside its place; nil: it is none.
	Replay *Replay
	// Page is set while a snapshot is published. The LSNs of the edge are then no
	// LSNs but count its pages.
	Page *Page
}

// Record is the durable checkpoint: one per pipeline, the newest counts.
type Record struct {
	Format   int    `json:"format"`
	Pipeline string `json:"pipeline"`
	SystemID string `json:"system_identifier"`
	Timeline uint32 `json:"timeline"`
	// InRecovery: the server was a standby, whose timeline may have risen under the
	// stream.
	InRecovery  bool   `json:"in_recovery,omitempty"`
	Database    string `json:"database"`
	Slot        string `json:"slot"`
	Publication string `json:"publication"`
	Delivery    string `json:"delivery"`
	Phase       Phase  `json:"phase"`

	Covered pglogrepl.LSN `json:"-"`
	// CommitLSN of the newest transaction published; Ordinal of its rows
	// published so far unless Complete.
	CommitLSN  pglogrepl.LSN `json:"-"`
	Ordinal    uint32        `json:"ordinal"`
	Complete   bool          `json:"complete"`
	XID        uint32        `json:"xid"`
	CommitTime time.Time     `json:"commit_time,omitzero"`
	// OptionsHash is the fingerprint of what ordinals depend on: the rows that the
	// publication carries. It must still hold when a split transaction is resumed.
	OptionsHash string `json:"options_hash,omitempty"`
	// Snapshot is set in its phase.
	Snapshot *Page `json:"snapshot,omitempty"`
	// History is what is published up to Covered (with Ordinal, a part of the
	// transaction behind it) and stands in no bucket of the history topic yet; nil
	// where none is kept.
	History *history.Open `json:"history,omitempty"`

	// Replay is set in the record of a replay, and in no other.
	Replay *Replay `json:"replay,omitempty"`

	Version string `json:"walstream_version"`
}

// With returns the record moved to edge.
func (r Record) With(edge Edge) Record {
	if edge.Replay != nil {
		r.Replay = edge.Replay
	}
	r.History = nil // of another edge
	if r.Snapshot = edge.Page; edge.Page != nil {
		r.Phase, r.Covered = edge.Page.phase(), edge.Page.From
		r.CommitLSN, r.XID, r.CommitTime, r.Ordinal, r.Complete = 0, 0, time.Time{}, 0, true
		return r
	}
	r.Phase, r.Covered = PhaseStream, edge.Covered
	r.CommitLSN, r.XID, r.CommitTime = edge.CommitLSN, edge.XID, edge.CommitTime
	r.Ordinal, r.Complete = edge.Ordinal, edge.Ordinal == 0
	return r
}

// Edge of the record.
func (r Record) Edge() Edge {
	return Edge{Covered: r.Covered, CommitLSN: r.CommitLSN, XID: r.XID, CommitTime: r.CommitTime, Ordinal: r.Ordinal, Page: r.Snapshot, Replay: r.Replay}
}

// wireRecord carries the LSNs as text, the way people read them.
type wireRecord struct {
	*plainRecord
	Covered   string `json:"covered"`
	CommitLSN string `json:"commit_lsn"`
}

type plainRecord Record

// Encode returns the record's JSON.
func (r Record) Encode() ([]byte, error) {
	r.Format, r.CommitTime = FormatVersion, r.CommitTime.UTC()
	return json.Marshal(wireRecord{(*plainRecord)(&r), r.Covered.String(), r.CommitLSN.String()})
}

// ErrNewerFormat: the checkpoint was written by a release this one cannot read.
var ErrNewerFormat = errors.New("checkpoint has a newer format than this release reads; start the release that wrote it, or a later one")

// DecodeRecord reads what Encode wrote.
func DecodeRecord(value []byte) (Record, error) {
	var version struct {
		Format  int    `json:"format"`
		Version string `json:"walstream_version"`
	}
	if err := json.Unmarshal(value, &version); err != nil {
		return Record{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	if version.Format > FormatVersion {
		return Record{}, fmt.Errorf("%w (format %d by walstream %q, this one reads up to %d)",
			ErrNewerFormat, version.Format, version.Version, FormatVersion)
	}
	if version.Format < 1 {
		return Record{}, fmt.Errorf("decode checkpoint: format %d is not a checkpoint of walstream", version.Format)
	}
	var r Record
	w := wireRecord{plainRecord: (*plainRecord)(&r)}
	if err := json.Unmarshal(value, &w); err != nil {
		return Record{}, fmt.Errorf("decode checkpoint: %w", err)
	}
	var err error
	if r.Covered, err = history.ParseLSN(w.Covered); err != nil {
		return Record{}, fmt.Errorf("decode checkpoint: covered %q: %w", w.Covered, err)
	}
	if r.CommitLSN, err = history.ParseLSN(w.CommitLSN); err != nil {
		return Record{}, fmt.Errorf("decode checkpoint: commit_lsn %q: %w", w.CommitLSN, err)
	}
	switch {
	case !slices.Contains([]Phase{"", PhaseSetup, PhaseSnapshot, PhaseRecover, PhaseStream}, r.Phase):
		return Record{}, fmt.Errorf("decode checkpoint: phase %q is none of this release's", r.Phase)
	case r.Snapshot == nil && (r.Phase == PhaseSnapshot || r.Phase == PhaseRecover), r.Snapshot != nil && r.Phase != r.Snapshot.phase():
		return Record{}, fmt.Errorf("decode checkpoint: phase %q does not agree with its snapshot", r.Phase)
	case r.Snapshot != nil:
		r.Snapshot.From = r.Covered
	}
	return r, nil
}
