package outbox

import "github.com/walstream/walstream/pkg/decode"

// plan is a table's mapping compiled for one layout: for each column of the
// table's list its place in the row, or -1. nil table: not an outbox of ours.
type plan struct {
	relation *decode.Relation
	table    *table
	at       []int
	types    []uint32 // of the row's columns, with the base type in place of a domain
	textual  []bool   // their texts may be JSON
	spread   spreadForm
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
	if faults := m.check(p.table, r); len(faults) > 0 {
		return nil, faults[0]
	}
	p.at = make([]int, len(p.table.columns))
	for i := range p.table.columns {
		p.at[i] = columnIndex(r, p.table.columns[i].name)
		p.table.columns[i].seen = p.table.columns[i].seen || p.at[i] >= 0
	}
	p.types, p.textual = make([]uint32, len(r.Columns)), make([]bool, len(r.Columns))
	for i := range r.Columns {
		is := m.typeOf(&r.Columns[i])
		p.types[i], p.textual[i] = is.base, isTextual(is)
	}
	if at := p.column(p.table.single[partHeaders]); at >= 0 {
		p.spread = spreadOf(m.typeOf(&r.Columns[at]))
	}
	return p, nil
}

// check compares the table's columns with a layout. A column that may be missing
// must not vanish under way: the rows behind the change would silently get
// another topic, key or event id.
func (m *Mapping) check(t *table, r *decode.Relation) (faults []error) {
	for _, c := range t.columns {
		i := columnIndex(r, c.name)
		reason := ""
		switch {
		case i < 0 && c.seen && c.part != partTrace && c.part != partTraceContext:
			reason = "it was renamed, dropped or taken out of the publication: restore it for the rows to come; " +
				"those written meanwhile are in the WAL without it"
		case i < 0 && c.required:
			reason = "the stream does not carry it: add it to table and publication, or name another by the setting"
		case i >= 0:
			reason = unfit(c.part, m.typeOf(&r.Columns[i]))
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
	if t.topic == "" && !pattern && !there(t.single[partTopic]) && !there(t.single[partRoute]) {
		faults = append(faults, t.fault("topic", "topic-column",
			"nothing says which topic a row goes to: set topic, topic-column, topic-pattern or route-column"))
	}
	if t.key == nil && !there(t.single[partKey]) && !there(t.single[partKeyFallback]) {
		faults = append(faults, t.fault("key", "key-column",
			"nothing gives the record's key, which keeps the order of what belongs together: set key-column, or key"))
	}
	return faults
}

func (t *table) fault(column, setting, reason string) error {
	return &ColumnError{Table: t.String(), Column: column, Setting: setting, Reason: reason}
}
