package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Standing is how a pipeline stands, read from the servers themselves: from any
// machine, and with no instance running. What could not be read is named in an
// error, and is not there.
type Standing struct {
	At       time.Time // by the server's clock where it answered, else by ours
	Postgres *replication.Standing
	Flushed  pglogrepl.LSN // the end of the server's WAL; 0: unknown
	// PostgresErr and KafkaErr are why one side could not be read.
	PostgresErr, KafkaErr error
	Record                *checkpoint.Record // nil: none, or unknown
	Pause                 sink.Pause
	// Hanging is a transaction of the pipeline's that Kafka keeps open; nil: none is
	// seen.
	Hanging *sink.SetupError
	// Findings are what preflight fails on in the publication, its tables and
	// synchronous_standby_names.
	Findings []replication.Finding
}

// ReadStanding reads both sides and disturbs nobody: no slot is taken, no lane
// claimed, nothing made. The slot is read before the checkpoint, which is never
// behind it, and the end of the WAL behind both.
func ReadStanding(ctx context.Context, cfg Config) *Standing {
	s := &Standing{At: time.Now()}
	session, err := replication.OpenSession(ctx, cfg.Postgres)
	if err == nil {
		defer session.Close()
		var read replication.Standing
		if read, err = replication.ReadStanding(ctx, session.Conn(), cfg.Slot, cfg.Pipeline); err == nil {
			s.Postgres = &read
			s.Findings = objections(ctx, cfg, session)
		}
	}
	s.PostgresErr = err
	s.KafkaErr = s.readKafka(ctx, cfg)
	if err == nil {
		var at time.Time
		if s.Flushed, at, s.PostgresErr = replication.WALEnd(ctx, session.Conn()); s.PostgresErr == nil {
			s.At = at
		}
	}
	return s
}

// objections to what is there: a first start makes the publication, and what the
// slot has to say is Problems'.
func objections(ctx context.Context, cfg Config, session *replication.Session) (found []replication.Finding) {
	r := &run{Supervisor: NewSupervisor(cfg), session: session}
	var err error
	if r.mapping, err = outbox.NewMapping(cfg.Mapping); err != nil {
		return nil // the command's settings, not what they find
	}
	r.cfg.Postgres.ApplicationName = cfg.Pipeline // an instance's, not the command's
	findings, err := r.findings(ctx)
	if err != nil {
		return nil // the reading of the server says so
	}
	for _, f := range findings {
		about, _, _ := strings.Cut(f.Name, " ")
		if f.Status == replication.StatusFail && (about == "publication" || about == "table" || about == "synchronous_standby_names") {
			found = append(found, f)
		}
	}
	return found
}

func (s *Standing) readKafka(ctx context.Context, cfg Config) error {
	kafka, err := sink.Open(cfg.Kafka)
	if err != nil {
		return err
	}
	defer kafka.Close()
	record, found, err := kafka.Load(ctx)
	if err != nil {
		return err
	}
	s.Record = pointer(record, found)
	_, s.Hanging = hanging(ctx, cfg, kafka)
	s.Pause, err = kafka.ReadPause(ctx)
	return err
}

// Activity of a pipeline, as the servers show it.
type Activity string

// Unknown is said where PostgreSQL does not answer; Foreign when a session that is
// none of this pipeline's holds the slot; Idle when nobody does.
const (
	Active          Activity = "active"
	ActivityPaused  Activity = "paused"
	Foreign         Activity = "held by another program"
	Idle            Activity = "idle"
	NotSetUp        Activity = "not set up"
	ActivityUnknown Activity = "unknown"
)

// Activity says who works. A pause that was just written does not take hold before
// the slot is free.
func (s *Standing) Activity(pipeline string) Activity {
	switch p := s.Postgres; {
	case p == nil:
		return ActivityUnknown
	case p.Slot.Active && p.Slot.ApplicationName != "" && p.Slot.ApplicationName != pipeline[:min(len(pipeline), maxApplicationName)]:
		return Foreign
	case p.Slot.Active:
		return Active
	case s.Pause.InForce(s.At):
		return ActivityPaused
	case !p.Slot.Exists && s.Record == nil && s.KafkaErr == nil:
		return NotSetUp
	}
	return Idle
}

// maxApplicationName: PostgreSQL cuts longer ones.
const maxApplicationName = 63

// Problems are what a start would refuse, as far as can be told without a
// replication connection; walstream check has the whole of it.
func (s *Standing) Problems(cfg Config) (problems []*checkpoint.Refusal) {
	if s.Postgres == nil || s.KafkaErr != nil || s.PostgresErr != nil {
		return nil
	}
	refuse := func(kind checkpoint.RefusalKind, remedy, found string, args ...any) {
		problems = append(problems, &checkpoint.Refusal{Kind: kind, Found: fmt.Sprintf(found, args...), Remedy: remedy})
	}
	const check = "walstream check names the ways out"
	slot, record := s.Postgres.Slot, s.Record
	switch {
	case record == nil && slot.Exists:
		refuse(checkpoint.RefuseNoCheckpoint, check, "slot %q exists, but Kafka holds no checkpoint of pipeline %q", cfg.Slot, cfg.Pipeline)
	case record == nil:
	case record.Slot != cfg.Slot || record.Database != s.Postgres.Database:
		refuse(checkpoint.RefuseOtherPipeline, "name another --pipeline", "the checkpoint is of slot %q in database %q, not of slot %q in database %q",
			record.Slot, record.Database, cfg.Slot, s.Postgres.Database)
	case record.SystemID != s.Postgres.SystemID:
		refuse(checkpoint.RefuseOtherServer, check, "the checkpoint was written for server %s, this one is %s", record.SystemID, s.Postgres.SystemID)
	case record.Phase == checkpoint.PhaseSetup:
	case !slot.Exists:
		refuse(checkpoint.RefuseNoSlot, check, "the checkpoint stands at %s, but slot %q does not exist", record.Covered, cfg.Slot)
	case slot.WALStatus == "lost" || slot.InvalidationReason != "":
		refuse(checkpoint.RefuseSlotLost, check, "slot %q is invalidated (wal_status %s %s)", cfg.Slot, slot.WALStatus, slot.InvalidationReason)
	case slot.ConfirmedFlush > record.Covered:
		refuse(checkpoint.RefuseGap, check, "slot %q is at %s, ahead of the checkpoint at %s", cfg.Slot, slot.ConfirmedFlush, record.Covered)
	case s.Flushed != 0 && record.Covered > s.Flushed:
		refuse(checkpoint.RefuseRestored, check, "the checkpoint stands at %s, but the server's WAL ends at %s", record.Covered, s.Flushed)
	}
	return problems
}
