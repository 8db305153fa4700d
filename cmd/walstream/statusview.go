package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// statusView is a status as JSON; docs/commands.md says what each field means. What
// is unknown is null, never 0.
type statusView struct {
	Pipeline   string            `json:"pipeline"`
	SlotName   string            `json:"slot_name"`
	At         time.Time         `json:"at"`
	State      pipeline.Activity `json:"state"`
	Holder     *holderView       `json:"holder"`
	Instances  *[]instanceView   `json:"instances"`
	Pause      *pauseView        `json:"pause"`
	Server     *serverView       `json:"server"`
	Slot       *slotView         `json:"slot"`
	Rewind     *rewindView       `json:"rewind"`
	Checkpoint *checkpointView   `json:"checkpoint"`
	LagBytes   *int64            `json:"lag_bytes"`
	LagSeconds *float64          `json:"lag_seconds_at_most"`
	Problems   []string          `json:"problems"`
	ExitCode   int               `json:"exit_code"`

	kafkaUnread bool
	hanging     error
	unread      error // of PostgreSQL or Kafka, with its exit code
	problems    []*checkpoint.Refusal
	findings    []replication.Finding
}

type holderView struct {
	PID             int32      `json:"pid"`
	Address         string     `json:"address,omitempty"`
	ApplicationName string     `json:"application_name,omitempty"`
	Since           *time.Time `json:"since"`

	text string
}

type instanceView struct {
	PID     int32     `json:"pid"`
	Address string    `json:"address,omitempty"`
	Since   time.Time `json:"since"`
}

type pauseView struct {
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until"`
	By     string     `json:"by"`
	Reason string     `json:"reason,omitempty"`

	text string
}

type serverView struct {
	Version    int    `json:"version"`
	SystemID   string `json:"system_identifier"`
	Timeline   uint32 `json:"timeline"`
	InRecovery bool   `json:"in_recovery"`
	WALEnd     string `json:"wal_end,omitempty"`
}

type slotView struct {
	Exists        bool       `json:"exists"`
	Confirmed     string     `json:"confirmed,omitempty"`
	Restart       string     `json:"restart,omitempty"`
	WALStatus     string     `json:"wal_status,omitempty"`
	Failover      bool       `json:"failover"`
	Synced        bool       `json:"synced"`
	RetainedBytes *int64     `json:"retained_bytes"`
	SafeWALBytes  *int64     `json:"safe_wal_bytes"`
	InactiveSince *time.Time `json:"inactive_since"`
}

// rewindView is the slot that trails the other one; null without one.
type rewindView struct {
	Slot           string `json:"slot"`
	From           string `json:"from"` // the stream can be read again from there
	RetainedBytes  *int64 `json:"retained_bytes"`
	SafeWALBytes   *int64 `json:"safe_wal_bytes"`
	WALStatus      string `json:"wal_status"`
	CatalogXminAge int64  `json:"catalog_xmin_age"`
}

type checkpointView struct {
	Covered    string     `json:"covered"`
	CommitLSN  string     `json:"commit_lsn,omitempty"`
	CommitTime *time.Time `json:"commit_time"`
	Phase      string     `json:"phase"`
	Delivery   string     `json:"delivery"`
	Timeline   uint32     `json:"timeline"`
	Version    string     `json:"walstream_version"`
}

func newStatusView(cfg pipeline.Config, s *pipeline.Standing, seen *lagSamples) *statusView {
	v := &statusView{
		Pipeline: cfg.Pipeline, SlotName: cfg.Slot, At: s.At, State: s.Activity(cfg.Pipeline), Problems: []string{},
		kafkaUnread: s.KafkaErr != nil, problems: s.Problems(cfg), findings: s.Findings,
	}
	v.unread = errors.Join(unreadError("PostgreSQL", s.PostgresErr), unreadError("Kafka", s.KafkaErr))
	if v.unread != nil {
		v.unread = withCode(unreadCode(s.PostgresErr, s.KafkaErr), v.unread)
		for _, err := range []error{unreadError("PostgreSQL", s.PostgresErr), unreadError("Kafka", s.KafkaErr)} {
			if err != nil {
				v.Problems = append(v.Problems, err.Error())
			}
		}
	}
	for _, problem := range v.problems {
		v.Problems = append(v.Problems, problem.Error())
	}
	for _, f := range s.Findings {
		v.Problems = append(v.Problems, fmt.Sprintf("%s: %s -> %s", f.Name, f.Detail, f.Remedy))
	}
	if s.Postgres != nil {
		v.ofServer(s.Postgres, s.Flushed)
	}
	if s.Pause.InForce(s.At) {
		v.Pause = &pauseView{Since: s.Pause.At, Until: timeOrNil(s.Pause.Until), By: s.Pause.By, Reason: s.Pause.Reason, text: s.Pause.String()}
	}
	if r := s.Record; r != nil {
		v.Checkpoint = &checkpointView{
			Covered: r.Covered.String(), CommitLSN: lsnOrNone(r.CommitLSN), CommitTime: timeOrNil(r.CommitTime), Phase: string(r.Phase),
			Delivery: r.Delivery, Timeline: r.Timeline, Version: r.Version,
		}
		if r.Phase == checkpoint.PhaseStream && s.Flushed != 0 && len(v.problems) == 0 {
			v.LagBytes = between(r.Covered, s.Flushed)
			v.LagSeconds = seen.bound(s.At, s.Flushed, r.Covered, r.CommitTime)
		}
	}
	if s.Hanging != nil {
		v.Problems, v.hanging = append(v.Problems, s.Hanging.Error()), s.Hanging
	}
	v.ExitCode = exitCode(v.verdict())
	return v
}

func (v *statusView) ofServer(p *replication.Standing, end pglogrepl.LSN) {
	v.Server = &serverView{Version: p.Version / 10000, SystemID: p.SystemID, Timeline: p.Timeline, InRecovery: p.InRecovery, WALEnd: lsnOrNone(end)}
	list := []instanceView{}
	for _, i := range p.Instances {
		list = append(list, instanceView{PID: i.PID, Address: i.Addr, Since: i.Since})
	}
	v.Instances = &list
	if r := &p.Rewind; r.Slot.Exists {
		v.Rewind = &rewindView{
			Slot: r.Slot.Name, From: r.Slot.ConfirmedFlush.String(), WALStatus: r.Slot.WALStatus,
			RetainedBytes: between(r.Slot.Restart, r.WALEnd), SafeWALBytes: r.Slot.SafeWALSize, CatalogXminAge: r.CatalogXminAge,
		}
	}
	slot := p.Slot
	v.Slot = &slotView{Exists: slot.Exists}
	if !slot.Exists {
		return
	}
	v.Slot.Confirmed, v.Slot.Restart, v.Slot.WALStatus = lsnOrNone(slot.ConfirmedFlush), lsnOrNone(slot.Restart), slot.WALStatus
	v.Slot.Failover, v.Slot.Synced = slot.Failover, slot.Synced
	v.Slot.SafeWALBytes, v.Slot.InactiveSince = slot.SafeWALSize, timeOrNil(slot.InactiveSince)
	if slot.Restart != 0 && end != 0 {
		v.Slot.RetainedBytes = between(slot.Restart, end)
	}
	if slot.Active {
		v.Holder = &holderView{
			PID: slot.ActivePID, Address: slot.ClientAddr, ApplicationName: slot.ApplicationName, Since: timeOrNil(slot.ActiveSince), text: slot.Holder(),
		}
	}
}

func unreadError(side string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %w: %w", side, errUnread, err)
}

// unreadCode: a missing right has a code of its own.
func unreadCode(errs ...error) int {
	for _, err := range errs {
		_, kafka := errors.AsType[*sink.AccessError](err)
		if kafka || errors.Is(err, replication.ErrMissingRight) || errors.Is(err, replication.ErrAuthentication) {
			return exitRights
		}
	}
	return exitPreflight
}

func between(from, to pglogrepl.LSN) *int64 {
	var n int64
	if to > from {
		n = int64(to - from)
	}
	return &n
}

func lsnOrNone(lsn pglogrepl.LSN) string {
	if lsn == 0 {
		return ""
	}
	return lsn.String()
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
