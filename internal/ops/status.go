package ops

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/pipeline"
)

// status is the answer of /status. Lag is null when it cannot be told.
type status struct {
	Pipeline string         `json:"pipeline"`
	Slot     string         `json:"slot"`
	Version  string         `json:"version"`
	State    pipeline.State `json:"state"`
	Since    time.Time      `json:"since"`
	Reason   string         `json:"reason,omitempty"`
	Healthy  bool           `json:"healthy"`

	Positions  map[string]string   `json:"positions"`
	LagBytes   map[string]*int64   `json:"lag_bytes"`
	LagSeconds map[string]*float64 `json:"lag_seconds"`

	InFlightEvents int               `json:"in_flight_events"`
	InFlightBytes  int               `json:"in_flight_bytes"`
	Events         uint64            `json:"events"`
	Transactions   uint64            `json:"transactions"`
	Restarts       map[string]uint64 `json:"restarts"`
	SlotHealth     slotHealth        `json:"slot_health"`
}

type slotHealth struct {
	WALStatus     string    `json:"wal_status,omitempty"`
	RetainedBytes *int64    `json:"retained_bytes,omitempty"`
	SafeWALSize   *int64    `json:"safe_wal_size,omitempty"`
	ReadAt        time.Time `json:"read_at,omitzero"`
	Error         string    `json:"error,omitempty"`
}

func newStatus(cfg Config, p *pipeline.Progress, now time.Time) status {
	healthy, reason := healthy(p, now, cfg.StallTimeout)
	s := status{
		Pipeline: cfg.Pipeline, Slot: cfg.Slot, Version: cfg.Version,
		State: p.State, Since: p.Since, Reason: reason, Healthy: healthy,
		Positions: map[string]string{"server": serverEnd(p).String()},
		LagBytes:  map[string]*int64{}, LagSeconds: map[string]*float64{},
		InFlightEvents: p.InFlightEvents, InFlightBytes: p.InFlightBytes,
		Events: p.Counters.Events, Transactions: p.Counters.Transactions, Restarts: p.Restarts,
		SlotHealth: slotHealth{
			WALStatus: p.Health.WALStatus, SafeWALSize: p.Health.SafeWALSize, ReadAt: p.Health.At,
		},
	}
	if p.Known(now) {
		retained := distance(p.Health.Restart, serverEnd(p))
		s.SlotHealth.RetainedBytes = &retained
	}
	if p.Health.Err != nil {
		s.SlotHealth.Error = p.Health.Err.Error()
	}
	for _, stage := range stages {
		s.Positions[stage.name] = stage.position(p).String()
		s.LagBytes[stage.name], s.LagSeconds[stage.name] = nil, nil
		if p.Known(now) {
			bytes, seconds := distance(stage.position(p), serverEnd(p)), stage.lag(p, now).Seconds()
			s.LagBytes[stage.name], s.LagSeconds[stage.name] = &bytes, &seconds
		}
	}
	return s
}

// stage of an event's way: how far it has come, and how long it lags.
type stage struct {
	name     string
	position func(*pipeline.Progress) pglogrepl.LSN
	lag      func(p *pipeline.Progress, now time.Time) time.Duration
}

var stages = []stage{
	{"received", func(p *pipeline.Progress) pglogrepl.LSN { return p.Received }, receivedLag},
	{"published", func(p *pipeline.Progress) pglogrepl.LSN { return p.Published }, publishedLag},
	{"confirmed", func(p *pipeline.Progress) pglogrepl.LSN { return p.Confirmed }, confirmedLag},
}

// receivedLag is for how long the server has had WAL that it has not sent.
func receivedLag(p *pipeline.Progress, now time.Time) time.Duration {
	if p.BehindSince.IsZero() {
		return 0
	}
	return max(0, now.Sub(p.BehindSince))
}

// publishedLag is the age of the oldest transaction that is not published.
func publishedLag(p *pipeline.Progress, now time.Time) time.Duration {
	lag := receivedLag(p, now)
	if p.OldestCommit.IsZero() {
		return lag
	}
	// The picture is up to a tick old; what it waited for has mostly come since.
	// Only when the loop is late does the wait go on.
	if late := now.Sub(p.At); late > time.Second {
		return max(lag, p.OldestAge+late)
	}
	return max(lag, p.OldestAge)
}

// confirmedLag adds the wait for a durable checkpoint.
func confirmedLag(p *pipeline.Progress, now time.Time) time.Duration {
	lag := publishedLag(p, now)
	if p.Confirmed < p.Published {
		lag = max(lag, now.Sub(p.Counters.ProgressAt))
	}
	return lag
}

// serverEnd is the farthest the server's WAL is known to reach: the stream may be
// newer than the last reading.
func serverEnd(p *pipeline.Progress) pglogrepl.LSN { return max(p.Health.WALEnd, p.Received) }

func distance(from, to pglogrepl.LSN) int64 {
	if from == 0 || to <= from {
		return 0
	}
	return int64(to - from)
}
