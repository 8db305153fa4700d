package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/walstream/walstream/pkg/replication"
)

// fromWAL reads what the rewind slot still has, deleted rows too.
func (o *opener) fromWAL(ctx context.Context) error {
	q, name := &o.cfg.Request, replication.RewindSlot(o.cfg.Pipeline.Slot)
	slot, err := replication.LookupSlot(ctx, o.session.Conn(), name)
	if err != nil {
		return err
	}
	var database string
	if err := o.session.Conn().QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return fmt.Errorf("ask for the database's name: %w", replication.Classify(err))
	}
	const remedy = "take --source table, or name rows by --from-time or --from-id"
	switch {
	case !slot.Exists:
		return &SetupError{fmt.Sprintf("there is no slot %q that keeps the WAL of before", name), "with --rewind-window the pipeline keeps one, for what is committed from then on; " + remedy}
	case slot.Refusal(database) != nil:
		if refused, ok := errors.AsType[*replication.SlotError](slot.Refusal(database)); ok {
			return &SetupError{fmt.Sprintf("slot %q cannot be read: %s", name, refused.Reason), remedy}
		}
	case slot.ConfirmedFlush > *q.FromLSN:
		return &SetupError{
			fmt.Sprintf("the WAL of --from-lsn %s is passed: slot %q stands at %s", *q.FromLSN, name, slot.ConfirmedFlush),
			fmt.Sprintf("the earliest LSN that the WAL can be replayed from is %s; or %s", slot.ConfirmedFlush, remedy),
		}
	}
	to := o.end - 1
	if q.ToLSN != nil && *q.ToLSN > to {
		o.plan.Notes = append(o.plan.Notes, fmt.Sprintf("--to-lsn %s lies beyond the end of the server's WAL: up to %s", *q.ToLSN, to))
	} else if q.ToLSN != nil {
		to = *q.ToLSN
	}
	o.plan.replay.Rewind, o.plan.replay.From, o.plan.replay.To = name, *q.FromLSN, to
	note := &o.plan.replay.Note
	note.Source, note.From, note.To = string(WAL), q.FromLSN.String(), to.String()
	note.Covers = fmt.Sprintf("transactions with commit LSNs from %s to %s, by a copy of slot %q", *q.FromLSN, to, name)
	o.plan.Note = *note
	return nil
}
