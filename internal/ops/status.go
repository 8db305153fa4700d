package ops

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	dto "github.com/prometheus/client_model/go"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/sink"
)

// status is the answer of /status; docs/status.md says what each field means.
// Lag is null when it cannot be told.
type status struct {
	Pipeline string         `json:"pipeline"`
	Slot     string         `json:"slot"`
	Delivery string         `json:"delivery,omitempty"`
	Version  string         `json:"version"`
	Now      time.Time      `json:"now"`
	State    pipeline.State `json:"state"`
	Since    time.Time      `json:"since"`
	Healthy  bool           `json:"healthy"`
	Reason   string         `json:"reason,omitempty"`
	Remedy   string         `json:"remedy,omitempty"`

	StalledSeconds float64   `json:"stalled_seconds"`
	ProgressAt     time.Time `json:"progress_at,omitzero"`

	Positions  map[string]string   `json:"positions"`
	LagBytes   map[string]*int64   `json:"lag_bytes"`
	LagSeconds map[string]*float64 `json:"lag_seconds"`

	InFlightEvents   int               `json:"in_flight_events"`
	InFlightBytes    int               `json:"in_flight_bytes"`
	MaxInFlightBytes int               `json:"max_in_flight_bytes"`
	Events           uint64            `json:"events"`
	EventBytes       uint64            `json:"event_bytes"`
	Transactions     uint64            `json:"transactions"`
	Commits          uint64            `json:"kafka_commits"`
	Splits           uint64            `json:"split_transactions"`
	Buckets          uint64            `json:"history_buckets"`
	CommitToAck      samples           `json:"commit_to_ack"`
	Restarts         map[string]uint64 `json:"restarts"`
	Poisoned         sink.Poisoned     `json:"poisoned_rows"`
	BadRows          []badRow          `json:"bad_rows"`
	SlotHealth       slotHealth        `json:"slot_health"`
	Errors           []incident        `json:"errors"`
	Snapshot         *snapshot         `json:"snapshot,omitempty"`
	Rewind           *rewind           `json:"rewind,omitempty"`
	Retention        *retention        `json:"retention,omitempty"`
}

// snapshot under way.
type snapshot struct {
	Rows             uint64    `json:"rows"`
	Estimate         *int64    `json:"rows_estimated"`
	RowsPerSecond    float64   `json:"rows_per_second"`
	RemainingSeconds *float64  `json:"remaining_seconds"`
	LeftToStream     int       `json:"rows_left_to_stream"`
	Since            time.Time `json:"since"`
}

func newSnapshot(p *pipeline.SnapshotProgress, now time.Time) *snapshot {
	if p == nil {
		return nil
	}
	s := &snapshot{Rows: p.Rows, RowsPerSecond: p.Rate(now), LeftToStream: p.Keys, Since: p.Since}
	if p.Estimate >= 0 {
		s.Estimate = &p.Estimate
	}
	if left, ok := p.Remaining(now); ok {
		seconds := left.Seconds()
		s.RemainingSeconds = &seconds
	}
	return s
}

// badRow is one of the newest that did not become records.
type badRow struct {
	sink.BadRow
	Position string `json:"position"`
}

// samples of a duration since the process began: the mean of any stretch of time
// is the difference of two readings.
type samples struct {
	Count   uint64  `json:"count"`
	Seconds float64 `json:"seconds"`
}

func (m *Metrics) commitToAck() samples {
	var read dto.Metric
	if err := m.latency.Write(&read); err != nil {
		panic(fmt.Sprintf("walstream: bug: read a histogram: %v", err))
	}
	return samples{read.GetHistogram().GetSampleCount(), read.GetHistogram().GetSampleSum()}
}

func newStatus(cfg Config, p *pipeline.Progress, now time.Time) status {
	healthy, reason := healthy(&cfg, p, now)
	s := status{
		Pipeline: cfg.Pipeline, Slot: cfg.Slot, Delivery: cfg.Delivery, Version: cfg.Version, Now: now,
		State: p.State, Since: p.Since, Reason: reason, Healthy: healthy,
		StalledSeconds: p.Stalled(now).Seconds(), ProgressAt: p.Counters.ProgressAt,
		Positions: map[string]string{"server": serverEnd(p).String()},
		LagBytes:  map[string]*int64{}, LagSeconds: map[string]*float64{},
		InFlightEvents: p.InFlightEvents, InFlightBytes: p.InFlightBytes, MaxInFlightBytes: cfg.MaxInFlightBytes,
		Events: p.Counters.Events, EventBytes: p.Counters.EventBytes, Transactions: p.Counters.Transactions,
		Commits: p.Counters.Commits, Splits: p.Counters.Splits, Buckets: p.Counters.Buckets, Restarts: p.Restarts,
		Snapshot: newSnapshot(p.Snapshot, now), Rewind: newRewind(p, now), Retention: newRetention(&cfg),
	}
	if s.Poisoned = p.Poisoned; s.Poisoned == nil {
		s.Poisoned = sink.Poisoned{}
	}
	s.BadRows = []badRow{}
	for _, row := range slices.Backward(p.BadRows) {
		s.BadRows = append(s.BadRows, badRow{row, row.Position.String()})
	}
	if reason != "" || p.State != pipeline.Streaming {
		_, s.Remedy = cause(p)
	}
	s.SlotHealth = newSlotHealth(&cfg, p, now)
	if b := s.SlotHealth.Budget; b != nil && reason == b.text() {
		s.Remedy = b.Remedy // nothing stalls: the cause of a stall is not the budget's
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

// redact every text that an error may have written.
func (s *status) redact(redact func(string) string) {
	s.Reason, s.SlotHealth.Error = redact(s.Reason), redact(s.SlotHealth.Error)
	if b := s.SlotHealth.Budget; b != nil {
		b.PinnedBy = redact(b.PinnedBy)
	}
	if s.Rewind != nil {
		s.Rewind.Reason = redact(s.Rewind.Reason)
	}
	if s.Retention != nil {
		s.Retention.Error = redact(s.Retention.Error)
	}
	for i := range s.BadRows {
		s.BadRows[i].Reason = redact(s.BadRows[i].Reason)
	}
	for i := range s.Errors {
		s.Errors[i].Message = redact(s.Errors[i].Message)
	}
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
