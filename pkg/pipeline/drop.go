package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// ErrInUse: an instance is at work, or waits to be. It would make anew what is
// dropped.
var ErrInUse = errors.New("the pipeline is in use")

// Estate is what a pipeline has on both sides.
type Estate struct {
	Slot        replication.SlotInfo
	Rewind      string // the slot that trails it; empty: there is none of ours
	Publication replication.Ownership
	Instances   []replication.Instance
	Record      *checkpoint.Record // nil: none
	Pause       sink.Pause
	Topics      []string // of walstream's own, that go
	Letters     string   // topic of dead letters, which stays; empty: there is none
	InRecovery  bool     // of the server: the publication is its primary's

	Known bool // all of it was read

	r *run
}

// Survey lists the estate and changes nothing. What speaks against dropping it is
// the error; the estate is there all the same when it could be read.
func Survey(ctx context.Context, cfg Config) (e *Estate, err error) {
	e = &Estate{r: &run{Supervisor: NewSupervisor(cfg)}}
	if e.r.mapping, err = outbox.NewMapping(cfg.Mapping); err != nil {
		return e, err
	}
	if err := e.r.openKafka(); err != nil {
		return e, err
	}
	if e.r.session, err = replication.OpenSession(ctx, cfg.Postgres); err != nil {
		return e, err
	}
	standing, err := replication.ReadStanding(ctx, e.r.session.Conn(), cfg.Slot, cfg.Pipeline)
	if err != nil {
		return e, err
	}
	e.Slot, e.Instances, e.InRecovery = standing.Slot, standing.Instances, standing.InRecovery
	if standing.Rewind.Slot.Exists && standing.Rewind.Ours(standing.Database) {
		e.Rewind = standing.Rewind.Slot.Name
	}
	if e.Publication, err = replication.OwnPublication(ctx, e.r.session.Conn(), e.r.publication()); err != nil {
		return e, err
	}
	record, found, err := e.r.kafka.Load(ctx)
	_, unreadable := errors.AsType[*sink.CheckpointError](err)
	if err != nil && !unreadable {
		return e, err
	}
	e.Record = pointer(record, found)
	if e.Pause, err = e.r.kafka.ReadPause(ctx); err != nil {
		return e, err
	}
	if e.Topics, e.Letters, err = e.r.kafka.OwnTopics(ctx); err != nil {
		return e, err
	}
	e.Known = true
	return e, e.refusal(standing)
}

func (e *Estate) refusal(s replication.Standing) error {
	cfg := &e.r.cfg
	switch {
	case e.Slot.Active:
		return fmt.Errorf("%w: slot %q is held by %s; stop it first", ErrInUse, cfg.Slot, e.Slot.Holder())
	case len(e.Instances) > 0:
		var at []string
		for _, i := range e.Instances {
			at = append(at, fmt.Sprintf("PID %d at %s", i.PID, i.Addr))
		}
		return fmt.Errorf("%w: an instance waits for the slot and would make all of it anew (%s); stop it first", ErrInUse, strings.Join(at, ", "))
	case e.Pause.InForce(time.Now()): // such an instance has no session to be seen by
		return fmt.Errorf("%w: %s, and an instance that is paused is not seen on the server; with the pause dropped it would make all of it anew; stop the instances, then walstream resume %s, then drop",
			ErrPaused, e.Pause, cfg.Named())
	case e.Slot.Exists && (e.Slot.Type != "logical" || e.Slot.Plugin != "pgoutput" || e.Slot.Database != s.Database):
		return fmt.Errorf("slot %q is not this pipeline's: %w", cfg.Slot, e.Slot.Refusal(s.Database))
	case e.Record != nil && (e.Record.Slot != cfg.Slot || e.Record.Database != s.Database):
		return &checkpoint.Refusal{
			Kind:   checkpoint.RefuseOtherPipeline,
			Found:  fmt.Sprintf("the checkpoint of pipeline %q is of slot %q in database %q, not of slot %q in database %q", cfg.Pipeline, e.Record.Slot, e.Record.Database, cfg.Slot, s.Database),
			Remedy: "give the --pipeline, --slot and --postgres that belong together",
		}
	}
	return nil
}

// Empty reports that nothing of the pipeline is there.
func (e *Estate) Empty() bool {
	return !e.Slot.Exists && e.Rewind == "" && !e.Publication.Ours && e.Record == nil && len(e.Topics) == 0
}

// Close gives the connections back.
func (e *Estate) Close() { e.r.close() }

// Drop removes the estate. The slot goes first: it is the lock, and the server
// refuses when somebody took it meanwhile. What comes behind it can be cut short
// anywhere: without a slot, or without a checkpoint, no start goes on, and another
// Drop finishes. done is told of each thing, and why one stays.
func (e *Estate) Drop(ctx context.Context, done func(what string)) error {
	conn, cfg := e.r.session.Conn(), &e.r.cfg
	if e.Slot.Exists {
		if err := replication.DropSlot(ctx, conn, cfg.Slot); err != nil {
			return err
		}
		done("slot " + cfg.Slot)
	}
	if e.Rewind != "" {
		if err := replication.DropSlot(ctx, conn, e.Rewind); err != nil {
			return err
		}
		done("slot " + e.Rewind)
	}
	if len(e.Topics) > 0 {
		if err := e.dropTopics(ctx, done); err != nil {
			return err
		}
	}
	switch {
	case !e.Publication.Ours:
	case e.InRecovery:
		done("not publication " + cfg.Publication + ", which only the primary can drop")
	default:
		if err := replication.DropPublication(ctx, conn, cfg.Publication); err != nil {
			return err
		}
		done("publication " + cfg.Publication)
	}
	return nil
}

// dropTopics writes the tombstone before it deletes: it is all that a role without
// the right to delete topics can do, and enough.
func (e *Estate) dropTopics(ctx context.Context, done func(what string)) error {
	if e.Topics[0] == e.r.kafka.CheckpointTopic() {
		claim, err := e.r.kafka.Owned(ctx)
		if err != nil {
			return err
		}
		defer claim.Close()
		if err := claim.Forget(ctx); err != nil {
			return err
		}
		done("checkpoint of " + e.r.cfg.Pipeline)
	}
	for _, topic := range e.Topics {
		err := e.r.kafka.DeleteTopic(ctx, topic)
		_, access := errors.AsType[*sink.AccessError](err)
		_, setup := errors.AsType[*sink.SetupError](err)
		switch {
		case access, setup:
			done(fmt.Sprintf("not topic %s, which may stay: %s", topic, err))
		case err != nil:
			return err
		default:
			done("topic " + topic)
		}
	}
	return nil
}
