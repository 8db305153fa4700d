package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink"
)

// readLetters reads the dead letters of all pipelines of the table, all there are:
// they are few, and later than their rows. It returns the topics that retries have published to.
func (a *audit) readLetters(ctx context.Context) (retriedTo []string, err error) {
	a.letters = lettersFacts{}
	places := map[place]uint32{}
	parts, err := a.kafka.EachLetter(ctx, a.cfg.Earlier, a.cfg.Wait, func(l *sink.Letter, raw *sink.TopicRecord) error {
		at := place{l.In, l.Partition}
		number, ok := places[at]
		if !ok {
			number = a.judge.place(l.In, l.Partition)
			places[at] = number
		}
		return a.judge.addLetter(letterOf(l, raw, number))
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
