package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Config of a pipeline. Everything is set; defaults are the command's.
type Config struct {
	Pipeline    string
	Slot        string
	Publication string
	Version     string
	Postgres    replication.Options
	Kafka       sink.Config
	Mapping     []outbox.MappingConfig
	Accept      checkpoint.Accept
	Limits      checkpoint.Limits
	Delivery    Delivery
	// Transactions are the options of exactly-once delivery.
	Transactions sink.TransactionalOptions

	StatusInterval time.Duration
	ShutdownGrace  time.Duration
	Logger         zerolog.Logger
	// Observe is told how long each published edge took from commit to
	// acknowledgement. May be nil.
	Observe func(commitToAck time.Duration)
}

// Delivery is what a consumer can count on.
type Delivery string

const (
	// AtLeastOnce: duplicates after a crash or a pause, none before the last
	// durable checkpoint.
	AtLeastOnce Delivery = "at-least-once"
	// ExactlyOnce: a read_committed consumer sees each row once, and whole
	// PostgreSQL transactions.
	ExactlyOnce Delivery = "exactly-once"
)

// Supervisor runs a pipeline. There is one way to start, the order in attempt;
// every error that is not a clean stop tears everything down and goes through it
// again, so recovery has no code of its own.
type Supervisor struct {
	cfg      Config
	log      zerolog.Logger
	board    board
	counters Counters
	warned   map[string]bool
	noted    string // why the last attempt ended, as it was logged
}

// NewSupervisor returns a supervisor that has not started.
func NewSupervisor(cfg Config) *Supervisor {
	cfg.Kafka.Seen = sink.NewSeen()
	s := &Supervisor{cfg: cfg, log: cfg.Logger, warned: map[string]bool{}}
	now := time.Now()
	s.board.current.Store(&Progress{
		At: now, Since: now, DownSince: now, State: Connecting, Reason: "starting", Restarts: map[string]uint64{},
	})
	return s
}

// Progress is the newest picture of the pipeline.
func (s *Supervisor) Progress() *Progress { return s.board.load() }

// Pauses between attempts, before jitter.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second // failing
	maxStandby = time.Second      // waiting for a slot
	// healthyAfter is how long a run must have streamed for the next pause to
	// begin small again, unless it confirmed something before.
	healthyAfter = 10 * time.Second
)

// Run keeps the pipeline going until ctx ends, or until an error needs a person.
func (s *Supervisor) Run(ctx context.Context) error {
	var pause time.Duration
	for {
		confirmed := s.Progress().Confirmed
		err := s.attempt(ctx)
		class := Classify(err)
		switch {
		case err == nil, ctx.Err() != nil && (class.Action != Stop || class.Reason == unknown):
			s.board.state(Stopped, "") // asked to stop, with nothing in flight
			return nil
		case class.Action == Stop:
			err = s.wayPast(err)
			s.board.state(Refused, err.Error())
			return err
		}
		p := s.Progress()
		progressed := p.Confirmed > confirmed || p.State == Streaming && time.Since(p.Since) > healthyAfter
		pause = nextPause(pause, progressed, class)
		s.note(class, err)
		select {
		case <-ctx.Done():
		case <-time.After(jitter(pause)):
		}
	}
}

// nextPause doubles the one before, from firstPause after progress. One that
// failing has made long is not for a standby instance: the slot may be free any
// moment.
func nextPause(before time.Duration, progressed bool, class Class) time.Duration {
	if progressed {
		before = 0
	}
	limit := maxPause
	if class.Action == Wait {
		limit = maxStandby
	}
	return min(max(2*before, firstPause), limit)
}

// note makes the reason of the pause known, once for as long as it stays.
func (s *Supervisor) note(class Class, err error) {
	state := Waiting
	if class.Action == Wait {
		state = Standby
	}
	busy := errors.Is(err, replication.ErrSlotBusy) // standBy has said so, and waited
	if text := err.Error(); !busy && text != s.noted {
		s.noted = text
		s.log.Warn().Err(err).Str("reason", class.Reason).Msg("will start again")
	}
	s.board.update(func(p *Progress) {
		p.Restarts = maps.Clone(p.Restarts)
		p.Restarts[class.Reason]++
	})
	s.board.state(state, err.Error())
}

// wayPast adds to an error that holds the position at a transaction how to go on
// without it. What is done to the table cannot help: the row is in the WAL.
func (s *Supervisor) wayPast(err error) error {
	var position decode.Position
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		position = blocked.Position
	}
	if refused, ok := errors.AsType[*sink.DeliveryError](err); ok {
		position = refused.Position
	}
	past := fmt.Sprintf("'%s'", position.CommitLSN+1)
	switch {
	case errors.Is(err, replication.ErrPublicationMissing):
		past = "pg_current_wal_lsn()"
	case position.CommitLSN == 0:
		return err
	}
	return fmt.Errorf("%w. If nothing else helps, go on without the transaction: SELECT pg_replication_slot_advance('%s', %s); "+
		"publish its rows by other means; the next start names the --accept-gap for it", err, s.cfg.Slot, past)
}

// jitter spreads pauses, so that instances do not come all at once.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// attempt is the order of every start (design section 5), then the stream.
//
//  1. Read slot and checkpoint; stop on another server, before anybody is disturbed.
//  2. Take the slot. It is the lock: nobody writes to or fences in Kafka without it.
//  3. Fence: what a dead instance left open ends.
//  4. Read the checkpoint again: this one counts.
//  5. Compare; only then take frames.
func (s *Supervisor) attempt(ctx context.Context) (err error) {
	run := &run{Supervisor: s}
	defer run.close()
	if err := run.connect(ctx); err != nil {
		return err
	}
	if err := run.look(ctx); err != nil { // 1
		return err
	}
	if err := run.take(ctx); err != nil { // 2
		if errors.Is(err, replication.ErrSlotBusy) {
			return run.standBy(ctx, err)
		}
		return err
	}
	core, err := run.claim(ctx) // 3, 4, 5
	if err != nil {
		return err
	}
	return run.stream(ctx, core)
}
