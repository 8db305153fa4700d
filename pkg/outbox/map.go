package outbox

import (
	"errors"
	"strings"

	"github.com/walstream/walstream/pkg/decode"
)

const (
	scratchSize = 4 << 10
	// scratchKept bounds the buffer that a row leaves behind: one row of 100 MB
	// must not be paid for ever after.
	scratchKept = 1 << 20
	idsSize     = 4 << 10
)

// rowMapper is the work on one row.
type rowMapper struct {
	*Mapping
	row  *decode.Row
	plan *plan
	id   string
}

// Map fills e from row. ok is false when the row's table is not one of the
// mapping's. An error is a *ColumnError or a *RowError. The event's bytes alias
// the row's or the Mapping's buffers, until the next Map; its strings stay.
func (m *Mapping) Map(row *decode.Row, e *Event) (ok bool, err error) {
	p, err := m.planFor(row.Relation)
	if err != nil || p.table == nil {
		return false, err
	}
	if cap(m.scratch) > scratchKept {
		m.scratch = make([]byte, 0, scratchSize)
	}
	m.scratch = m.scratch[:0]
	r := rowMapper{m, row, p, ""}
	e.Position, e.Partition, e.Timestamp = row.Position, -1, row.Begin.CommitTime
	e.RowID, e.Topic, e.Headers = "", "", e.Headers[:0]
	if err := r.fill(e); err != nil {
		return false, err
	}
	return true, nil
}

// fill goes through the parts of the record.
func (r *rowMapper) fill(e *Event) (err error) {
	t := r.plan.table
	id, err := r.part(partRowID)
	if err != nil {
		return err
	}
	r.id = r.keepID(id)
	e.RowID = r.id
	if err = r.fillTopic(e); err != nil {
		return err
	}
	if e.Key, err = r.part(partKey); err == nil && e.Key == nil {
		e.Key, err = r.part(partKeyFallback)
	}
	if err != nil {
		return err
	}
	if e.Value, err = r.part(partValue); err != nil {
		return err
	}
	if c := r.plan.column(t.single[partPartition]); c >= 0 && !r.row.Values[c].Null() {
		if e.Partition, err = partitionOf(r.row.Values[c], r.row.Relation.Columns[c].TypeOID); err != nil {
			return r.bad(c, err)
		}
	}
	if c := r.plan.column(t.single[partTimestamp]); c >= 0 && !r.row.Values[c].Null() {
		if e.Timestamp, err = timestampOf(r.row.Values[c], r.row.Relation.Columns[c].TypeOID); err != nil {
			return r.bad(c, err)
		}
	}
	return r.fillHeaders(e)
}

// fillTopic: the column, else the pattern, else the one topic for all.
func (r *rowMapper) fillTopic(e *Event) error {
	t := r.plan.table
	topic, err := r.part(partTopic)
	if err != nil {
		return err
	}
	if topic != nil {
		e.Topic = r.topics.of(topic)
		return nil
	}
	if len(t.pattern) == 0 {
		if e.Topic = t.topic; e.Topic == "" {
			return r.bad(r.plan.column(t.single[partTopic]), errNoTopic)
		}
		return nil
	}
	r.topicText = r.topicText[:0]
	for i, piece := range t.pattern {
		r.topicText = append(r.topicText, piece.text...)
		if piece.column == "" {
			continue
		}
		at := r.plan.column(t.patternAt[i])
		value, err := r.value(at)
		if err != nil {
			return err
		}
		if value == nil {
			if at < 0 { // our table without aggregate_type: the topic column is there, and NULL
				at = r.plan.column(t.single[partTopic])
			}
			return r.bad(at, errNoTopic)
		}
		r.topicText = append(r.topicText, value...)
	}
	e.Topic = r.topics.of(r.topicText)
	return nil
}

var errNoTopic = errors.New("is NULL, so nothing says which topic the row goes to")

// fillHeaders keeps one order for all rows of a table.
func (r *rowMapper) fillHeaders(e *Event) error {
	t := r.plan.table
	start := len(r.scratch)
	r.scratch = r.row.Position.AppendHeader(r.scratch, r.timeline)
	position := since(r.scratch, start)
	eventID, err := r.part(partEventID)
	if err != nil {
		return err
	}
	if eventID == nil {
		eventID = position
	}
	e.Headers = append(e.Headers,
		Header{HeaderPosition, position}, Header{HeaderEventID, eventID}, Header{HeaderPipeline, t.pipeline})
	for i, name := range t.headerNames {
		at := r.plan.column(t.headerAt[i])
		if at < 0 {
			continue
		}
		value, err := r.value(at)
		if err != nil {
			return err
		}
		e.Headers = append(e.Headers, Header{name, value})
	}
	traced := false
	if object, err := r.part(partHeaders); err != nil {
		return err
	} else if object != nil {
		if traced, err = r.spread(object, e); err != nil {
			return r.bad(r.plan.column(t.single[partHeaders]), err)
		}
	}
	trace, err := r.part(partTrace)
	if trace != nil && !traced {
		e.Headers = append(e.Headers, Header{HeaderTrace, trace})
	}
	return err
}

// column is the place in the row of a column of the table's list, -1 for none.
func (p *plan) column(at int) int {
	if at < 0 {
		return -1
	}
	return p.at[at]
}

// part renders the column of a part: nil when it is NULL or not there.
func (r *rowMapper) part(p part) ([]byte, error) {
	return r.value(r.plan.column(r.plan.table.single[p]))
}

func (r *rowMapper) value(at int) (text []byte, err error) {
	if at < 0 {
		return nil, nil
	}
	text, r.scratch, err = render(r.row.Values[at], r.row.Relation.Columns[at].TypeOID, r.scratch)
	if err != nil {
		return nil, r.bad(at, err)
	}
	return text, nil
}

// bad is the error of a value.
func (r *rowMapper) bad(at int, reason error) error {
	t := r.plan.table
	column := r.row.Relation.Columns[at]
	if errors.Is(reason, ErrTextNeeded) {
		return &ColumnError{Table: t.String(), Column: column.Name, Setting: "its type", Reason: reason.Error() +
			": it was changed while streaming in binary", Err: ErrTextNeeded}
	}
	return &RowError{
		Table: t.String(), RowID: r.id, Position: r.row.Position, Column: column.Name,
		ValueLength: len(r.row.Values[at].Data), Reason: reason.Error(),
	}
}

// keepID makes a string of a row's id. The strings share allocations; a Builder
// that is never reset never changes what it has given out.
func (m *Mapping) keepID(id []byte) string {
	if len(id) == 0 {
		return ""
	}
	if m.ids.Cap()-m.ids.Len() < len(id) {
		m.ids = strings.Builder{}
		m.ids.Grow(max(idsSize, len(id)))
	}
	start := m.ids.Len()
	m.ids.Write(id)
	return m.ids.String()[start:]
}
