package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/walstream/walstream/pkg/decode"
)

// TableNeed is a table and the columns of it that the mapping reads.
type TableNeed struct {
	Schema, Name string
	Columns      []string
	// Absent would be read too, if the stream carried them: columns of our own
	// table's shape that this one does without, which Resolve found out.
	Absent []string
	// Settings that name each of Columns, as a person would mend them.
	Settings map[string]string
}

// Mapping turns rows into events. One goroutine uses it. The use of one session:
// Resolve, then Map for each row.
type Mapping struct {
	// ReservedHeaders counts members of headers columns that were dropped
	// because their name is one of walstream's own.
	ReservedHeaders uint64

	tables   []*table
	timeline uint32
	types    map[uint32]typeInfo // of the database's own types, as Resolve saw them
	plans    map[uint32]*plan    // by relation ID
	last     *plan

	topics, names interner
	scratch       []byte          // bytes of the current event
	topicText     []byte          // a topic being put together
	envelope      []byte          // an enveloped value
	text          []byte          // a template being put together
	ids           strings.Builder // texts of row ids, many to an allocation
}

// NewMapping checks the settings and reports everything that is wrong with them.
func NewMapping(configs []MappingConfig) (*Mapping, error) {
	m := &Mapping{
		types: make(map[uint32]typeInfo), plans: make(map[uint32]*plan), scratch: make([]byte, 0, scratchSize),
	}
	var faults []error
	if len(configs) == 0 {
		faults = append(faults, errors.New("no outbox table is named"))
	}
	for i := range configs {
		c := &configs[i]
		t, errs := newTable(c)
		for _, err := range errs {
			faults = append(faults, fmt.Errorf("outbox %s.%s: %w", c.Schema, c.Table, err))
		}
		if m.find(c.Schema, c.Table) != nil {
			faults = append(faults, fmt.Errorf("outbox %s.%s is named twice", c.Schema, c.Table))
		}
		m.tables = append(m.tables, t)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return m, nil
}

func (m *Mapping) find(schema, name string) *table {
	for _, t := range m.tables {
		if t.name == name && t.schema == schema {
			return t
		}
	}
	return nil
}

// SetTimeline says which server history the positions belong to.
func (m *Mapping) SetTimeline(timeline uint32) { m.timeline = timeline }

// Resolve begins a session: it compares the mapping with the columns that the
// stream will carry, decides which of the columns that may be missing are used,
// and reports every table and column that stands in the way. The layouts come
// from the catalogue; only schema, name and columns of them are read.
func (m *Mapping) Resolve(layouts ...*decode.Relation) error {
	clear(m.plans)
	clear(m.types)
	m.last = nil
	var faults []error
	for _, t := range m.tables {
		t.resolved = nil
		for i := range t.columns {
			t.columns[i].present, t.columns[i].seen = false, false
		}
		at := slices.IndexFunc(layouts, func(r *decode.Relation) bool { return r.Name == t.name && r.Namespace == t.schema })
		if at < 0 {
			faults = append(faults, fmt.Errorf("outbox %s: the table is not there", t))
			continue
		}
		t.resolved = layouts[at]
		m.learnTypes(t.resolved)
		for i := range t.columns {
			t.columns[i].present = columnIndex(t.resolved, t.columns[i].name) >= 0
		}
		faults = append(faults, m.check(t, t.resolved)...)
	}
	return errors.Join(faults...)
}

// Tables returns what the mapping reads: after Resolve the columns that are
// there or must be, in the table's order; before it all it would use.
func (m *Mapping) Tables() []TableNeed {
	needs := make([]TableNeed, 0, len(m.tables))
	for _, t := range m.tables {
		need := TableNeed{Schema: t.schema, Name: t.name, Settings: map[string]string{}}
		for _, c := range t.columns {
			list := &need.Columns
			if t.resolved != nil && !c.present && !c.required {
				list = &need.Absent
			}
			if !slices.Contains(*list, c.name) {
				*list = append(*list, c.name)
			}
			if list == &need.Columns {
				need.Settings[c.name] = also(need.Settings[c.name], c.setting)
			}
		}
		if t.resolved != nil {
			slices.SortStableFunc(need.Columns, func(a, b string) int {
				return columnIndex(t.resolved, a) - columnIndex(t.resolved, b)
			})
		}
		needs = append(needs, need)
	}
	return needs
}

// also adds a setting to those that name a column already.
func also(settings, setting string) string {
	switch {
	case settings == "":
		return setting
	case slices.Contains(strings.Split(settings, ", "), setting):
		return settings
	}
	return settings + ", " + setting
}

// BinaryOK reports whether the session may ask for pgoutput's binary format:
// every mapped column has a type whose text we can write. False before Resolve.
func (m *Mapping) BinaryOK() bool {
	for _, t := range m.tables {
		if t.resolved == nil {
			return false
		}
		for _, c := range t.columns {
			i := columnIndex(t.resolved, c.name)
			if i < 0 {
				continue
			}
			oid := t.resolved.Columns[i].TypeOID
			if !binaryText(oid) && (c.part != partTimestamp || !isTimestamp(oid)) {
				return false
			}
		}
	}
	return true
}

func columnIndex(r *decode.Relation, name string) int {
	return slices.IndexFunc(r.Columns, func(c decode.Column) bool { return c.Name == name })
}
