package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink"
)

// readLetters reads the dead letters, all there are: they are few, and later than
// their rows. It returns the topics that retries have published to.
func (a *audit) readLetters(ctx context.Context) (retriedTo []string, err error) {
	a.letters = lettersFacts{}
	places := map[int32]uint32{}
	parts, err := a.kafka.EachLetter(ctx, a.cfg.Wait, func(l *sink.Letter, raw *sink.TopicRecord) error {
		place, ok := places[l.Partition]
		if !ok {
			place = a.judge.place(sink.DeadLetterTopic(a.cfg.Pipeline), l.Partition)
			places[l.Partition] = place
		}
		return a.judge.addLetter(letterOf(l, raw, place))
	}, func(_, topic string, _ time.Time) { retriedTo = append(retriedTo, topic) })
	if _, denied := errors.AsType[*sink.AccessError](err); denied {
		a.letters.unread = err.Error()
		return retriedTo, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	for _, p := range parts {
		a.letters.topic = p.Topic
		a.letters.forgotten = a.letters.forgotten || p.Start > 0
		a.letters.hidden = a.letters.hidden || p.Visible < p.End
	}
	return retriedTo, nil
}

func letterOf(l *sink.Letter, raw *sink.TopicRecord, place uint32) *letter {
	own := &letter{
		place: place, offset: l.Offset, topic: l.Topic, key: raw.Key, value: outbox.DataOf(raw.Value, raw.Headers), unframed: l.Unframed,
		lsn: l.Position.CommitLSN, ordinal: l.Position.Ordinal,
	}
	if l.Keyless {
		own.key = nil
	}
	if l.EventID != l.PositionText {
		own.id = []byte(l.EventID)
	}
	return own
}
