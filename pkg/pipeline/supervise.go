package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/repeat"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Config of a pipeline. Everything is set; defaults are the command's.
type Config struct {
	Pipeline    string
	Slot        string
	Publication string
	// SlotFailover makes the slot, an existing one too, a failover slot (17+).
	SlotFailover bool
	Version      string
	Postgres     replication.Options
	Kafka        sink.Config
	Mapping      []outbox.MappingConfig
	Accept       checkpoint.Accept
	Limits       checkpoint.Limits
	Delivery     Delivery
	// Transactions are the options of exactly-once delivery.
	Transactions sink.TransactionalOptions

	// Snapshot of the rows from before the slot, and a condition in SQL on them.
	Snapshot      SnapshotMode
	SnapshotWhere string
	// Recover is set by a command: rows that are in no topic are published, and the
	// run ends.
	Recover *Recovery

	// Rewind keeps a second slot behind the first one.
	Rewind Rewind

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

// Supervisor runs a pipeline. There is one way to start, the order in order.go;
// every error that is not a clean stop tears everything down and goes through it
// again, so recovery has no code of its own.
type Supervisor struct {
	cfg      Config
	log      zerolog.Logger
	board    board
	counters Counters
	warned   map[string]bool
	trouble  repeat.Episode         // attempts that failed, for the log
	doubt    checkpoint.RefusalKind // of the last attempt, see doubted
	beside   bool                   // the pipeline is another's, and its slot is not ours to take
	wantText bool                   // a snapshot will read the stream
	loggedIn bool                   // at both ends, once
	// refusedSince is when a login was refused that had been accepted before, or led
	// to a standby.
	refusedSince time.Time
	pause        sink.Pause // an operator's, as it was last read
	rewind       rewindMemory
}

// NewSupervisor returns a supervisor that has not started.
func NewSupervisor(cfg Config) *Supervisor {
	cfg.Kafka.Seen, cfg.Kafka.Topics = sink.NewSeen(), cfg.topics()
	cfg.Postgres.Published = &replication.Published{}
	s := &Supervisor{cfg: cfg, log: cfg.Logger, warned: map[string]bool{}, trouble: repeat.Episode{Calm: calm}, rewind: rewindMemory{rule: cfg.Rewind}}
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
	maxPause   = 5 * time.Second // failing: what comes back is seen soon
	maxStandby = time.Second     // waiting for a slot
	// healthyAfter is how long a run must have streamed for the next pause to
	// begin small again, unless it confirmed something before.
	healthyAfter = 10 * time.Second
	// calm for so long, what ends a stream is news again.
	calm = time.Minute
)

// Run keeps the pipeline going until ctx ends, or until an error needs a person.
func (s *Supervisor) Run(ctx context.Context) error {
	watching, unwatch := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { s.watchSlot(watching) })
	defer func() {
		unwatch()
		watcher.Wait()
	}()
	return s.keepGoing(ctx)
}

func (s *Supervisor) keepGoing(ctx context.Context) error {
	var pause time.Duration
	for {
		confirmed := s.Progress().Confirmed
		err := s.attempt(ctx)
		class := Classify(err)
		switch {
		case err == nil, ctx.Err() != nil && (class.Action != Stop || class.Reason == unknown):
			s.board.state(Stopped, "") // asked to stop, with nothing in flight
			return nil
		case errors.Is(err, errSnapshotDone):
			s.wantText = false
			if s.cfg.Snapshot == SnapshotOnly || s.cfg.Recover != nil {
				s.board.state(Stopped, "")
				return nil
			}
			continue
		case errors.Is(err, errTurned):
			pause, s.doubt = 0, ""
			continue
		case errors.Is(err, errTextStream), s.doubted(err):
			continue
		case class.Action == Stop && s.renewing(err):
			if class = (Class{Retry, "credentials"}); errors.Is(err, replication.ErrInRecovery) || errors.Is(err, replication.ErrOldPrimary) {
				class.Reason = "postgres"
			}
		case class.Action == Stop, class.Action == Wait && s.single():
			err = s.wayPast(err)
			s.board.state(Refused, err.Error())
			return err
		}
		p := s.Progress()
		progressed := p.Confirmed > confirmed || errors.Is(err, sink.ErrSentAgain) || // each such start leaves fewer suspects
			p.State == Streaming && time.Since(p.Since) > healthyAfter
		pause = nextPause(pause, progressed, class)
		s.note(class, err)
		select {
		case <-ctx.Done():
		case <-time.After(jitter(pause)):
		}
	}
}

// single is the run of a command: it waits for nobody.
func (s *Supervisor) single() bool { return s.cfg.Kafka.OneShot != nil || s.cfg.Recover != nil }

// renewalPatience is how long a login that is refused is tried again in a process
// where it was accepted before: who renews a password or certificate changes two
// places, one after the other, and a secret of Kubernetes reaches its pods after a
// minute or more. Likewise a switchover: the old primary can be back as a standby
// before its name leads to the new one, or as an old primary. Its end is an exit as at a start.
const renewalPatience = 3 * time.Minute

// renewing tells whether err may be the moment between the two.
func (s *Supervisor) renewing(err error) bool {
	refused := errors.Is(err, replication.ErrInRecovery) || errors.Is(err, replication.ErrOldPrimary) || errors.Is(err, replication.ErrAuthentication) || errors.Is(err, replication.ErrTLS) || sink.RefusedLogin(err)
	switch {
	case !refused || !s.loggedIn || s.single():
		return false
	case s.refusedSince.IsZero():
		s.refusedSince = time.Now()
	}
	return time.Since(s.refusedSince) < renewalPatience
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

// note makes the reason of the pause known; the log sums up what repeats itself.
func (s *Supervisor) note(class Class, err error) {
	state := Waiting
	if class.Action == Wait {
		state = Standby
	}
	busy := errors.Is(err, replication.ErrSlotBusy) // standBy has said so, and waited
	if now := time.Now(); !busy {
		event := s.log.Debug()
		if s.trouble.Trouble(err.Error(), now) {
			event = s.log.Warn()
		}
		s.troubles(event.Err(err).Str("reason", class.Reason), now).Msg("will start again")
	}
	s.board.update(func(p *Progress) {
		p.Restarts = maps.Clone(p.Restarts)
		p.Restarts[class.Reason]++
	})
	s.board.state(state, err.Error())
}

// troubles adds how often it failed, and within what time.
func (s *Supervisor) troubles(event *zerolog.Event, now time.Time) *zerolog.Event {
	return event.Int("failures", s.trouble.Count()).Stringer("within", s.trouble.Lasted(now).Round(time.Millisecond))
}

// atStart is the level of what a start has to say: one behind a failure that was
// not told says nothing either.
func (s *Supervisor) atStart(now time.Time) *zerolog.Event {
	if s.trouble.Silent(now) {
		return s.log.Debug()
	}
	return s.log.Info()
}

// wayPast adds to an error that holds the position at a row or a transaction how
// to go on without it. What is done to the table cannot help: the row is in the
// WAL.
func (s *Supervisor) wayPast(err error) error {
	blocked, mapping := errors.AsType[*BlockedError](err)
	bad, row := errors.AsType[*outbox.RowError](err)
	refused, delivery := errors.AsType[*sink.DeliveryError](err)
	_, poison := sink.Flaw(err)
	_, runaway := errors.AsType[*sink.RunawayError](err)
	past := "pg_current_wal_lsn()"
	switch {
	case runaway:
		return err // it says so itself: one row less is no help
	case row:
		return s.wayPastRow(err, bad.Position)
	case delivery && poison:
		return s.wayPastRow(err, refused.Position)
	case delivery:
		past = fmt.Sprintf("'%s'", refused.Position.CommitLSN+1)
	case mapping:
		past = fmt.Sprintf("'%s'", blocked.Position.CommitLSN+1)
	case !errors.Is(err, replication.ErrPublicationMissing):
		return err
	}
	return fmt.Errorf("%w. If nothing else helps, go on without the transaction: SELECT pg_replication_slot_advance('%s', %s); "+
		"publish its rows by other means; the next start names the --accept-gap for it", err, s.cfg.Slot, past)
}

// jitter spreads pauses, so that instances do not come all at once.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// attempt is the order of every start (order.go), then the stream.
func (s *Supervisor) attempt(ctx context.Context) (err error) {
	run := &run{Supervisor: s}
	defer run.close()
	if err := run.obeyPause(ctx); err != nil {
		return err
	}
	if err := run.connect(ctx); err != nil {
		return err
	}
	if err := run.prepare(ctx); err != nil {
		return err
	}
	decision, err := start(ctx, run)
	if err == nil || errors.Is(err, replication.ErrSlotBusy) {
		s.loggedIn, s.refusedSince = true, time.Time{}
	}
	switch {
	case errors.Is(err, replication.ErrSlotBusy) && !s.single():
		return run.standBy(ctx, err)
	case err != nil:
		return err
	}
	switch page := decision.Start.Page; {
	case page != nil:
		return run.snapshot(ctx, decision.Start)
	case s.cfg.Snapshot == SnapshotOnly:
		s.log.Warn().Msg("snapshot only: there is none to be made, the pipeline has begun to stream before")
		return errSnapshotDone
	}
	return run.stream(ctx, run.core(decision))
}
