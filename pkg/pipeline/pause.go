package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Named is how a command of this pipeline begins in a message, to be pasted as it
// stands.
func (c *Config) Named() string { return "--slot " + c.Slot + c.namedPipeline() }

// namedPipeline is empty where the name follows from database and slot.
func (c *Config) namedPipeline() string {
	if strings.HasSuffix(c.Pipeline, "."+c.Slot) {
		return ""
	}
	return " --pipeline " + c.Pipeline
}

// ErrPaused: an operator paused the pipeline.
var ErrPaused = errors.New("the pipeline is paused")

// errTurned: the pipeline was paused or resumed, so the start order begins anew,
// at once.
var errTurned = errors.New("paused or resumed")

const (
	// pausePoll is how often the operator's word is looked for: a pause takes hold,
	// and ends, within this.
	pausePoll = 2 * time.Second
	// pausedHealth is how often the slot is looked at while paused.
	pausedHealth = 5 * time.Second
)

// obeyPause comes before everything else of a start, PostgreSQL included, which
// may be what is being worked on. It returns when the pipeline may go on: nil, or
// errTurned when it had to wait for that. While Kafka does not answer, what was read
// last still holds.
func (r *run) obeyPause(ctx context.Context) error {
	if err := r.openKafka(); err != nil {
		return err
	}
	reader := r.kafka.NewPauseReader()
	if err := r.readPause(ctx, reader); err != nil && !r.pause.InForce(time.Now()) {
		return err
	}
	switch {
	case !r.pause.InForce(time.Now()):
		return nil
	case r.single():
		return fmt.Errorf("%w: %s; walstream resume %s first", ErrPaused, r.pause, r.cfg.Named())
	}
	r.log.Warn().Stringer("pause", r.pause).Msg("paused: the slot is left in peace until walstream resume")
	return r.waitPaused(ctx, reader)
}

// readPause takes a missing right for the absence of a word: a pipeline whose ACLs
// are older than the topic has to go on.
func (r *run) readPause(ctx context.Context, reader *sink.PauseReader) error {
	pause, err := reader.Read(ctx)
	if access, denied := errors.AsType[*sink.AccessError](err); denied {
		r.warnOnce(replication.Finding{
			Name: "pause", Detail: "walstream pause has no effect here: " + err.Error(), Remedy: access.Grant,
		})
		return nil
	}
	if err == nil {
		r.pause = pause
	}
	return err
}

// waitPaused holds nothing on the server: it looks at the slot on a connection of
// its own each time, and closes it.
func (r *run) waitPaused(ctx context.Context, reader *sink.PauseReader) (err error) {
	if r.mapping, err = outbox.NewMapping(r.cfg.Mapping); err != nil {
		return err
	}
	var looked time.Time
	for r.pause.InForce(time.Now()) {
		r.board.state(Paused, r.pause.String())
		if time.Since(looked) >= pausedHealth {
			looked = time.Now()
			health := r.lookAtSlot(ctx)
			r.board.update(func(p *Progress) { p.Health = health })
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pausePoll):
		}
		if err := r.readPause(ctx, reader); err != nil && ctx.Err() == nil {
			r.log.Debug().Err(err).Msg("cannot read whether the pipeline is still paused: it is, then")
		}
	}
	r.log.Info().Stringer("pause", r.pause).Msg("resumed")
	return errTurned
}

func (r *run) lookAtSlot(ctx context.Context) replication.Health {
	ctx, cancel := context.WithTimeout(ctx, pausedHealth)
	defer cancel()
	at := time.Now()
	session, err := replication.OpenSession(ctx, r.cfg.Postgres)
	if err != nil {
		return replication.Health{At: at, Err: err}
	}
	defer session.Close()
	health, err := session.Read(ctx, replication.Watched{Slot: r.cfg.Slot, Publication: r.publication()})
	health.Err = err
	return health
}

// untilPaused is a context for the stream that ends when an operator pauses the
// pipeline, as if it was told to stop. ended stops looking, and says whether that
// has happened.
func (r *run) untilPaused(ctx context.Context) (streaming context.Context, ended func() (turned bool)) {
	streaming, cancel := context.WithCancelCause(ctx)
	if r.cfg.Kafka.OneShot != nil {
		return streaming, func() bool { cancel(nil); return false }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		reader := r.kafka.NewPauseReader()
		ticker := time.NewTicker(pausePoll)
		defer ticker.Stop()
		for {
			select {
			case <-streaming.Done():
				return
			case <-ticker.C:
			}
			if pause, err := reader.Read(streaming); err == nil && pause.InForce(time.Now()) {
				cancel(errTurned)
				return
			}
		}
	}()
	return streaming, func() bool {
		turned := errors.Is(context.Cause(streaming), errTurned)
		cancel(nil)
		<-done
		return turned
	}
}

// drained is what a pause makes of the end of the stream. That not everything was
// acknowledged in time is no reason to stop for good: it comes again.
func (r *run) drained(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, ErrUnacknowledged):
		r.log.Warn().Err(err).Msg("paused before Kafka had acknowledged everything; it is sent again after walstream resume")
	default:
		return err
	}
	return errTurned
}
