package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

// simInstance is one run of walstream, from the first step of its start.
type simInstance struct {
	s       *sim
	name    int
	exactly bool // delivery
	waited  bool // for the slot

	// The order of the start runs as a coroutine: next runs it up to the end of the
	// next step; drop ends it where it stands.
	next  func() (struct{}, bool)
	drop  func()
	yield func(struct{}) bool

	// What the start has found.
	sender   *simWalsender // nil before it held the slot
	slot     checkpoint.Slot
	server   checkpoint.Server
	left     map[uint32]pglogrepl.LSN
	epochs   [schedule.Lanes]int
	decision checkpoint.Decision
	failed   error // the start ended with it
	accepted bool  // a decision of an operator moved the position

	pages *simPages // it publishes a snapshot

	core     *Core
	sink     simPublisher
	stopping bool
	graceEnd time.Time // of the stop
	clean    bool      // it stopped, and left no transaction half published
	paused   bool      // it was, and has lost the slot meanwhile
	gone     bool      // killed; only what it has sent is still on its way
}

func (i *simInstance) String() string {
	if i.exactly {
		return fmt.Sprintf("%d(exactly)", i.name)
	}
	return fmt.Sprint(i.name)
}

func (i *simInstance) streams() bool { return i.core != nil }

// starting goes on with the start, by one step of the product's own order.
func (i *simInstance) starting() error {
	if i.next == nil {
		i.next, i.drop = iter.Pull(func(yield func(struct{}) bool) {
			i.yield = yield
			if i.decision, i.failed = start(context.Background(), i); i.failed == nil && i.decision.Start.Page != nil {
				i.failed = i.collect()
			}
		})
	}
	if _, between := i.next(); between {
		return nil
	}
	i.next, i.drop = nil, nil
	if errors.Is(i.failed, errBusy) { // the standby instance goes back to 1
		i.waited = true
		return nil
	}
	if i.failed != nil {
		return i.failed
	}
	return i.stream()
}

// between two steps it may be paused or killed, and others may do anything.
func (i *simInstance) between() error {
	if !i.yield(struct{}{}) {
		return errDied
	}
	return nil
}

var _ starter = (*simInstance)(nil)

var (
	errBusy      = errors.New("the slot is held by another instance")
	errUnsettled = errors.New("a transaction stays open on the checkpoint topic")
	errDied      = errors.New("killed")
)

// look finds nothing here that would stop it.
func (i *simInstance) look(context.Context) error { return i.between() }

// take the slot: the lock. What slot and server are is read while it is held.
func (i *simInstance) take(context.Context) error {
	v := i.s.server
	if v.sender != nil {
		return errBusy
	}
	i.sender = v.connect(i)
	i.slot = checkpoint.Slot{Exists: true, Confirmed: v.slot}
	i.server = checkpoint.Server{SystemID: "7", Timeline: v.timeline, Database: "d", Flushed: v.end}
	i.left = maps.Clone(v.left)
	if i.waited {
		i.s.TakenOver++
	}
	i.s.say("%s: takes the slot at %s", i, v.slot)
	return i.between()
}

// hold: a walsender of the model keeps the slot without statuses.
func (i *simInstance) hold(ctx context.Context, rest func(context.Context) error) error {
	return rest(ctx)
}

func (i *simInstance) claim(_ context.Context, lane int) error {
	i.epochs[lane] = i.s.broker.claim(lane, i)
	return i.between()
}

// load waits until no transaction is open on the checkpoint topic.
func (i *simInstance) load(context.Context) (checkpoint.Record, bool, error) {
	for looks := 0; i.s.broker.unsettled(); looks++ {
		if looks == 3 {
			return checkpoint.Record{}, false, errUnsettled
		}
		if err := i.between(); err != nil {
			return checkpoint.Record{}, false, err
		}
	}
	record := i.s.broker.newest()
	return record, true, i.between()
}

// identity is the server as Compare wants it, seen from the record's timeline.
func (i *simInstance) identity(record checkpoint.Record) checkpoint.Server {
	id := i.server
	if record.Timeline != id.Timeline {
		left, known := i.left[record.Timeline]
		id.SwitchPoint, id.SwitchUnknown = left, !known
	}
	return id
}

// compare, and answer a refusal as an operator would who did what its remedy
// says. Nobody answers one that lost the slot meanwhile.
func (i *simInstance) compare(record checkpoint.Record, _ bool) (checkpoint.Decision, error) {
	s := i.s
	var accept checkpoint.Accept
	for {
		decision, err := checkpoint.Compare(&record, i.slot, i.identity(record), "s", accept)
		if err == nil {
			if decision.Accepted != "" {
				i.accepted = true
				s.Accepted++
				s.say("%s: accepted: %s", i, decision.Accepted)
			}
			if record.Phase == checkpoint.PhaseSetup && s.snapshots.wants {
				decision.Start.Page = &checkpoint.Page{From: decision.Start.Covered}
			}
			return decision, i.between()
		}
		var refusal *checkpoint.Refusal
		if !errors.As(err, &refusal) {
			s.fail("compare: %v", err)
		}
		if i.paused {
			return decision, err
		}
		switch refusal.Kind {
		case checkpoint.RefuseRestored:
			if !s.server.restored {
				s.fail("refused, and the server was not restored: %v", err)
			}
			return decision, err
		case checkpoint.RefuseTimeline:
			if accept.LostTail != 0 {
				s.fail("refused again: %v", err)
			}
			accept.LostTail = i.left[record.Timeline]
		case checkpoint.RefuseGap:
			if s.snapshots.recovers() && record.Phase == checkpoint.PhaseStream && i.server.Timeline == record.Timeline {
				decision, err := checkpoint.Compare(&record, i.slot, i.identity(record), "s", checkpoint.Accept{Recover: true})
				if err != nil {
					s.fail("a recovery is refused: %v", err)
				}
				return i.recover(record, decision), i.between()
			}
			if accept.GapTo != 0 {
				s.fail("refused again: %v", err)
			}
			accept.GapFrom, accept.GapTo = record.Covered, i.slot.Confirmed
			if left, known := i.left[record.Timeline]; known && record.Timeline != i.server.Timeline {
				accept.GapFrom = min(accept.GapFrom, left)
			}
			if accept.LostTail != 0 {
				accept.GapFrom = accept.LostTail
			}
			s.giveUp(accept.GapFrom, accept.GapTo)
		default:
			s.fail("refused: %v", err)
		}
	}
}

// base is a checkpoint of this run, but for where it stands.
func (i *simInstance) base() checkpoint.Record {
	return checkpoint.Record{Pipeline: "p", SystemID: "7", Timeline: i.server.Timeline, Database: "d", Slot: "s", Phase: checkpoint.PhaseSetup}
}

func (i *simInstance) write(_ context.Context, edge checkpoint.Edge) error {
	trouble := i.s.rnd.IntN(20)
	if trouble == requestLost {
		return errUnknown
	}
	if err := i.s.broker.write(i.base().With(edge), i.epochs[0], i); err != nil {
		return err
	}
	if trouble == answerLost {
		return errUnknown
	}
	return i.between()
}

// stream from the decision.
func (i *simInstance) stream() error {
	s, start := i.s, i.decision.Start
	s.Starts++
	if start.Ordinal > 0 {
		s.Resumed++
	}
	i.sender.alsoLegal = start.Covered
	cfg := CoreConfig{Start: start, SlotConfirmed: i.slot.Confirmed, Source: i.sender}
	if i.pages != nil {
		cfg = i.streamPages()
		start = cfg.Start
	}
	sink := newSimSink(s.broker, i, start, i.base().With(start))
	if i.exactly {
		i.sink = newSimTransactional(sink)
	} else {
		i.sink = &simIdempotent{sink}
	}
	s.say("%s: streams from %s (commit %s #%d), slot %s", i, start.Covered, start.CommitLSN, start.Ordinal, i.slot.Confirmed)
	cfg.Limits, cfg.Mapper, cfg.Sink, cfg.Whole = s.limits, keyValueMapper{}, i.sink, i.exactly
	cfg.Pacer = NewPacer(5*time.Second, 15*time.Second, s.now)
	i.core = NewCore(cfg)
	return nil
}

func betweenClaims(i *simInstance) bool { return (i.epochs[0] == 0) != (i.epochs[1] == 0) }

// work is one thing that happens in the instance or to its records.
func (i *simInstance) work(n int) error {
	s, k, rnd := i.s, i.sink.common(), i.s.rnd
	p := rnd.IntN(len(k.queue) + 1)
	switch {
	case n < 420:
		return i.frames(1 + rnd.IntN(5))
	case n < 480:
		if i.pages != nil {
			return nil
		}
		if payload, ok := i.sender.keepalive(rnd, false); ok && !i.stopping && !i.core.Full() {
			return i.core.OnFrame(payload, s.now)
		}
	case n < 610:
		k.produce(p, 1+rnd.IntN(4))
	case n < 740:
		k.answer(p, 1+rnd.IntN(4))
	case n < 870:
		i.commit(1 + rnd.IntN(5))
	case n < 950:
		return i.core.OnAcks(s.now)
	default:
		s.now = s.now.Add(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		return i.core.OnTick(s.now)
	}
	return nil
}

// commit lets the committer do so many things. Its transaction's own record needs
// no luck to go out.
func (i *simInstance) commit(n int) {
	k, rnd := i.sink.common(), i.s.rnd
	for ; n > 0; n-- {
		i.sink.commit(rnd.IntN(80))
		if rnd.IntN(2) == 0 {
			k.produceCheckpoint()
			k.answer(len(k.sent), 1)
		}
	}
}

// completes: an instance that stops takes in the rest of a transaction that is
// published in part.
func (i *simInstance) completes() bool {
	return i.pages == nil && i.core.Partial() && !i.s.now.After(i.graceEnd)
}

// frames hands over up to n frames, as long as the window is open.
func (i *simInstance) frames(n int) error {
	next := i.sender.frame
	if i.pages != nil {
		next = i.pageFrame
	}
	for ; n > 0 && (!i.stopping || i.completes()) && !i.core.Full() && !i.core.Reached(); n-- {
		payload, ok := next()
		if !ok {
			return nil
		}
		if err := i.core.OnFrame(payload, i.s.now); err != nil {
			return err
		}
	}
	return nil
}

// settle lets everything that is under way come to rest.
func (i *simInstance) settle() error {
	s, k := i.s, i.sink.common()
	err := i.frames(1 << 20)
	if err == nil && i.pages == nil && len(i.sender.queue) == 0 && !i.core.Full() && !i.stopping {
		if payload, ok := i.sender.keepalive(s.rnd, true); ok {
			err = i.core.OnFrame(payload, s.now)
		}
	}
	for range 10 {
		i.sink.commit(0)
		for p := range len(k.queue) + 1 {
			k.produce(p, 1<<20)
			k.answer(p, 1<<20)
		}
	}
	if err == nil {
		err = i.core.OnAcks(s.now)
	}
	s.now = s.now.Add(time.Second)
	if err == nil {
		err = i.core.OnTick(s.now)
	}
	return err
}

func (i *simInstance) settledAll() bool {
	v := i.s.server
	return i.pages == nil && i.sender.next == len(v.txs) && v.slot == v.end && !i.core.ledger.Pending()
}
