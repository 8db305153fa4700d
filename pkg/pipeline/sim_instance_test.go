package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// simInstance is one run of walstream, from the first step of its start.
type simInstance struct {
	s       *sim
	name    int
	exactly bool // delivery
	at      int  // of startOrder; at its end it streams
	waited  bool // for the slot
	looks   int  // at an open transaction

	// What the start has found.
	sender   *simWalsender // nil before it held the slot
	slot     checkpoint.Slot
	server   checkpoint.Server
	left     map[uint32]pglogrepl.LSN
	epochs   [simLanes]int
	record   checkpoint.Record
	decision checkpoint.Decision
	accepted bool // a decision of an operator moved the position

	core     *Core
	sink     simPublisher
	stopping bool
	graceEnd time.Time // of the stop
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

// startOrder is the order of every start (design section 5). An instance may be
// paused or killed, and others may do anything, between any two of its steps.
var startOrder = []func(*simInstance) error{
	(*simInstance).load, // as a look: nobody is disturbed
	(*simInstance).take,
	(*simInstance).claimFirst,
	(*simInstance).claimSecond,
	(*simInstance).settled,
	(*simInstance).load, // this one counts
	(*simInstance).compare,
	(*simInstance).write,
	(*simInstance).stream,
}

var (
	errBusy      = errors.New("the slot is held by another instance")
	errUnsettled = errors.New("a transaction stays open on the checkpoint topic")
	errDied      = errors.New("killed")
)

// load the newest checkpoint.
func (i *simInstance) load() error {
	i.record = i.s.broker.newest()
	return nil
}

// take the slot: the lock. What slot and server are is read while it is held.
func (i *simInstance) take() error {
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
	return nil
}

func (i *simInstance) claimFirst() error { return i.claim(0) }

func (i *simInstance) claimSecond() error { return i.claim(1) }

func (i *simInstance) claim(lane int) error {
	i.epochs[lane] = i.s.broker.claim(lane, i)
	return nil
}

// settled waits until no transaction is open on the checkpoint topic.
func (i *simInstance) settled() error {
	if i.s.broker.unsettled() {
		if i.looks++; i.looks > 3 {
			return errUnsettled
		}
		i.at--
	}
	return nil
}

// identity is the server as Compare wants it, seen from the record's timeline.
func (i *simInstance) identity() checkpoint.Server {
	id := i.server
	if i.record.Timeline != id.Timeline {
		left, known := i.left[i.record.Timeline]
		id.SwitchPoint, id.SwitchUnknown = left, !known
	}
	return id
}

// compare, and answer a refusal as an operator would who did what its remedy
// says. Nobody answers one that lost the slot meanwhile.
func (i *simInstance) compare() error {
	s := i.s
	var accept checkpoint.Accept
	for {
		decision, err := checkpoint.Compare(&i.record, i.slot, i.identity(), "s", accept)
		if err == nil {
			if i.decision = decision; decision.Accepted != "" {
				i.accepted = true
				s.Accepted++
				s.say("%s: accepted: %s", i, decision.Accepted)
			}
			return nil
		}
		var refusal *checkpoint.Refusal
		if !errors.As(err, &refusal) {
			s.fail("compare: %v", err)
		}
		if i.paused {
			return err
		}
		switch refusal.Kind {
		case checkpoint.RefuseRestored:
			if !s.server.restored {
				s.fail("refused, and the server was not restored: %v", err)
			}
			return err
		case checkpoint.RefuseTimeline:
			if accept.LostTail != 0 {
				s.fail("refused again: %v", err)
			}
			accept.LostTail = i.left[i.record.Timeline]
		case checkpoint.RefuseGap:
			if accept.GapTo != 0 {
				s.fail("refused again: %v", err)
			}
			accept.GapFrom, accept.GapTo = i.record.Covered, i.slot.Confirmed
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

// write: what the start counts on becomes durable before anything is confirmed.
func (i *simInstance) write() error {
	if !i.accepted && i.record.Phase != checkpoint.PhaseSetup {
		return nil
	}
	trouble := i.s.rnd.IntN(20)
	if trouble == requestLost {
		return errUnknown
	}
	err := i.s.broker.write(i.base().With(i.decision.Start), i.epochs[0], i)
	if trouble == answerLost {
		return errUnknown
	}
	return err
}

// stream from the decision.
func (i *simInstance) stream() error {
	s, start := i.s, i.decision.Start
	s.Starts++
	if start.Ordinal > 0 {
		s.Resumed++
	}
	i.sender.alsoLegal = start.Covered
	sink := newSimSink(s.broker, i, start, i.base().With(start))
	if i.exactly {
		i.sink = newSimTransactional(sink, s.maxTime)
	} else {
		i.sink = &simIdempotent{sink}
	}
	s.say("%s: streams from %s (commit %s #%d), slot %s", i, start.Covered, start.CommitLSN, start.Ordinal, i.slot.Confirmed)
	i.core = NewCore(CoreConfig{
		Start: start, SlotConfirmed: i.slot.Confirmed, Limits: s.limits, Mapper: keyValueMapper{},
		Sink: i.sink, Source: i.sender, Pacer: NewPacer(5*time.Second, 15*time.Second, s.now), Whole: i.exactly,
	})
	return nil
}

func betweenClaims(i *simInstance) bool { return (i.epochs[0] == 0) != (i.epochs[1] == 0) }

// starting is the next step of the start.
func (i *simInstance) starting() error {
	i.at++
	err := startOrder[i.at-1](i)
	if errors.Is(err, errBusy) { // the standby instance goes back to 1
		i.at, i.waited = 0, true
		return nil
	}
	return err
}

// work is one thing that happens in the instance or to its records.
func (i *simInstance) work(n int) error {
	s, k, rnd := i.s, i.sink.common(), i.s.rnd
	p := rnd.IntN(len(k.queue) + 1)
	switch {
	case n < 420:
		return i.frames(1 + rnd.IntN(5))
	case n < 480:
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

// frames hands over up to n frames, as long as the window is open.
func (i *simInstance) frames(n int) error {
	for ; n > 0 && !i.stopping && !i.core.Full(); n-- {
		payload, ok := i.sender.frame()
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
	if err == nil && len(i.sender.queue) == 0 && !i.core.Full() && !i.stopping {
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
	return i.sender.next == len(v.txs) && v.slot == v.end && !i.core.ledger.Pending()
}
