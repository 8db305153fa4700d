package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/replication"
)

// preflight checks what must hold before streaming, and settles what depends on
// the table: which columns are there, and the stream's format.
func (r *run) preflight(ctx context.Context) error {
	findings, err := r.findings(ctx)
	// A lost slot is for Compare to refuse, which knows how large the gap is.
	findings = slices.DeleteFunc(findings, func(f replication.Finding) bool { return errors.Is(f.Err, replication.ErrSlotLost) })
	if err == nil {
		err = replication.Refused(findings)
	}
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Status == replication.StatusWarn && !r.beside {
			r.warnOnce(f)
		}
	}
	r.binary = r.mapping.BinaryOK()
	return nil
}

// findings are preflight's, and the mapping's own.
func (r *run) findings(ctx context.Context) ([]replication.Finding, error) {
	conn := r.session.Conn()
	layouts, err := replication.Layouts(ctx, conn, r.cfg.Publication, r.publication().Tables)
	if err != nil {
		return nil, err
	}
	mappingErr := r.mapping.Resolve(layouts...)
	findings := replication.Preflight(ctx, conn, replication.Spec{
		Slot: r.cfg.Slot, Publication: r.publication(), ApplicationName: r.cfg.Postgres.ApplicationName,
		Failover: r.cfg.SlotFailover, FromStandby: r.cfg.Postgres.FromStandby,
		Rewind: r.cfg.Rewind.Window, RewindMax: r.cfg.Rewind.MaxBytes,
	})
	// A table that is missing has been named, with its remedy, already.
	if mappingErr != nil && replication.Refused(findings) == nil {
		findings = append(findings, failed("mapping", mappingErr))
	}
	return findings, nil
}

// warnOnce says a thing worth knowing once in the life of the process.
func (s *Supervisor) warnOnce(f replication.Finding) {
	if line := f.Name + f.Detail; !s.warned[line] {
		s.warned[line] = true
		event := s.log.Warn()
		if f.Remedy != "" {
			event = event.Str("remedy", f.Remedy)
		}
		event.Msg(f.Name + ": " + f.Detail)
	}
}

// publication is the one walstream wants.
func (r *run) publication() replication.PublicationSpec {
	spec := replication.PublicationSpec{Name: r.cfg.Publication}
	for _, need := range r.mapping.Tables() {
		spec.Tables = append(spec.Tables, replication.PublishedTable(need))
	}
	return spec
}

// slot reads the slot as Compare wants it. One that is not ours to stream from is
// an error.
func (r *run) slot(ctx context.Context) (checkpoint.Slot, error) {
	info, err := replication.LookupSlot(ctx, r.session.Conn(), r.cfg.Slot)
	if err != nil || !info.Exists {
		return checkpoint.Slot{}, err
	}
	slot := checkpoint.Slot{Exists: true, Confirmed: info.ConfirmedFlush, Inactive: info.InactiveSince}
	err = info.Refusal(r.identity.Database)
	if errors.Is(err, replication.ErrSlotLost) {
		slot.Invalidated = "wal_status " + info.WALStatus // Compare knows how large the gap is
		if info.InvalidationReason != "" {
			slot.Invalidated += ", " + info.InvalidationReason + whyInvalid[info.InvalidationReason]
		}
		return slot, nil
	}
	return slot, err
}

// whyInvalid is what a standby server loses its slots by.
var whyInvalid = map[string]string{
	"rows_removed":           ": the primary's vacuum removed what it needs, as hot_standby_feedback or primary_slot_name of this standby server let it",
	"wal_level_insufficient": ": wal_level of the primary was lowered",
	"conflicting":            ": the primary removed what it needs, as hot_standby_feedback or primary_slot_name of this standby server let it, or its wal_level was lowered",
}

// server is the server as Compare wants it, seen from the record's timeline.
func (r *run) server(record checkpoint.Record) checkpoint.Server {
	s := checkpoint.Server{
		SystemID: r.identity.SystemID, Timeline: r.identity.Timeline,
		Database: r.identity.Database, Flushed: r.identity.Flushed, Now: r.identity.Now, Rows: r.rows,
	}
	if record.Timeline != s.Timeline {
		left, known := r.identity.Left[record.Timeline]
		s.SwitchPoint, s.SwitchUnknown = left, !known
	}
	return s
}

func (r *run) compareWith(record checkpoint.Record, found bool, slot checkpoint.Slot) (checkpoint.Decision, error) {
	accept := r.cfg.Accept
	accept.Recover = r.cfg.Recover != nil
	decision, err := checkpoint.Compare(pointer(record, found), slot, r.server(record), r.cfg.Slot, accept)
	if err != nil {
		return decision, fmt.Errorf("pipeline %q: %w", r.cfg.Pipeline, r.refused(err))
	}
	return decision, nil
}

// refused adds to a refusal what its kind means here: an old primary is passed over
// where others are in the address, and a standby server that has just started is
// waited for.
func (r *run) refused(err error) error {
	refusal, ok := errors.AsType[*checkpoint.Refusal](err)
	switch {
	case !ok:
		return err
	case r.identity.InRecovery && (refusal.Kind == checkpoint.RefuseOldPrimary || refusal.Kind == checkpoint.RefuseRestored):
		return fmt.Errorf("%w: %s", replication.ErrBehind, refusal.Found)
	case refusal.Kind == checkpoint.RefuseOldPrimary:
		return fmt.Errorf("%w: %w", replication.ErrOldPrimary, err)
	}
	return err
}

func pointer(record checkpoint.Record, found bool) *checkpoint.Record {
	if !found {
		return nil
	}
	return &record
}

// standBy waits until the slot is free, with the ordinary session only: neither
// a walsender nor Kafka is kept busy. It returns the reason it waited for, and
// the order of a start begins anew.
func (r *run) standBy(ctx context.Context, busy error) error {
	r.conn.Close()
	r.kafka.Close()
	r.conn, r.kafka = nil, nil
	for {
		info, err := replication.LookupSlot(ctx, r.session.Conn(), r.cfg.Slot)
		if err != nil {
			return err
		}
		if !info.Active {
			return busy
		}
		held := fmt.Sprintf("slot %q is held by %s", r.cfg.Slot, info.Holder())
		foreign := info.HeldBySomebodyElse(r.cfg.Postgres.ApplicationName)
		if foreign {
			held += fmt.Sprintf(", which is no instance of this pipeline, %s. If it is walstream under a newer --pipeline, this instance was left behind and takes over from nobody: "+
				"start it with --pipeline=%s, or stop it. Where it is not to have the slot, SELECT pg_terminate_backend(%d); frees it", r.cfg.Pipeline, info.ApplicationName, info.ActivePID)
		}
		if p := r.Progress(); p.State != Standby || p.Reason != held {
			event, says := r.log.Info(), "standing by: will take over when the slot is free"
			if foreign {
				event, says = r.log.Warn(), "standing by, but not for an instance of this pipeline"
			}
			event.Str("holder", held).Msg(says)
			r.trouble.Well(time.Now()) // what comes next is the other instance's
		}
		r.board.state(Standby, held)
		r.board.update(func(p *Progress) { p.ForeignHolder = foreign })
		if err := r.session.Listen(ctx, jitter(maxStandby)); err != nil {
			return err
		}
	}
}

// record is a checkpoint of this run, but for where it stands.
func (r *run) record() checkpoint.Record {
	return checkpoint.Record{
		Pipeline: r.cfg.Pipeline, SystemID: r.identity.SystemID, Timeline: r.identity.Timeline, InRecovery: r.identity.InRecovery, Database: r.identity.Database,
		Slot: r.cfg.Slot, Publication: r.cfg.Publication, Delivery: string(r.cfg.Delivery), OptionsHash: r.rows, Version: r.cfg.Version,
	}
}
