package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/walstream/walstream/pkg/decode"
)

// MappingConfig is one outbox table and the settings that say how its rows
// become records. An empty setting means the preset's, or that of our own table
// without one.
type MappingConfig struct {
	Schema, Table string
	Preset        string

	// At most one of Topic and TopicPattern, either of them for rows whose
	// TopicColumn is NULL when that is set too.
	Topic, TopicColumn, TopicPattern string

	KeyColumn, ValueColumn, HeadersColumn string
	HeaderColumns                         []string // COLUMN or HEADER=COLUMN
	PartitionColumn, TimestampColumn      string
	IDColumn                              string // event id, and the row's name in messages

	Pipeline string // value of the walstream-pipeline header
}

// TableNeed is a table and the columns of it that the mapping reads.
type TableNeed struct {
	Schema, Name string
	Columns      []string
	// Absent would be read too, if the stream carried them: columns of our own
	// table's shape that this one does without, which Resolve found out.
	Absent []string
}

// Mapping turns rows into events. One goroutine uses it. The use of one session:
// Resolve, then Map for each row.
type Mapping struct {
	// ReservedHeaders counts members of headers columns that were dropped
	// because their name is one of walstream's own.
	ReservedHeaders uint64

	tables   []*table
	timeline uint32
	plans    map[uint32]*plan // by relation ID
	last     *plan

	topics, names interner
	scratch       []byte          // bytes of the current event
	topicText     []byte          // a topic being put together
	ids           strings.Builder // texts of row ids, many to an allocation
}

// part names a part of a record that one column gives.
type part int

const (
	partTopic part = iota
	partKey
	partKeyFallback
	partValue
	partHeaders
	partPartition
	partTimestamp
	partRowID
	partEventID
	partTrace
	singleParts // from here on: topic pattern, then header columns
)

// partColumn is a column that a part of the record comes from.
type partColumn struct {
	name     string
	setting  string
	part     part
	required bool
	present  bool // in the catalogue, as Resolve saw it
	seen     bool // in a layout since then
}

// table is one configured table. Its columns are addressed by their place in
// columns; none is -1.
type table struct {
	schema, name string
	pipeline     []byte
	columns      []partColumn
	single       [singleParts]int
	topic        string
	pattern      []patternPart
	patternAt    []int
	headerNames  []string
	headerAt     []int
	resolved     *decode.Relation
}

func (t *table) String() string { return t.schema + "." + t.name }

// NewMapping checks the settings and reports everything that is wrong with them.
func NewMapping(configs []MappingConfig) (*Mapping, error) {
	m := &Mapping{plans: make(map[uint32]*plan), scratch: make([]byte, 0, scratchSize)}
	var faults []error
	if len(configs) == 0 {
		faults = append(faults, errors.New("no outbox table is named"))
	}
	for _, c := range configs {
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

func newTable(c MappingConfig) (*table, []error) {
	t := &table{schema: c.Schema, name: c.Table, pipeline: []byte(c.Pipeline)}
	for i := range t.single {
		t.single[i] = -1
	}
	var faults []error
	if c.Schema == "" || c.Table == "" {
		faults = append(faults, errors.New("a table is named by schema and name"))
	}
	s, err := shapeOf(c.Preset)
	if err != nil {
		return t, append(faults, err)
	}
	s.overrideBy(&c)
	if c.Topic != "" && c.TopicPattern != "" {
		faults = append(faults, errors.New("topic and topic-pattern exclude each other"))
	}
	if s.topicPattern != "" {
		if t.pattern, err = parsePattern(s.topicPattern); err != nil {
			faults = append(faults, err)
		}
	}
	if err := t.addColumns(&s, &c); err != nil {
		faults = append(faults, err...)
	}
	return t, faults
}

// overrideBy puts the settings over the shape. A setting of a part replaces all
// that the shape says about it.
func (s *shape) overrideBy(c *MappingConfig) {
	if c.Topic != "" || c.TopicColumn != "" || c.TopicPattern != "" {
		s.topic, s.topicColumn, s.topicPattern = c.Topic, c.TopicColumn, c.TopicPattern
	}
	if c.KeyColumn != "" {
		s.keys = []string{c.KeyColumn}
	}
	if c.HeaderColumns != nil {
		s.headerColumns = c.HeaderColumns
	}
	if c.IDColumn != "" {
		s.rowID, s.eventID = c.IDColumn, c.IDColumn
	}
	for _, o := range []struct{ setting, column *string }{
		{&c.ValueColumn, &s.value},
		{&c.HeadersColumn, &s.headers},
		{&c.PartitionColumn, &s.partition},
		{&c.TimestampColumn, &s.timestamp},
	} {
		if *o.setting != "" {
			*o.column = *o.setting
		}
	}
}

func (t *table) addColumns(s *shape, c *MappingConfig) (faults []error) {
	t.topic = s.topic
	add := func(p part, column, setting, given string) int {
		if column == "" {
			return -1
		}
		required := given != "" || !s.lenient || p == partValue
		t.columns = append(t.columns, partColumn{name: column, setting: setting, part: p, required: required})
		return len(t.columns) - 1
	}
	t.single[partTopic] = add(partTopic, s.topicColumn, "topic-column", c.TopicColumn)
	t.single[partKey] = add(partKey, s.keys[0], "key-column", c.KeyColumn)
	if len(s.keys) > 1 {
		t.single[partKeyFallback] = add(partKeyFallback, s.keys[1], "key-column", "")
	}
	t.single[partValue] = add(partValue, s.value, "value-column", c.ValueColumn)
	t.single[partHeaders] = add(partHeaders, s.headers, "headers-column", c.HeadersColumn)
	t.single[partPartition] = add(partPartition, s.partition, "partition-column", c.PartitionColumn)
	t.single[partTimestamp] = add(partTimestamp, s.timestamp, "timestamp-column", c.TimestampColumn)
	t.single[partRowID] = add(partRowID, s.rowID, "id-column", c.IDColumn)
	t.single[partEventID] = add(partEventID, s.eventID, "id-column", c.IDColumn)
	for _, piece := range t.pattern {
		t.patternAt = append(t.patternAt, add(singleParts, piece.column, "topic-pattern", c.TopicPattern))
	}
	given := strings.Join(c.HeaderColumns, ",")
	for _, text := range s.headerColumns {
		header, column, err := splitHeaderColumn(text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if slices.Contains(t.headerNames, header) {
			faults = append(faults, fmt.Errorf("header-columns: header %q is named twice", header))
		}
		t.headerNames = append(t.headerNames, header)
		t.headerAt = append(t.headerAt, add(singleParts, column, "header-columns", given))
	}
	if !slices.Contains(t.headerNames, HeaderTrace) {
		t.columns = append(t.columns, partColumn{name: HeaderTrace, setting: "header-columns", part: partTrace})
		t.single[partTrace] = len(t.columns) - 1
	}
	return faults
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
		for i := range t.columns {
			t.columns[i].present = columnIndex(t.resolved, t.columns[i].name) >= 0
		}
		faults = append(faults, t.check(t.resolved)...)
	}
	return errors.Join(faults...)
}

// Tables returns what the mapping reads: after Resolve the columns that are
// there or must be, in the table's order; before it all it would use.
func (m *Mapping) Tables() []TableNeed {
	needs := make([]TableNeed, 0, len(m.tables))
	for _, t := range m.tables {
		need := TableNeed{Schema: t.schema, Name: t.name}
		for _, c := range t.columns {
			list := &need.Columns
			if t.resolved != nil && !c.present && !c.required {
				list = &need.Absent
			}
			if !slices.Contains(*list, c.name) {
				*list = append(*list, c.name)
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
