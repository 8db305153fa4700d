package outbox

import (
	"errors"
	"strconv"
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
// mapping's. An error is a *ColumnError or a *RowError; with the latter e holds
// what can be had of the row. The event's bytes alias the row's or the Mapping's
// buffers, until the next Map; its strings stay.
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
	e.RowID, e.Topic, e.Table, e.Headers, e.Schema = "", "", p.table.full, e.Headers[:0], nil
	e.Numbered, e.Timed = false, false
	if err := r.fill(e); err != nil {
		if _, bad := errors.AsType[*RowError](err); bad {
			r.salvage(e)
		}
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
	e.ID, e.Numbered = r.integer(r.plan.column(t.single[partRowID]))
	if err = r.fillTopic(e); err != nil {
		return err
	}
	if err = r.fillKey(e); err != nil {
		return err
	}
	if err = r.fillValue(e); err != nil {
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
		e.Timed = t.transform == nil
	}
	if err = r.fillHeaders(e); err == nil && t.cloud != nil {
		err = r.fillCloudEvent(e)
	}
	if err == nil && t.transform != nil {
		err = r.transform(e)
	}
	if err == nil && t.framing != nil && e.Value != nil {
		err = r.fillSchema(e)
	}
	return err
}

// fillKey: the first column that is not NULL, else the one key for all.
func (r *rowMapper) fillKey(e *Event) (err error) {
	t := r.plan.table
	e.Key = nil
	for _, p := range [...]part{partKey, partKeyFallback} {
		at := r.plan.column(t.single[p])
		key, err := r.value(at)
		if err != nil {
			return err
		}
		if key != nil {
			e.Key, err = r.formatted(key, at, t.keyFormat)
			return err
		}
	}
	if e.Key = t.key; e.Key == nil && t.keyFormat == FormatJSON {
		e.Key = textNull
	}
	return nil
}

// fillValue: the column's, a tombstone, or an envelope.
func (r *rowMapper) fillValue(e *Event) (err error) {
	t := r.plan.table
	at := r.plan.column(t.single[partValue])
	if e.Value, err = r.value(at); err != nil {
		return err
	}
	if t.isBlank(e.Value, r.plan.types[at]) {
		e.Value = nil
	}
	if e.Value == nil && t.tombstone != Never {
		return nil
	}
	if t.envelope != nil {
		return r.fillEnvelope(e)
	}
	if e.Value == nil && t.cloud != nil && t.cloud.structured {
		return nil // an event without data
	}
	if e.Value == nil && t.valueFormat != FormatJSON {
		return r.bad(at, errNullValue)
	}
	e.Value, err = r.formatted(e.Value, at, t.valueFormat)
	return err
}

// isBlank: a text of nothing but blanks, or an empty bytea, when the setting has
// them for tombstones. Debezium's router looks at the words a ByteBuffer has for
// itself, which are never blank: on-blank is for whoever wants the same.
func (t *table) isBlank(value []byte, oid uint32) bool {
	switch {
	case t.tombstone != OnEmpty && t.tombstone != OnBlank:
		return false
	case oid == oidBytea:
		return t.tombstone == OnEmpty && len(value) == 0
	}
	for _, c := range value {
		if c > ' ' {
			return false
		}
	}
	return true
}

// fillTopic: the column, else the route, else the pattern, else the one topic
// for all.
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
	if t.route != nil {
		return r.fillRoute(e)
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

func (r *rowMapper) fillRoute(e *Event) error {
	value, err := r.part(partRoute)
	if err == nil && value == nil {
		err = r.bad(r.plan.column(r.plan.table.single[partRoute]), errNoTopic)
	}
	if err == nil {
		e.Topic = r.plan.table.route.topic(value)
	}
	return err
}

var errNullValue = errors.New("is NULL, which would be a tombstone, and tombstone is never")

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
	for i := range t.headers {
		at := r.plan.column(t.headers[i].at)
		if at < 0 {
			continue
		}
		value, err := r.value(at)
		if err == nil {
			value, err = r.formatted(value, at, t.headerFormat)
		}
		if err != nil {
			return err
		}
		e.Headers = append(e.Headers, Header{t.headers[i].name, value})
	}
	e.Headers = append(e.Headers, t.constants...)
	if t.idempotency != "" {
		if err := r.fillIdempotency(e, eventID); err != nil {
			return err
		}
	}
	traced := false
	if text, err := r.part(partHeaders); err != nil {
		return err
	} else if text != nil {
		if traced, err = r.spreadColumn(text, r.plan.spread, e); err != nil {
			return r.bad(r.plan.column(t.single[partHeaders]), err)
		}
	}
	if t.single[partTraceContext] >= 0 {
		if traced, err = r.fillTrace(e, traced); err != nil {
			return err
		}
	}
	trace, err := r.part(partTrace)
	if trace != nil && !traced {
		e.Headers = append(e.Headers, Header{HeaderTrace, trace})
	}
	return err
}

// fillIdempotency: the column's key, else the derived one, else no header.
func (r *rowMapper) fillIdempotency(e *Event, eventID []byte) error {
	t := r.plan.table
	key, err := r.part(partIdempotency)
	if err != nil {
		return err
	}
	if key == nil && t.derive {
		start := len(r.scratch)
		r.scratch = appendIdempotencyKey(r.scratch, eventID, e.Topic, e.Key)
		key = since(r.scratch, start)
	}
	if key != nil {
		e.Headers = append(e.Headers, Header{t.idempotency, key})
	}
	return nil
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
	v, oid := &r.row.Values[at], r.plan.types[at]
	if v.Format == decode.ValueBinary { // BinaryOK has not counted on what is beneath a domain
		oid = r.row.Relation.Columns[at].TypeOID
	}
	text, r.scratch, err = render(*v, oid, r.scratch)
	if err != nil {
		return nil, r.bad(at, err)
	}
	return text, nil
}

// integer is the value of a column of an integer type.
func (r *rowMapper) integer(at int) (n int64, ok bool) {
	if at < 0 || !isInt(r.plan.types[at]) {
		return 0, false
	}
	switch v := &r.row.Values[at]; v.Format {
	case decode.ValueBinary:
		return binaryInt(v.Data)
	case decode.ValueText:
		n, err := strconv.ParseInt(string(v.Data), 10, 64)
		return n, err == nil
	}
	return 0, false
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
