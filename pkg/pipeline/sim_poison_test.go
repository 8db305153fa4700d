package pipeline

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink"
)

// simPoison are the rows that cannot become events, and what becomes of them. Its
// own source of chance: what else a seed does stays as it is.
type simPoison struct {
	rnd     *rand.Rand
	chance  int // in a hundred, of a row to be bad
	policy  sink.Policy
	bad     map[int]bool
	allowed map[int]sink.Policy // by an operator, past a stop
	skipped map[int]bool
}

func newSimPoison(seed uint64) simPoison {
	rnd := rand.New(rand.NewPCG(seed, 1))
	return simPoison{
		rnd: rnd, chance: []int{0, 0, 5, 40}[rnd.IntN(4)], policy: []sink.Policy{sink.Stop, sink.Skip, sink.DeadLetter}[rnd.IntN(3)],
		bad: map[int]bool{}, allowed: map[int]sink.Policy{}, skipped: map[int]bool{},
	}
}

// fate decides whether a new row is bad.
func (p *simPoison) fate(number int) { p.bad[number] = p.rnd.IntN(100) < p.chance }

// value of the row on the wire.
func (p *simPoison) value(number int) string {
	if p.bad[number] {
		return badValue + fmt.Sprint(number)
	}
	return fmt.Sprint(number)
}

// allowAll is an operator who lets everything pass.
func (p *simPoison) allowAll() {
	for number := range p.bad {
		if p.allowed[number] == "" {
			p.allowed[number] = sink.DeadLetter
		}
	}
}

// badValue begins the value of a row that the mapper refuses.
const badValue = "bad:"

func badRow(event *outbox.Event) error {
	value, bad := strings.CutPrefix(string(event.Value), badValue)
	if !bad {
		return nil
	}
	event.Value = []byte(value)
	return &outbox.RowError{Position: event.Position, Reason: "bad"}
}

// reject is Reject's common part. ok is false when the stream stops before the row.
func (k *simSink) reject(e *outbox.Event, t checkpoint.Ticket) (event simEvent, ok bool) {
	s := k.b.s
	event = k.take(e, t)
	number := event.row.number
	policy := s.poison.policy
	if allowed := s.poison.allowed[number]; policy == sink.Stop && allowed != "" {
		policy = allowed
	}
	s.say("%s: row %d is bad: %s", k.i, number, policy)
	switch policy {
	case sink.Stop:
		k.blocked = number
		s.Blocked++
		return event, false
	case sink.Skip:
		event.skip = true
		s.Skipped++
	case sink.DeadLetter:
		event.letter = true
		s.Letters++
	}
	return event, true
}

// skipOver acknowledges a row that is not published.
func (k *simSink) skipOver(e simEvent) {
	k.b.s.poison.skipped[e.row.number] = true
	k.report.Acked = append(k.report.Acked, e.ticket)
}

// stop ends a sink that stands before a bad row, when what lies before it is
// done or has taken too long; an operator lets the row pass, sooner or later.
func (k *simSink) stop() {
	if k.blocked == 0 || k.err != nil || k.inFlight > len(k.report.Acked)+1 && k.b.s.poison.rnd.IntN(10) > 0 {
		return
	}
	if k.b.s.poison.rnd.IntN(2) == 0 {
		k.b.s.poison.allowed[k.blocked] = []sink.Policy{sink.Skip, sink.DeadLetter}[k.b.s.poison.rnd.IntN(2)]
	}
	k.fail(errRefused)
}

func (k *simIdempotent) Reject(e *outbox.Event, _ *outbox.RowError, t checkpoint.Ticket) {
	if k.blocked != 0 {
		return
	}
	switch event, ok := k.reject(e, t); {
	case !ok:
	case event.skip:
		k.skipOver(event)
	default:
		k.enqueue(event)
	}
}

func (k *simTransactional) Reject(e *outbox.Event, _ *outbox.RowError, t checkpoint.Ticket) {
	if k.blocked != 0 {
		return
	}
	event, ok := k.reject(e, t)
	if !ok {
		k.schedule.Over()
		return
	}
	k.put(event)
}

// partitionOf the row: the last one is that of dead letters.
func (e *simEvent) partitionOf(b *simBroker) int {
	if e.letter {
		return len(b.log) - 1
	}
	return b.partition(e.row.key)
}

// checkPlace: good rows go to the topic, bad ones never.
func (b *simBroker) checkPlace(p int, row simRow) {
	if letters := p == len(b.log)-1; letters != b.s.poison.bad[row.number] {
		b.s.fail("row %d, bad %t, in partition %d of %d", row.number, b.s.poison.bad[row.number], p, len(b.log))
	}
	if b.s.poison.policy == sink.Skip && b.s.poison.bad[row.number] {
		b.s.fail("row %d is published, and the policy is to skip it", row.number)
	}
}
