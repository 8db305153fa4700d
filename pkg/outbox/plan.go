package outbox

import (
	"fmt"

	"github.com/walstream/walstream/pkg/decode"
)

// plan is a table's mapping compiled for one layout: for each column of the
// table's list its place in the row, or -1. nil table: not an outbox of ours.
type plan struct {
	relation *decode.Relation
	table    *table
	at       []int
}

// planFor returns the plan of a layout. Layouts are compared by pointer: a
// changed one is a new one.
func (m *Mapping) planFor(r *decode.Relation) (*plan, error) {
	if m.last != nil && m.last.relation == r {
		return m.last, nil
	}
	p := m.plans[r.ID]
	if p == nil || p.relation != r {
		var err error
		if p, err = m.compile(r); err != nil {
			return nil, err
		}
		m.plans[r.ID] = p
	}
	m.last = p
	return p, nil
}

func (m *Mapping) compile(r *decode.Relation) (*plan, error) {
	p := &plan{relation: r, table: m.find(r.Namespace, r.Name)}
	if p.table == nil {
		return p, nil
	}
	if faults := p.table.check(r); len(faults) > 0 {
		return nil, faults[0]
	}
	p.at = make([]int, len(p.table.columns))
	for i := range p.table.columns {
		p.at[i] = columnIndex(r, p.table.columns[i].name)
		p.table.columns[i].seen = p.table.columns[i].seen || p.at[i] >= 0
	}
	return p, nil
}

// check compares the table's columns with a layout. A column that may be missing
// must not vanish under way: the rows behind the change would silently get
// another topic, key or event id.
func (t *table) check(r *decode.Relation) (faults []error) {
	for _, c := range t.columns {
		i := columnIndex(r, c.name)
		reason := ""
		switch {
		case i < 0 && c.seen && c.part != partTrace:
			reason = "it was renamed, dropped or taken out of the publication: restore it for the rows to come; " +
				"those written meanwhile are in the WAL without it"
		case i < 0 && c.required:
			reason = "the stream does not carry it: add it to table and publication, or name another by the setting"
		case i >= 0:
			reason = unfit(c.part, r.Columns[i].TypeOID)
		}
		if reason != "" {
			faults = append(faults, t.fault(c.name, c.setting, reason))
		}
	}
	if len(faults) == 0 {
		faults = t.checkSources(r)
	}
	return faults
}

// checkSources: topic and key must come from somewhere.
func (t *table) checkSources(r *decode.Relation) (faults []error) {
	there := func(at int) bool { return at >= 0 && columnIndex(r, t.columns[at].name) >= 0 }
	pattern := len(t.pattern) > 0
	for i, piece := range t.pattern {
		pattern = pattern && (piece.column == "" || there(t.patternAt[i]))
	}
	if t.topic == "" && !pattern && !there(t.single[partTopic]) {
		faults = append(faults, t.fault("topic", "topic-column",
			"nothing says which topic a row goes to: set topic, topic-column or topic-pattern"))
	}
	if !there(t.single[partKey]) && !there(t.single[partKeyFallback]) {
		faults = append(faults, t.fault("key", "key-column",
			"nothing gives the record's key, which keeps the order of what belongs together: set key-column"))
	}
	return faults
}

func (t *table) fault(column, setting, reason string) error {
	return &ColumnError{Table: t.String(), Column: column, Setting: setting, Reason: reason}
}

// unfit says why a part cannot come from a column of a type. Types defined in
// the database, domains among them, are judged by their values.
func unfit(p part, oid uint32) string {
	const firstUserOID = 16384
	switch {
	case oid >= firstUserOID:
	case p == partHeaders && !isJSON(oid) && !isText(oid):
		return "headers are spread from json or jsonb, not from " + typeName(oid)
	case p == partPartition && !isInt(oid):
		return "a partition is an integer, not " + typeName(oid)
	case p == partTimestamp && !isTimestamp(oid):
		return "a timestamp comes from timestamptz or timestamp, not from " + typeName(oid)
	}
	return ""
}

func typeName(oid uint32) string { return fmt.Sprintf("type %d::regtype", oid) }
