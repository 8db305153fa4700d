package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/walstream/walstream/pkg/pipeline"
)

// rewind is the slot that trails the other one, in /status.
type rewind struct {
	Slot           string    `json:"slot"`
	State          string    `json:"state"` // kept, given up, failing, unknown
	Reason         string    `json:"reason,omitempty"`
	From           string    `json:"from,omitempty"`
	Since          time.Time `json:"since,omitzero"` // what was committed from then on can be read again
	RetainedBytes  *int64    `json:"retained_bytes"`
	CatalogXminAge *int64    `json:"catalog_xmin_age"`
	Moves          uint64    `json:"moves"`
	MovesSeconds   float64   `json:"moves_seconds"`
}

// rewindFresh is how long a reading counts: a look comes every ten seconds.
const rewindFresh = 40 * time.Second

func rewindKnown(p *pipeline.Progress, now time.Time) bool {
	r := p.Rewind
	return r != nil && r.Kept && p.HoldsSlot() && now.Sub(r.At) < rewindFresh
}

func newRewind(p *pipeline.Progress, now time.Time) *rewind {
	r := p.Rewind
	if r == nil {
		return nil
	}
	view := &rewind{Slot: r.Slot, State: "unknown", Moves: r.Moves, MovesSeconds: r.MovesLasted.Seconds()}
	switch {
	case r.GivenUp != "":
		view.State, view.Reason = "given up", r.GivenUp
	case r.Err != "":
		view.State, view.Reason = "failing", r.Err
	case rewindKnown(p, now):
		view.State = "kept"
	}
	if rewindKnown(p, now) {
		view.From, view.Since, view.RetainedBytes, view.CatalogXminAge = r.From, r.Since, &r.RetainedBytes, &r.CatalogXminAge
	}
	return view
}

var (
	rewindGivenUp  = desc("rewind_given_up", "1 when the rewind slot was dropped so that the server can let go of its WAL, until the process starts again: replay has the table only. /status has the reason. Absent without --rewind-window.")
	rewindFailing  = desc("rewind_failing", "1 while the rewind slot cannot be made, read or moved; /status has the error. The stream has no part in it. Absent without --rewind-window.")
	rewindRetained = desc("rewind_retained_bytes", "WAL the server keeps for the rewind slot, that of walstream_slot_retained_bytes among it. Near --rewind-max the slot is moved on, and beyond 90 % given up.")
	rewindXminAge  = desc("rewind_catalog_xmin_age_transactions", "Transactions since the rewind slot's catalog_xmin: vacuum cleans no catalogue row that died later, for the whole window.")
	rewindReach    = desc("rewind_reach_seconds", "How far back, in time, the stream can be read again from the rewind slot. Absent while that is not known: a process learns it from the history topic, or within the window.")
	rewindMoves    = desc("rewind_moves_total", "How often the rewind slot was moved on. Absent without --rewind-window.")
	rewindSeconds  = desc("rewind_moves_seconds_total", "Time the server worked on moving the rewind slot: it decodes what lies between. Its rate is a part of one CPU.")
)

var rewindDescs = []*prometheus.Desc{rewindGivenUp, rewindFailing, rewindRetained, rewindXminAge, rewindReach, rewindMoves, rewindSeconds}

func (c *collector) rewind(s sample, p *pipeline.Progress, now time.Time) {
	r := p.Rewind
	if r == nil {
		return
	}
	s.yes(rewindGivenUp, r.GivenUp != "")
	s.yes(rewindFailing, r.Err != "")
	s.counter(rewindMoves, r.Moves)
	s <- prometheus.MustNewConstMetric(rewindSeconds, prometheus.CounterValue, r.MovesLasted.Seconds())
	if !rewindKnown(p, now) {
		return
	}
	s.gauge(rewindRetained, float64(r.RetainedBytes))
	s.gauge(rewindXminAge, float64(r.CatalogXminAge))
	if !r.Since.IsZero() {
		s.gauge(rewindReach, max(0, now.Sub(r.Since)).Seconds())
	}
}
