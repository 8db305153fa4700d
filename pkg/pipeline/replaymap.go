package pipeline

import (
	"maps"
	"strconv"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink"
)

// againMapper makes of a row the event that it was, marked as a replay's, and keeps
// count.
type againMapper struct {
	*outbox.Mapping
	replay   *Replay
	sum      checkpoint.Replay
	prefixed map[string]string // topics, with their prefix
	mapped   uint64            // rows, by this mapper
	passing  outbox.Event      // of a row that is published already
}

// Map leaves out what was not asked for.
func (m *againMapper) Map(row *decode.Row, e *outbox.Event) (ok bool, err error) {
	ok, err = m.Mapping.Map(row, e)
	if err == nil && !ok || e.Topic != "" && !m.wants(e) {
		return false, nil
	}
	if m.mapped++; err != nil {
		m.sum.Bad++
		m.mark(row, e)
		return false, err
	}
	m.mark(row, e)
	m.count(row, e)
	return true, nil
}

func (m *againMapper) wants(e *outbox.Event) bool {
	return (m.replay.Topic == "" || e.Topic == m.replay.Topic) && (m.replay.Key == nil || string(e.Key) == *m.replay.Key)
}

// mark the event as a replay's. A time of long ago would let retention take the
// record at once, unless it is the row's own.
func (m *againMapper) mark(row *decode.Row, e *outbox.Event) {
	if e.Topic != "" && m.replay.TopicPrefix != "" {
		name, ok := m.prefixed[e.Topic]
		if !ok {
			name = m.replay.TopicPrefix + e.Topic
			m.prefixed[e.Topic] = name
		}
		e.Topic = name
	}
	if e.Timestamp.Equal(row.Begin.CommitTime) {
		e.Timestamp = time.Now()
	}
	e.Headers = append(e.Headers, outbox.Header{Key: sink.HeaderReplay, Value: []byte(m.sum.ID)})
}

// mostTopics are told apart in the sums.
const mostTopics = 100

func (m *againMapper) count(row *decode.Row, e *outbox.Event) {
	s := &m.sum
	s.Rows++
	topic := e.Topic
	if _, known := s.Topics[topic]; !known && len(s.Topics) >= mostTopics {
		topic = ""
	}
	if s.Topics == nil {
		s.Topics = map[string]uint64{}
	}
	s.Topics[topic]++
	if id, err := strconv.ParseInt(e.RowID, 10, 64); err == nil {
		if s.Least == nil || id < *s.Least {
			s.Least = &id
		}
		if s.Greatest == nil || id > *s.Greatest {
			s.Greatest = &id
		}
	}
	if m.replay.Rewind != "" {
		s.LastCommit = row.Begin.CommitLSN.String()
		if s.FirstCommit == "" {
			s.FirstCommit = s.LastCommit
		}
	}
}

// countPassed counts a row of a transaction that was split: its end counts it whole.
func (m *againMapper) countPassed(row *decode.Row) {
	e := &m.passing
	switch ok, err := m.Mapping.Map(row, e); {
	case err != nil:
		m.sum.Bad++
	case ok && m.wants(e):
		if m.replay.TopicPrefix != "" {
			e.Topic = m.replay.TopicPrefix + e.Topic
		}
		m.count(row, e)
	}
}

// note is what was taken in so far.
func (m *againMapper) note(last bool) *checkpoint.Replay {
	note := m.sum
	note.Topics, note.Done = maps.Clone(m.sum.Topics), last
	return &note
}
