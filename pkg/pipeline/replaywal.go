package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/replication"
)

// fromWAL streams from a temporary copy of the rewind slot, which keeps its place.
func (a *again) fromWAL(ctx context.Context, r *run, record checkpoint.Record, m *againMapper) error {
	copied := fmt.Sprintf("%s_replay_%08x", r.cfg.Slot[:min(len(r.cfg.Slot), 40)], rand.Uint32())
	if err := r.conn.CopySlot(ctx, a.Rewind, copied); err != nil {
		return err
	}
	slot, err := replication.LookupSlot(ctx, r.session.Conn(), copied)
	if err != nil {
		return err
	}
	start := record.Edge()
	if slot.ConfirmedFlush > start.Covered {
		return fmt.Errorf("%w: the replay goes on from %s, and slot %q has moved on to %s; --restart begins anew from there, or from the table",
			ErrReplayUncovered, start.Covered, a.Rewind, slot.ConfirmedFlush)
	}
	if err := r.receive(ctx, copied); err != nil {
		return err
	}
	err = a.publish(ctx, r, asking{r.conn}, m, CoreConfig{
		Start: start, SlotConfirmed: slot.ConfirmedFlush, Source: asking{r.conn}, Pacer: NewPacer(askEvery, r.conn.WalSenderTimeout(), time.Now()),
		Limit: a.To, Passed: m.countPassed,
	}, r.cfg.Transactions)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return a.done(ctx, r)
}

// askEvery so often the server says how far it has sent.
const askEvery = time.Second

// done makes durable that nothing is left. The sink's claim has ended with it.
func (a *again) done(ctx context.Context, r *run) error {
	if a.reached.Done = true; a.DryRun {
		return nil
	}
	r.sink.Close()
	r.claimed = r.kafka.NewClaim(nil)
	if err := claimLanes(ctx, r); err != nil {
		return err
	}
	record, found, err := r.load(ctx)
	if err != nil || !found || record.Replay == nil || record.Replay.ID != a.reached.ID {
		a.reached.Done = false
		if err == nil {
			err = fmt.Errorf("%w: its checkpoint is gone", ErrReplayRuns)
		}
		return err
	}
	note := *record.Replay
	note.Done = true
	record.Replay = &note
	if err := r.claimed.Write(ctx, record); err != nil {
		a.reached.Done = false
		return err
	}
	a.reached = note
	return nil
}

// asking is a stream whose every status asks for an answer: on a quiet server the
// end is known by it alone.
type asking struct{ *replication.Conn }

func (s asking) SendStatus(received, confirmed pglogrepl.LSN, _ bool) error {
	return s.Conn.SendStatus(received, confirmed, true)
}
