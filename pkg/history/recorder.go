package history

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// A bucket ends with the first checkpoint behind a minute, of commit times or of the
// clock, or 64 MB. While old rows are caught up with, commit times run faster than
// the clock, so there is at most one record a second then.
const (
	span   = time.Minute
	spared = time.Second
	volume = 64 << 20
)

// Identity is what all buckets of a run have in common.
type Identity struct {
	Pipeline string
	SystemID string
	Timeline uint32
	Database string
	Version  string
}

// Recorder fills buckets, in the order of the stream. What it returns for a
// checkpoint has to be written by the same transaction as that, or by none: after a
// failure another one goes on from the durable checkpoint. It belongs to one
// goroutine.
type Recorder struct {
	id       Identity
	open     Open
	finished []Bucket  // to be written
	since    time.Time // rows are in the open one, by our clock; zero: none are
}

// NewRecorder begins a bucket at start.
func NewRecorder(id Identity, start pglogrepl.LSN) *Recorder {
	return &Recorder{id: id, open: Open{From: start}}
}

// Continue has the bucket that stood open in the checkpoint filled on.
func (r *Recorder) Continue(open *Open) {
	r.open = Open{From: open.From}
	r.open.Merge(&open.Tally)
}

// Finish ends the one of a checkpoint that is not gone on from: the server's history
// went another way, or an operator had rows passed over.
func (r *Recorder) Finish(of Identity, open *Open, covered pglogrepl.LSN) {
	if open.From < covered {
		r.finished = append(r.finished, of.bucket(open, covered))
	}
}

func (id *Identity) bucket(open *Open, to pglogrepl.LSN) Bucket {
	return Bucket{
		Pipeline: id.Pipeline, SystemID: id.SystemID, Timeline: id.Timeline, Database: id.Database, Version: id.Version,
		From: open.From, To: to, Tally: open.Tally,
	}
}

// Open is what the next rows are counted in.
func (r *Recorder) Open() *Open { return &r.open }

// At is asked at a checkpoint that covers what was counted so far. whole says that
// this ends with a transaction, or with none begun. It returns the buckets to write
// with it, and what stands open behind them, which is good until something is counted
// again.
func (r *Recorder) At(covered pglogrepl.LSN, whole bool, now time.Time) ([]Bucket, *Open) {
	buckets := r.finished
	r.finished = nil
	if r.open.First != 0 && r.since.IsZero() {
		r.since = now
	}
	if whole && covered > r.open.From && r.due(now) {
		buckets = append(buckets, r.id.bucket(&r.open, covered))
		r.open, r.since = Open{From: covered}, time.Time{}
	}
	return buckets, &r.open
}

func (r *Recorder) due(now time.Time) bool {
	o := &r.open
	if o.First == 0 {
		return false
	}
	lasted := now.Sub(r.since)
	return o.Bytes >= volume || lasted >= span || lasted >= spared && o.LastTime.Sub(o.FirstTime) >= span
}
