package recovery

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/snapshot"
)

// published is what the topics hold, in three sets: events by id and value, ids
// alone, and the ids of dead letters.
type published struct {
	keys   *snapshot.Keys
	shared bool // several tables: two may give out the same ids
	parts  [][]byte

	lost     map[string]string // of a tail that the server has lost, and in no row so far: by id and value
	lostMore uint64            // that are not kept
}

const (
	setEvents = iota
	setIDs
	setLetters
)

// mostLost events of a lost tail are kept, to see which of them have a row.
const mostLost = 100_000

func newPublished(shared bool) *published {
	return &published{keys: snapshot.NewKeys(), shared: shared, lost: map[string]string{}}
}

func (p *published) close() { p.keys.Close() }

func (p *published) ident(id []byte, topic string) [][]byte {
	p.parts = append(p.parts[:0], id)
	if p.shared {
		p.parts = append(p.parts, []byte(topic))
	}
	return p.parts
}

func (p *published) record(id []byte, topic string, value []byte, ofLostTail bool) error {
	ident := p.ident(id, topic)
	if err := p.keys.Add(setIDs, ident); err != nil {
		return err
	}
	if ofLostTail {
		p.lose(id, topic, value)
	}
	return p.keys.Add(setEvents, append(ident, value))
}

func (p *published) letter(id []byte, topic string) error {
	return p.keys.Add(setLetters, p.ident(id, topic))
}

func (p *published) lose(id []byte, topic string, value []byte) {
	if len(p.lost) == mostLost {
		p.lostMore++
		return
	}
	p.lost[lostKey(id, topic, value)] = topic + " " + string(id)
}

func lostKey(id []byte, topic string, value []byte) string {
	sum := sha256.New()
	for _, part := range [][]byte{id, []byte(topic), value} {
		_, _ = sum.Write(binary.AppendUvarint(nil, uint64(len(part)))) // a hash takes everything
		_, _ = sum.Write(part)
	}
	return string(sum.Sum(nil)[:16])
}

// verdict on a row: the event is in the topics; it is a dead letter; its id is in
// use there, with another value.
func (p *published) verdict(id []byte, e *outbox.Event) (found, aside, reused bool, err error) {
	value := outbox.DataOf(e.Value, e.Headers)
	if len(p.lost) > 0 {
		delete(p.lost, lostKey(id, e.Topic, value))
	}
	ident := p.ident(id, e.Topic)
	if reused, err = p.keys.Has(setIDs, ident); err != nil {
		return false, false, false, err
	}
	if reused {
		if found, err = p.keys.Has(setEvents, append(ident, value)); err != nil {
			return false, false, false, err
		}
	}
	aside, err = p.keys.Has(setLetters, p.ident(id, e.Topic))
	return found, aside, reused && !found, err
}
