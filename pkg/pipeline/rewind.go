package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/replication"
)

// RewindProgress is the trailing slot as it was seen last.
type RewindProgress struct {
	Slot    string
	At      time.Time // by our clock
	Kept    bool      // it is there
	GivenUp string    // why it is no longer; it is made again by the next process
	Err     string    // why it could not be made, read or moved

	From           string // LSN from which the stream can be read again
	Since          time.Time
	RetainedBytes  int64
	CatalogXminAge int64
	Moves          uint64
	MovesLasted    time.Duration // what the server worked on them
}

// rewindLook is how often the slot is looked at.
const rewindLook = 10 * time.Second

// rewindSession is not named as an instance of the pipeline: those are counted.
func (s *Supervisor) rewindSession(ctx context.Context) (*replication.Session, error) {
	options := s.cfg.Postgres
	options.ApplicationName = "walstream-rewind"
	opening, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	return replication.OpenSession(opening, options)
}

// dropRewind ends what an earlier setting has left behind. The session is the run's:
// nobody else uses it yet.
func (r *run) dropRewind(ctx context.Context) {
	if r.cfg.Rewind.Window > 0 {
		return
	}
	slot, err := replication.LookupSlot(ctx, r.session.Conn(), replication.RewindSlot(r.cfg.Slot))
	if err == nil && (!slot.Exists || !replication.IsRewind(&slot, r.identity.Database)) {
		return
	}
	if err == nil {
		err = replication.DropSlot(ctx, r.session.Conn(), slot.Name)
	}
	if err != nil {
		r.log.Warn().Err(err).Str("slot", replication.RewindSlot(r.cfg.Slot)).
			Msg("the rewind slot is not wanted any more and could not be dropped: it keeps WAL; the next start tries again")
		return
	}
	r.log.Info().Str("slot", slot.Name).Msg("dropped the rewind slot: --rewind-window is off, and by its name and plugin it was this pipeline's")
}

// keepRewind looks after the trailing slot while this instance holds the other one.
func (r *run) keepRewind(ctx context.Context) {
	if r.cfg.Rewind.Window == 0 {
		return
	}
	var session *replication.Session
	defer func() {
		if session != nil {
			session.Close()
		}
	}()
	look := rewindLook
	if every := r.cfg.Rewind.Every; every > 0 {
		look = min(look, every)
	}
	said := ""
	for {
		var err error
		if session == nil {
			session, err = r.rewindSession(ctx)
		}
		if err == nil {
			err = r.tendRewind(ctx, session)
		}
		if ctx.Err() != nil {
			return
		}
		text := ""
		if err != nil {
			if text = err.Error(); text != said {
				r.log.Warn().Err(err).Msg("the rewind slot could not be looked after; the stream goes on, and this is tried again")
			}
			if session != nil {
				session.Close()
				session = nil
			}
		}
		said = text
		r.tellRewind(func(p *RewindProgress) { p.Err = text })
		select {
		case <-ctx.Done():
			return
		case <-time.After(look):
		}
	}
}

// tendRewind is one look at the slot, and what follows from it.
func (r *run) tendRewind(ctx context.Context, session *replication.Session) error {
	conn, m := session.Conn(), &r.rewind
	state, err := replication.ReadRewind(ctx, conn, r.cfg.Slot)
	switch {
	case err != nil, !state.Main, m.givenUp != "" && !state.Slot.Exists:
		return err
	case state.Slot.Exists && !state.Ours(r.identity.Database):
		return fmt.Errorf("slot %q is not one that walstream made (%s, plugin %q, database %q): give --slot another name, or drop it", state.Slot.Name, state.Slot.Type, state.Slot.Plugin, state.Slot.Database)
	case state.Slot.Exists && state.Lost():
		return r.giveUpRewind(ctx, session, &state, fmt.Sprintf("the server has invalidated it (%s %s)", state.Slot.WALStatus, state.Slot.InvalidationReason))
	case !state.Slot.Exists:
		lsn, err := replication.CopyToRewind(ctx, conn, r.cfg.Slot)
		if err != nil {
			return err
		}
		r.log.Info().Str("slot", state.Slot.Name).Stringer("lsn", lsn).Stringer("window", r.cfg.Rewind.Window).
			Msg("made the rewind slot: what is committed from here on can be read again, as long as it is within the window")
		if state, err = replication.ReadRewind(ctx, conn, r.cfg.Slot); err != nil {
			return err
		}
	}
	if len(m.marks) == 0 {
		r.recallRewind(ctx, &state)
	}
	m.mark(state.At, state.MainConfirmed)
	for tried := false; ; tried = true {
		r.seenRewind(&state)
		move := m.decide(&state, tried)
		switch {
		case move.GiveUp != "":
			return r.giveUpRewind(ctx, session, &state, move.GiveUp)
		case move.To == 0:
			return nil
		}
		if err := r.moveRewind(ctx, session, &state, move); err != nil {
			return err
		}
		if state, err = replication.ReadRewind(ctx, conn, r.cfg.Slot); err != nil {
			return err
		}
	}
}

func (r *run) moveRewind(ctx context.Context, session *replication.Session, state *replication.Rewind, move rewindMove) error {
	began := time.Now()
	lsn, err := replication.AdvanceSlot(ctx, session.Conn(), state.Slot.Name, move.To)
	lasted := time.Since(began)
	r.tellRewind(func(p *RewindProgress) {
		p.Moves++
		p.MovesLasted += lasted
	})
	if err != nil {
		return err
	}
	r.rewind.moved = state.At
	event := r.log.Debug()
	if move.Why != "" {
		event = r.log.Info().Str("reason", move.Why)
	}
	event.Str("slot", state.Slot.Name).Stringer("lsn", lsn).Stringer("took", lasted.Round(time.Millisecond)).Msg("moved the rewind slot on")
	return nil
}

// giveUpRewind drops the slot. The stream has no part in it.
func (r *run) giveUpRewind(ctx context.Context, session *replication.Session, state *replication.Rewind, why string) error {
	if err := replication.DropSlot(ctx, session.Conn(), state.Slot.Name); err != nil {
		return err
	}
	r.rewind.givenUp = why
	r.log.Warn().Str("slot", state.Slot.Name).Str("reason", why).Stringer("from", state.Slot.ConfirmedFlush).
		Msg("gave the rewind slot up and dropped it, so that the server can let go of its WAL: replay has the table only; the next process makes it again")
	r.tellRewind(func(p *RewindProgress) {
		p.Kept, p.GivenUp, p.From, p.Since, p.RetainedBytes, p.CatalogXminAge = false, why, "", time.Time{}, 0, 0
	})
	return nil
}

// recallRewind: until a process has run for the whole window, only history knows
// when what was committed. Without it the slot stays where it is for so long.
func (r *run) recallRewind(ctx context.Context, state *replication.Rewind) {
	if r.cfg.Kafka.HistoryRetention == 0 {
		return
	}
	buckets, err := r.kafka.History(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			r.log.Debug().Err(err).Msg("history could not be read: the rewind slot stays where it is until this process has run for the window")
		}
		return
	}
	r.rewind.recall(buckets, state.MainConfirmed)
}

func (r *run) seenRewind(state *replication.Rewind) {
	r.tellRewind(func(p *RewindProgress) {
		p.Kept, p.From, p.Since = true, state.Slot.ConfirmedFlush.String(), r.rewind.reach(state.Slot.ConfirmedFlush)
		p.RetainedBytes, p.CatalogXminAge = distanceOf(state.Slot.Restart, state.WALEnd), state.CatalogXminAge
	})
}

// tellRewind publishes a changed copy.
func (s *Supervisor) tellRewind(change func(*RewindProgress)) {
	s.board.update(func(p *Progress) {
		next := RewindProgress{Slot: replication.RewindSlot(s.cfg.Slot)}
		if p.Rewind != nil {
			next = *p.Rewind
		}
		next.At = p.At
		change(&next)
		p.Rewind = &next
	})
}
