package pipeline

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
)

var (
	seedsFlag = flag.Int("seeds", envInt("SEEDS", 3000), "simulated seeds; also SEEDS in the environment")
	seedFlag  = flag.Int("seed", envInt("SEED", 1), "the first of them; also SEED in the environment")
)

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// TestSimulation drives the core with a PostgreSQL and a Kafka that do anything
// they may: answer in any order, delay, refuse, crash, wake up as zombies, come
// back from a copy or on another timeline. A seed decides everything; a failing
// one is run again with its story told.
//
// What must hold, whatever happens:
//   - no row is lost: none below the slot's position is missing in Kafka, at any
//     status; at the end, none at all;
//   - a row is published again only when the checkpoint of the start did not
//     cover it, and never by the same instance;
//   - per key, first appearances are in commit order;
//   - nothing is confirmed beyond a durable checkpoint, or beyond the oldest row
//     without an answer; what is confirmed is a commit's end or a keepalive;
//   - the window holds;
//   - in the end everything settles: the slot stands at the end of the WAL,
//     unless the server's history is another one, which stops the stream.
func TestSimulation(t *testing.T) {
	var sum simCounts
	for n := range *seedsFlag {
		seed := uint64(*seedFlag + n)
		s := newSim(seed, false)
		failure := s.run()
		if failure != "" {
			told := newSim(seed, true)
			told.run()
			t.Fatalf("seed %d (again with: go test ./pkg/pipeline -run TestSimulation -seed %d -seeds 1)\n%s\n%s",
				seed, seed, failure, strings.Join(told.story, "\n"))
		}
		sum.add(s)
	}
	t.Logf("%d seeds: %+v", *seedsFlag, sum)
	if *seedsFlag >= 1000 {
		sum.requireAll(t)
	}
}

// simCounts show that a simulation met what it is there for.
type simCounts struct {
	Rows, Starts, Duplicates, Fenced, Accepted, OtherHistory, Refused, Settled int
}

func (c *simCounts) add(s *sim) {
	c.Rows += s.rows
	c.Starts += s.starts
	c.Fenced += s.fenced
	c.Accepted += s.accepted
	c.Refused += s.refused
	for _, log := range s.broker.log {
		c.Duplicates += len(log)
	}
	c.Duplicates -= len(s.broker.published)
	if s.stopped != nil {
		c.OtherHistory++
	} else {
		c.Settled++
	}
}

func (c *simCounts) requireAll(t *testing.T) {
	if c.Duplicates == 0 || c.Fenced == 0 || c.Accepted == 0 || c.OtherHistory == 0 || c.Refused == 0 || c.Settled == 0 {
		t.Errorf("the simulation never meets something it is there for: %+v", c)
	}
}

// sim is one simulated world.
type sim struct {
	rnd   *rand.Rand
	told  bool
	story []string
	now   time.Time

	keys     int
	limits   checkpoint.Limits
	server   *simServer
	broker   *simBroker
	instance *simInstance   // nil while down
	zombies  []*simInstance // paused when they lost the slot
	stopped  error          // a person is needed

	rows, starts, fenced, accepted, gaps, refused int
}

// simInstance is one run of walstream.
type simInstance struct {
	core     *Core
	sink     *simSink
	sender   *simWalsender
	stopping bool
}

// simFailure is a broken promise.
type simFailure string

func (s *sim) fail(format string, args ...any) { panic(simFailure(fmt.Sprintf(format, args...))) }

func (s *sim) say(format string, args ...any) {
	if s.told {
		s.story = append(s.story, fmt.Sprintf(format, args...))
	}
}

func newSim(seed uint64, told bool) *sim {
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := &sim{rnd: rnd, told: told, now: midnight, keys: 1 + rnd.IntN(5)}
	s.limits = checkpoint.Limits{Events: 1 + rnd.IntN(12), Bytes: 1 << 30}
	s.server = &simServer{s: s, end: 1000, xid: 700, timeline: 1, left: map[uint32]pglogrepl.LSN{}}
	s.broker = &simBroker{s: s, log: make([][]simRow, 1+rnd.IntN(3)), published: map[int]bool{}, refuses: map[int]int{}}
	return s
}

// run returns what was broken, if anything.
func (s *sim) run() (failure string) {
	defer func() {
		if r := recover(); r != nil {
			broken, ours := r.(simFailure)
			if text, isText := r.(string); isText && strings.HasPrefix(text, "walstream: bug") {
				broken, ours = simFailure(text), true
			}
			if !ours {
				panic(r)
			}
			failure = string(broken)
		}
	}()
	s.setUp()
	for range 100 + s.rnd.IntN(200) {
		if s.step(); s.stopped != nil {
			return ""
		}
	}
	s.settle()
	return ""
}

// setUp is a first start: checkpoint in phase setup, then the slot.
func (s *sim) setUp() {
	s.broker.write(s.base())
	s.server.slot = s.server.end
}

func (s *sim) base() checkpoint.Record {
	return checkpoint.Record{
		Pipeline: "p", SystemID: "7", Timeline: s.server.timeline, Database: "d", Slot: "s", Phase: checkpoint.PhaseSetup,
	}
}

// step is one thing that happens somewhere.
func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.rnd.IntN(300)) * time.Millisecond)
	switch n := s.rnd.IntN(1000); {
	case n < 80:
		s.server.commit(s.rnd.IntN(4))
	case n < 90:
		s.server.commit(s.limits.Events * (1 + s.rnd.IntN(3))) // larger than the window
	case n < 110:
		s.server.end += pglogrepl.LSN(s.rnd.IntN(50))
	case n < 120:
		if s.rows > 0 {
			s.broker.refuses[1+s.rnd.IntN(s.rows+3)] = 1
		}
	case n < 140:
		s.accident()
	case n < 200:
		s.zombie()
	case s.instance == nil:
		s.start()
	default:
		s.work(n)
	}
}

// accident is what happens to servers and to walstream, seldom.
func (s *sim) accident() {
	v := s.server
	switch s.rnd.IntN(8) {
	case 0, 1:
		switch {
		case v.copied != nil:
			v.restore()
			s.down(errDisconnected)
		case v.timeline == 1:
			v.copyDisk()
		}
	case 2:
		if v.copied == nil {
			v.promote()
			s.down(errDisconnected)
		}
	case 3:
		// In phase setup nobody could tell: the slot is taken where it stands.
		if v.sender == nil && !v.restored && s.broker.record.Phase == checkpoint.PhaseStream {
			v.meddle()
		}
	case 4, 5:
		s.down(errors.New("killed"))
	case 6:
		if s.instance != nil { // paused for longer than wal_sender_timeout
			s.say("paused")
			s.zombies = append(s.zombies, s.instance)
			s.server.disconnect()
			s.instance = nil
		}
	case 7:
		if s.instance != nil {
			s.say("stopping")
			s.instance.stopping = true
			s.instance.core.OnStop()
		}
	}
}

// down is the end of the instance.
func (s *sim) down(why error) {
	if s.instance != nil {
		s.say("%d: down: %v", s.instance.sink.name, why)
		s.server.disconnect()
		s.instance = nil
	}
}

// zombie is a paused instance that goes on for a moment, without its connection.
func (s *sim) zombie() {
	if len(s.zombies) == 0 {
		return
	}
	z := s.zombies[s.rnd.IntN(len(s.zombies))]
	p := s.rnd.IntN(len(z.sink.queue))
	switch s.rnd.IntN(4) {
	case 0:
		z.sink.produce(p, 1+s.rnd.IntN(3))
	case 1:
		z.sink.answer(p, 1+s.rnd.IntN(3))
	case 2:
		z.sink.commit(0)
	default:
		_ = z.core.OnAcks(s.now) // an error ends it; here it may go on, which is worse
	}
}

// start is the order of every start. A zombie may do something between any two
// of its steps.
func (s *sim) start() {
	s.starts++
	sender := s.server.connect() // takes the slot
	s.zombie()
	s.broker.epoch++ // fences
	s.zombie()
	record, slot := s.broker.record, checkpoint.Slot{Exists: true, Confirmed: s.server.slot}
	decision, err := s.decide(record, slot)
	if err != nil {
		s.say("start refused: %v", err)
		s.server.disconnect()
		return
	}
	base := s.base().With(decision.Start)
	if decision.Accepted != "" || record.Phase == checkpoint.PhaseSetup {
		s.broker.write(base)
	}
	sender.alsoLegal = decision.Start.Covered
	sink := newSimSink(s.broker, s.starts, s.limits.Events, decision.Start, base)
	s.say("%d: start at %s (commit %s), slot %s", sink.name, decision.Start.Covered, decision.Start.CommitLSN, slot.Confirmed)
	s.instance = &simInstance{sink: sink, sender: sender, core: NewCore(CoreConfig{
		Start: decision.Start, SlotConfirmed: slot.Confirmed, Limits: s.limits, Mapper: keyValueMapper{},
		Sink: sink, Source: sender, Pacer: NewPacer(5*time.Second, 15*time.Second, s.now),
	})}
}

// decide compares, and answers a refusal as an operator would who did what its
// remedy says.
func (s *sim) decide(record checkpoint.Record, slot checkpoint.Slot) (checkpoint.Decision, error) {
	var accept checkpoint.Accept
	for {
		decision, err := checkpoint.Compare(&record, slot, s.server.identity(record), "s", accept)
		if err == nil {
			if decision.Accepted != "" {
				s.accepted++
				s.say("accepted: %s", decision.Accepted)
			}
			return decision, nil
		}
		var refusal *checkpoint.Refusal
		if !errors.As(err, &refusal) {
			s.fail("compare: %v", err)
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
			accept.LostTail = s.server.left[record.Timeline]
		case checkpoint.RefuseGap:
			if accept.GapTo != 0 {
				s.fail("refused again: %v", err)
			}
			s.gaps++
			accept.GapFrom, accept.GapTo = record.Covered, slot.Confirmed
			if accept.LostTail != 0 {
				accept.GapFrom = accept.LostTail
			}
			for _, tx := range s.server.txs {
				tx.given = tx.given || tx.commit >= accept.GapFrom && tx.commit < slot.Confirmed
			}
		default:
			s.fail("refused: %v", err)
		}
	}
}

// work is one thing that happens in the instance or to its records.
func (s *sim) work(n int) {
	i, rnd := s.instance, s.rnd
	p := rnd.IntN(len(i.sink.queue))
	var err error
	switch {
	case n < 500:
		err = s.frames(1 + rnd.IntN(4))
	case n < 560:
		if payload, ok := i.sender.keepalive(rnd, false); ok && !i.stopping && !i.core.Full() {
			err = i.core.OnFrame(payload, s.now)
		}
	case n < 680:
		i.sink.produce(p, 1+rnd.IntN(4))
	case n < 790:
		i.sink.answer(p, 1+rnd.IntN(4))
	case n < 850:
		trouble := rnd.IntN(40)
		i.sink.commit(trouble)
	case n < 950:
		err = i.core.OnAcks(s.now)
	default:
		s.now = s.now.Add(time.Duration(rnd.IntN(6000)) * time.Millisecond)
		err = i.core.OnTick(s.now)
	}
	s.after(err)
}

// frames hands over up to n frames, as long as the window is open.
func (s *sim) frames(n int) error {
	i := s.instance
	for ; n > 0 && !i.stopping && !i.core.Full(); n-- {
		payload, ok := i.sender.frame()
		if !ok {
			return nil
		}
		if err := i.core.OnFrame(payload, s.now); err != nil {
			return err
		}
	}
	return nil
}

// after looks at what the instance made of it.
func (s *sim) after(err error) {
	i := s.instance
	if i == nil {
		return
	}
	switch {
	case errors.Is(err, checkpoint.ErrOtherHistory):
		// After an accepted gap no transaction proves the history until the next
		// one is published; a slot that goes back meanwhile, in a promotion, stops
		// the stream although nothing is lost: rather that than rows dropped.
		unproved := s.gaps > 0 && i.sink.start.CommitLSN == 0
		if !s.server.restored && !unproved {
			s.fail("stopped in the history that was published: %v", err)
		}
		s.say("stopped: %v", err)
		s.stopped = err
		s.down(err)
	case errors.Is(err, errRefused), errors.Is(err, errFenced), errors.Is(err, errUnknown), errors.Is(err, errDisconnected):
		s.refused++
		s.down(err)
	case err != nil:
		s.fail("%v", err)
	case i.stopping && i.core.Drained():
		if err := i.core.FinalStatus(s.now); err == nil && s.server.slot < i.core.ledger.Covered() && i.core.ledger.Covered() > i.sink.start.Covered {
			s.fail("stopped cleanly with the slot at %s, the checkpoint at %s", s.server.slot, i.core.ledger.Covered())
		}
		s.down(errors.New("stopped cleanly"))
	}
}

// settle lets everything come to rest, and looks at the whole.
func (s *sim) settle() {
	clear(s.broker.refuses)
	s.say("settling")
	for round := 0; ; round++ {
		if round > 2000 {
			s.fail("does not settle: slot %s, WAL %s, checkpoint %s", s.server.slot, s.server.end, s.broker.record.Covered)
		}
		if s.instance == nil {
			s.start()
			if s.instance == nil { // refused, and rightly so
				s.stopped = errors.New("refused")
				return
			}
		}
		if done := s.settleRound(); s.stopped != nil {
			return
		} else if done {
			break
		}
	}
	s.verify()
}

func (s *sim) settleRound() (done bool) {
	i := s.instance
	err := s.frames(1 << 20)
	if err == nil && len(i.sender.queue) == 0 && !i.core.Full() && !i.stopping {
		if payload, ok := i.sender.keepalive(s.rnd, true); ok {
			err = i.core.OnFrame(payload, s.now)
		}
	}
	for p := range i.sink.queue {
		i.sink.produce(p, 1<<20)
		i.sink.answer(p, 1<<20)
	}
	i.sink.commit(0)
	if err == nil {
		err = i.core.OnAcks(s.now)
	}
	s.now = s.now.Add(time.Second)
	if err == nil {
		err = i.core.OnTick(s.now)
	}
	s.after(err)
	return s.instance != nil && i.sender.next == len(s.server.txs) && s.server.slot == s.server.end && !i.core.ledger.Pending()
}

// verify is the look at the whole, in the end.
func (s *sim) verify() {
	promised := map[int]bool{}
	for _, tx := range s.server.txs {
		for _, row := range tx.rows {
			promised[row.number] = !tx.given
			if !s.broker.published[row.number] && !tx.given {
				s.fail("row %d of transaction %s is lost", row.number, tx.commit)
			}
		}
	}
	for p, log := range s.broker.log {
		newest := map[string]int{}
		seen := map[int]bool{}
		for _, row := range log {
			if seen[row.number] || !promised[row.number] {
				continue
			}
			seen[row.number] = true
			if row.number < newest[row.key] {
				s.fail("partition %d, key %s: row %d first appears after row %d", p, row.key, row.number, newest[row.key])
			}
			newest[row.key] = row.number
		}
	}
}
