package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/sink"
)

// ErrNotBlocked: the row that was to be passed is not what holds the stream.
var ErrNotBlocked = errors.New("the row is not what holds the stream")

// Pass lets single rows pass that hold the stream, and ends behind their
// transaction, with a durable checkpoint and the slot's position beyond it. The
// slot is taken as by any start: another instance at work ends it, and so does
// another bad row before, or in the same transaction. What else is in the stream up
// to there is published.
//
// Rows that were named and had nothing wrong with them are published too, and
// returned: beside one that was passed they are no error, for the transaction is
// behind.
func Pass(ctx context.Context, cfg Config, shot sink.OneShot) (sound []decode.Position, err error) {
	if len(shot.Positions) == 0 {
		return nil, fmt.Errorf("%w: none is named", ErrNotBlocked)
	}
	cfg.Kafka.OneShot, cfg.Kafka.OnPoison = &shot, sink.Stop
	s := NewSupervisor(cfg)
	err = s.Run(ctx)
	if errors.Is(err, ErrPassed) {
		return nil, fmt.Errorf("%w: %w: it is published or passed already", ErrNotBlocked, err)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	for _, position := range shot.Positions {
		if !s.cfg.Kafka.Seen.Applied(position) {
			sound = append(sound, position)
		}
	}
	if len(sound) == len(shot.Positions) {
		return nil, fmt.Errorf("%w: nothing was wrong with the row at %s, if there is one, and it was published", ErrNotBlocked, sound[0])
	}
	return sound, nil
}

// until is the commit behind which the stream ends.
func (s *Supervisor) until() (last pglogrepl.LSN) {
	if shot := s.cfg.Kafka.OneShot; shot != nil {
		for _, position := range shot.Positions {
			last = max(last, position.CommitLSN)
		}
	}
	return last
}

// wayPastRow names the command that passes one row, together with those that the
// present one was to pass: they may be of the same transaction.
func (s *Supervisor) wayPastRow(err error, at decode.Position) error {
	var positions []string
	if shot := s.cfg.Kafka.OneShot; shot != nil {
		for _, position := range shot.Positions {
			if position.CommitLSN <= at.CommitLSN && position != at {
				positions = append(positions, position.String())
			}
		}
	}
	positions = append(positions, at.String())
	return fmt.Errorf("%w. To go past this one row, with the same settings: walstream skip --slot %s --position '%s'%s leaves it out, "+
		"and with --dead-letter keeps it in topic walstream.dead-letters.%s; --on-poison decides on all such rows",
		err, s.cfg.Slot, strings.Join(positions, ","), s.cfg.namedPipeline(), s.cfg.Pipeline)
}
