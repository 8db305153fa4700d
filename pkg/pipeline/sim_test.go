package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

// sim is one simulated world: a PostgreSQL, a Kafka, and instances of walstream,
// which do anything they may. A seed decides everything.
type sim struct {
	rnd   *rand.Rand
	told  bool
	story []string
	now   time.Time

	keys         int
	limits       checkpoint.Limits
	weight       int              // of a row
	transactions schedule.Options // exactly-once
	exactly      int              // chance in a hundred that an instance delivers exactly once
	awake        int              // likewise that a paused one goes on for a while
	sleepy       int              // likewise that one is paused between two steps of its start

	server  *simServer
	broker  *simBroker
	source  map[int]*simTx // of each row
	began   []*simInstance // all there ever were
	live    []*simInstance // one, or with a standby instance two
	zombies []*simInstance // paused when they lost the slot, or gone with requests on their way
	stopped error          // a person is needed

	poison    simPoison
	snapshots simSnapshots
	simCounts
	rows, names, gaps int
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
	s := &sim{rnd: rnd, told: told, now: midnight, keys: 1 + rnd.IntN(5), source: map[int]*simTx{}, poison: newSimPoison(seed), snapshots: newSimSnapshots(seed)}
	s.limits = checkpoint.Limits{Events: 1 + rnd.IntN(12), Bytes: 1 << 30}
	s.transactions = s.scheduleOptions()
	s.weight = []int{1, 100 << 10, 512 << 10, 2 << 20}[rnd.IntN(4)]
	s.exactly = []int{0, 100, 100, 60}[rnd.IntN(4)]
	s.awake = []int{3, 8, 20}[rnd.IntN(3)]
	s.sleepy = []int{2, 5, 15}[rnd.IntN(3)]
	s.server = &simServer{s: s, end: 1000, xid: 700, timeline: 1, left: map[uint32]pglogrepl.LSN{}, deleted: map[int]bool{}}
	s.broker = &simBroker{s: s, log: make([][]simRecord, 2+rnd.IntN(3)), copies: map[int][]*simInstance{}, refuses: map[int]int{}}
	for range 1 + rnd.IntN(2) {
		s.live = append(s.live, s.newInstance())
	}
	return s
}

func (s *sim) newInstance() *simInstance {
	s.names++
	i := &simInstance{s: s, name: s.names, exactly: s.rnd.IntN(100) < s.exactly}
	s.began = append(s.began, i)
	return i
}

// run returns what was broken, if anything.
func (s *sim) run() (failure string) {
	defer func() {
		for _, i := range s.began {
			if i.drop != nil {
				i.drop()
			}
		}
	}()
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
	for range 50 + s.rnd.IntN(100) {
		if s.step(); s.stopped != nil {
			s.OtherHistory++
			return ""
		}
	}
	s.settle()
	return ""
}

// setUp is a first start: checkpoint in phase setup, then the slot.
func (s *sim) setUp() {
	first := s.live[0]
	first.server = checkpoint.Server{Timeline: 1}
	s.oldRows()
	if err := s.broker.write(first.base(), s.broker.claim(0, nil), first); err != nil {
		s.fail("%v", err)
	}
	s.server.slot = s.server.end
}

// step is one thing that happens somewhere.
func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.rnd.IntN(1000)) * time.Millisecond)
	if s.rnd.IntN(100) < s.awake {
		s.zombie()
	}
	if s.snapshots.wants && s.snapshots.rnd.IntN(20) == 0 {
		s.server.remove()
	}
	switch n := s.rnd.IntN(1000); {
	case n < 250:
		s.server.commit(s.rnd.IntN(4))
	case n < 270:
		s.server.commit(s.limits.Events * (1 + s.rnd.IntN(3))) // larger than the window
	case n < 310:
		s.server.end += pglogrepl.LSN(s.rnd.IntN(50))
	case n < 330:
		if s.rows > 0 {
			s.broker.refuses[1+s.rnd.IntN(s.rows+3)] = 1
		}
	case n < 335:
		s.broker.timeOut(s.rnd.IntN(schedule.Lanes))
	case n < 375:
		s.accident()
	default:
		s.act(s.live[s.rnd.IntN(len(s.live))])
	}
}

// moments for which nothing else happens: few, or up to so many.
func (s *sim) moments(most int) int { return 1 + s.rnd.IntN([]int{3, 10, most}[s.rnd.IntN(3)]) }

// act lets an instance go on.
func (s *sim) act(i *simInstance) {
	if i.streams() {
		for n := s.moments(60); n > 0 && slices.Contains(s.live, i) && s.stopped == nil; n-- {
			s.after(i, i.work(s.rnd.IntN(1000)))
		}
		return
	}
	for range 1 + s.rnd.IntN(9) {
		if s.after(i, i.starting()); i.streams() || !slices.Contains(s.live, i) {
			return
		}
		if s.rnd.IntN(100) < s.awake {
			s.zombie()
		}
		sleepy := s.sleepy
		if betweenClaims(i) {
			sleepy *= 4 // the one place where it is not whole
		}
		if s.rnd.IntN(100) < sleepy && i.sender != nil {
			s.pause(i)
			return
		}
	}
}

// accident is what happens to servers and to walstream, seldom.
func (s *sim) accident() {
	v := s.server
	i := s.live[s.rnd.IntN(len(s.live))]
	switch s.rnd.IntN(8) {
	case 0, 1:
		switch {
		case v.copied != nil:
			s.cutOff()
			v.restore()
		case v.timeline == 1:
			v.copyDisk()
		}
	case 2:
		if v.copied == nil {
			s.cutOff()
			v.promote()
		}
	case 3:
		// In phase setup nobody could tell: the slot is taken where it stands.
		if v.sender == nil && !v.restored && s.broker.newest().Phase == checkpoint.PhaseStream {
			v.meddle()
		}
	case 4:
		s.down(i, errDied)
	case 5, 6: // paused for longer than wal_sender_timeout
		if i.sender != nil {
			s.pause(i)
		}
	case 7:
		if i.streams() {
			s.say("%s: stopping", i)
			i.stopping, i.graceEnd = true, s.now.Add(simGrace)
			i.core.OnStop()
		}
	}
}

// cutOff is what walstream sees of a server that goes away.
func (s *sim) cutOff() {
	if s.server.sender == nil {
		return
	}
	if i := s.server.sender.owner; s.rnd.IntN(2) == 0 {
		s.pause(i) // it has not noticed yet
	} else {
		s.down(i, errDisconnected)
	}
}

// pause an instance until it has lost the slot; it may wake up at any time.
func (s *sim) pause(i *simInstance) {
	s.say("%s: paused", i)
	i.sender.buffer(s.rnd.IntN(60))
	i.paused = true
	s.leave(i)
}

// down is the end of an instance. What it has sent may still arrive.
func (s *sim) down(i *simInstance, why error) {
	if i.gone || i.paused {
		s.zombies = slices.DeleteFunc(s.zombies, func(z *simInstance) bool { return z == i })
		return
	}
	s.say("%s: down: %v", i, why)
	i.gone = true
	s.leave(i)
}

// leave the slot to others; an instance that has just begun takes the place.
func (s *sim) leave(i *simInstance) {
	if s.server.sender != nil && s.server.sender.owner == i {
		s.server.disconnect()
	}
	s.live[slices.Index(s.live, i)] = s.newInstance()
	if !i.gone || i.streams() {
		if len(s.zombies) == 4 {
			s.zombies = slices.Delete(s.zombies, 0, 1)
		}
		s.zombies = append(s.zombies, i)
	}
}

// zombie goes on for some moments, or for long, with what it had.
func (s *sim) zombie() {
	if len(s.zombies) == 0 {
		return
	}
	z := s.zombies[s.rnd.IntN(len(s.zombies))]
	for n := s.moments(150); n > 0 && slices.Contains(s.zombies, z); n-- {
		switch {
		case !z.streams():
			s.after(z, z.starting())
		case z.gone:
			s.arrive(z)
		default:
			s.after(z, z.work(s.rnd.IntN(1000)))
		}
	}
}

// arrive is what one that was killed had sent.
func (s *sim) arrive(z *simInstance) {
	k := z.sink.common()
	if s.rnd.IntN(3) > 0 {
		k.produce(s.rnd.IntN(len(k.queue)+1), 1+s.rnd.IntN(3))
		return
	}
	k.late()
	s.down(z, errDied)
}

// giveUp rows: an operator took a gap upon himself.
func (s *sim) giveUp(from, to pglogrepl.LSN) {
	s.gaps++
	for _, tx := range s.server.txs {
		tx.given = tx.given || tx.commit >= from && tx.commit < to
	}
}

// after looks at what an instance made of it.
func (s *sim) after(i *simInstance, err error) {
	var refusal *checkpoint.Refusal
	switch {
	case errors.Is(err, checkpoint.ErrOtherHistory) && !i.paused:
		s.otherHistoryOf(i, err)
	case errors.As(err, &refusal), errors.Is(err, checkpoint.ErrOtherHistory):
		s.say("%s: %v", i, err)
		s.down(i, err)
	case errors.Is(err, errRefused), errors.Is(err, errFenced), errors.Is(err, errUnknown), errors.Is(err, errDisconnected), errors.Is(err, errUnsettled):
		s.Failed++
		s.down(i, err)
	case err != nil:
		s.fail("%v", err)
	case i.streams() && i.snapshotOver():
		if !i.paused {
			s.down(i, errors.New("the snapshot is complete"))
		}
	case i.stopping && i.pages != nil && !i.paused && i.core.Drained():
		s.down(i, errors.New("stopped cleanly"))
	case i.stopping && !i.paused && i.core.Drained() && !i.completes():
		covered := i.core.ledger.Covered()
		if err := i.core.FinalStatus(s.now); err == nil && s.server.slot < covered && covered > i.decision.Start.Covered {
			s.fail("stopped cleanly with the slot at %s, the checkpoint at %s", s.server.slot, covered)
		}
		i.clean = !i.core.Partial()
		s.down(i, errors.New("stopped cleanly"))
	case i.stopping && s.transactions.MaxTime > simGrace && s.now.After(i.graceEnd):
		// Idle time behind which a large transaction follows becomes durable with
		// the part of it that is open, and that may take longer than the grace.
		s.down(i, errors.New("the grace ran out"))
	}
}

// simGrace for a clean stop.
const simGrace = 20 * time.Second

// otherHistoryOf stops, if it is one.
func (s *sim) otherHistoryOf(i *simInstance, err error) {
	// After an accepted gap no transaction proves the history until the next
	// one is published; a slot that goes back meanwhile, in a promotion, stops
	// the stream although nothing is lost: rather that than rows dropped.
	start := i.decision.Start
	unproved := s.gaps > 0 && start.CommitLSN == 0
	if !s.server.restored && !unproved {
		s.fail("stopped in the history that was published: %v", err)
	}
	s.say("%s: stopped: %v", i, err)
	s.stopped = err
}

// settle lets everything come to rest, and looks at the whole.
func (s *sim) settle() {
	clear(s.broker.refuses)
	s.zombies = nil
	s.poison.allowAll()
	s.say("settling")
	for round := 0; ; round++ {
		if round > 2000 {
			s.fail("does not settle: slot %s, WAL %s, checkpoint %s", s.server.slot, s.server.end, s.broker.newest().Covered)
		}
		for _, i := range slices.Clone(s.live) {
			err := i.settleStep()
			if errors.Is(err, errUnsettled) { // its time comes
				s.broker.timeOut(0)
				s.broker.timeOut(1)
			}
			var refusal *checkpoint.Refusal
			if errors.As(err, &refusal) { // and rightly so
				s.OtherHistory++
				return
			}
			if s.after(i, err); s.stopped != nil {
				s.OtherHistory++
				return
			}
			s.zombies = nil
		}
		if w := s.server.sender; w != nil && w.owner.streams() && w.owner.settledAll() {
			break
		}
	}
	s.verify()
	s.Settled++
}

func (i *simInstance) settleStep() error {
	if i.streams() {
		return i.settle()
	}
	return i.starting()
}

// verify is the look at the whole, in the end.
func (s *sim) verify() {
	promised := map[int]bool{}
	for _, tx := range s.server.txs {
		for _, row := range tx.rows {
			gone := (tx.old || tx.doubt) && s.snapshots.deleted[row.number] // it may have been before it was read
			promised[row.number] = !tx.given && !gone
			if !s.broker.visible(row) && promised[row.number] {
				s.fail("row %d of transaction %s is lost", row.number, tx.commit)
			}
		}
	}
	for p, log := range s.broker.log {
		newest := map[string]int{}
		seen := map[int]bool{}
		for _, record := range log {
			row := record.row
			if record.in != nil && !record.in.committed || seen[row.number] || !promised[row.number] {
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
