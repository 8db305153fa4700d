package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/walstream/walstream/pkg/decode"
)

// part names a part of a record that one column gives.
type part int

const (
	partTopic part = iota
	partRoute
	partKey
	partKeyFallback
	partValue
	partHeaders
	partPartition
	partTimestamp
	partRowID
	partEventID
	partIdempotency
	partTrace        // the column traceparent
	partTraceContext // the one that trace-column names
	singleParts      // from here on: topic pattern, header and envelope columns
	partTemplate     // columns in the text of another setting
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

// namedColumn is a header or a field of the envelope and its column, by its
// place in the table's columns.
type namedColumn struct {
	name string
	at   int
}

// table is one configured table. Its columns are addressed by their place in
// columns; none is -1.
type table struct {
	schema, name string
	full         string // schema.name
	pipeline     []byte
	columns      []partColumn
	single       [singleParts]int
	topic        string
	pattern      []patternPart
	patternAt    []int
	route        *route
	key          []byte // nil: none
	tombstone    string
	keyFormat    string
	valueFormat  string
	headerFormat string
	headers      []namedColumn
	constants    []Header
	derive       bool   // the idempotency key of rows that have none
	idempotency  string // its header
	envelope     []namedColumn
	payload      string // how the value stands in the envelope
	cloud        *cloudEvent
	framing      *framing
	transform    Transform
	resolved     *decode.Relation
}

func (t *table) String() string { return t.full }

// builder makes a table of its settings, and collects what is wrong with them.
type builder struct {
	*table
	config *MappingConfig
	shape  shape
	faults []error
}

func newTable(c *MappingConfig) (*table, []error) {
	t := &table{
		schema: c.Schema, name: c.Table, full: c.Schema + "." + c.Table, pipeline: []byte(c.Pipeline), tombstone: c.Tombstone, payload: c.EnvelopePayload,
		idempotency: c.IdempotencyHeader, transform: c.Transform,
		keyFormat: c.KeyFormat, valueFormat: c.ValueFormat, headerFormat: c.HeaderFormat,
	}
	for i := range t.single {
		t.single[i] = -1
	}
	b := &builder{table: t, config: c}
	if c.Schema == "" || c.Table == "" {
		b.fault(errors.New("a table is named by schema and name"))
	}
	var err error
	if b.shape, err = shapeOf(c.Preset); err != nil {
		return t, append(b.faults, err)
	}
	b.shape.overrideBy(c)
	b.checkWords()
	b.addTopic()
	b.addParts()
	b.addHeaders()
	b.addEnvelope()
	b.addCloudEvent()
	b.addSchema()
	return t, b.faults
}

func (b *builder) fault(err error) {
	if err != nil {
		b.faults = append(b.faults, err)
	}
}

// checkWords checks the settings that are one of a few words.
func (b *builder) checkWords() {
	for _, w := range []struct {
		setting string
		value   string
		allowed []string
	}{
		{"tombstone", b.config.Tombstone, []string{OnNull, OnEmpty, OnBlank, Never}},
		{"key-format", b.config.KeyFormat, []string{FormatText, FormatJSON}},
		{"value-format", b.config.ValueFormat, []string{FormatText, FormatJSON}},
		{"header-format", b.config.HeaderFormat, []string{FormatText, FormatJSON}},
		{"envelope-payload", b.config.EnvelopePayload, []string{EnvelopeAuto, EnvelopeJSON, EnvelopeString}},
		{"envelope", b.config.Envelope, []string{EnvelopeNone, CloudEventsBinary, CloudEventsStructured}},
		{"schema-format", b.config.SchemaFormat, []string{SchemaAvro, SchemaProtobuf, SchemaJSON}},
		{"missing-columns", b.config.MissingColumns, []string{MissingError, MissingIgnore}},
		{"idempotency-key", b.config.IdempotencyKey, []string{Derived, None}},
	} {
		if w.value != "" && !slices.Contains(w.allowed, w.value) {
			b.fault(fmt.Errorf("%s %q is not known: it can be %s", w.setting, w.value, strings.Join(w.allowed, ", ")))
		}
	}
}

// add lists a column; given is the setting's own word for it.
func (b *builder) add(p part, column, setting, given string) int {
	if column == "" {
		return -1
	}
	required := given != "" || !b.shape.lenient || p == partValue
	if p == partTrace || p == partTraceContext || p == singleParts && b.config.MissingColumns == MissingIgnore {
		required = p == partTraceContext && given != ""
	}
	b.columns = append(b.columns, partColumn{name: column, setting: setting, part: p, required: required})
	return len(b.columns) - 1
}

func (b *builder) addTopic() {
	s, c := &b.shape, b.config
	b.topic = s.topic
	if c.Topic != "" && c.TopicPattern != "" {
		b.fault(errors.New("topic and topic-pattern exclude each other"))
	}
	if s.route != (routeSettings{}) && (c.Topic != "" || c.TopicPattern != "") {
		given := "route-column"
		switch {
		case c.RouteColumn != "":
		case c.RouteRegex != "":
			given = "route-regex"
		case c.RouteReplacement != "":
			given = "route-replacement"
		}
		b.fault(fmt.Errorf("%s and topic or topic-pattern exclude each other", given))
	}
	var err error
	if s.topicPattern != "" {
		b.pattern, err = parsePattern(s.topicPattern)
		b.fault(err)
	}
	if s.route != (routeSettings{}) {
		b.route, err = s.route.compile()
		b.fault(err)
	}
	b.single[partTopic] = b.add(partTopic, s.topicColumn, "topic-column", c.TopicColumn)
	b.single[partRoute] = b.add(partRoute, s.route.column, "route-column", c.RouteColumn)
	for _, piece := range b.pattern {
		b.patternAt = append(b.patternAt, b.add(partTopic, piece.column, "topic-pattern", c.TopicPattern))
	}
}

func (b *builder) addParts() {
	s, c := &b.shape, b.config
	b.single[partKey] = b.add(partKey, s.keys[0], "key-column", c.KeyColumn)
	if len(s.keys) > 1 {
		b.single[partKeyFallback] = b.add(partKeyFallback, s.keys[1], "key-column", "")
	}
	if s.key != "" {
		b.key = []byte(s.key)
	}
	b.single[partValue] = b.add(partValue, s.value, "value-column", c.ValueColumn)
	b.single[partHeaders] = b.add(partHeaders, s.headers, "headers-column", c.HeadersColumn)
	b.single[partPartition] = b.add(partPartition, s.partition, "partition-column", c.PartitionColumn)
	b.single[partTimestamp] = b.add(partTimestamp, s.timestamp, "timestamp-column", c.TimestampColumn)
	b.single[partRowID] = b.add(partRowID, s.rowID, "id-column", c.IDColumn)
	b.single[partEventID] = b.add(partEventID, s.eventID, "id-column", c.IDColumn)
	b.single[partIdempotency] = b.add(partIdempotency, s.idempotencyColumn, "idempotency-key-column", c.IdempotencyKeyColumn)
	if b.derive = s.idempotency == Derived; b.derive && s.eventID == "" {
		b.fault(errors.New("idempotency-key is derived from the event id, and nothing names it: set id-column"))
	}
}

// addHeaders: the id's, single columns, constants, and what may collide with them.
func (b *builder) addHeaders() {
	s, c := &b.shape, b.config
	b.addIDHeader()
	given := strings.Join(c.HeaderColumns, ",")
	for _, text := range s.headerColumns {
		header, column, err := splitPair("header-columns", text)
		if err != nil || !b.newHeader("header-columns", header) {
			b.fault(err)
			continue
		}
		b.headers = append(b.headers, namedColumn{header, b.add(singleParts, column, "header-columns", given)})
	}
	for _, text := range c.HeaderConstants {
		header, value, found := strings.Cut(text, "=")
		if !found || header == "" {
			b.fault(fmt.Errorf("header-constants: %q is not HEADER=TEXT", text))
			continue
		}
		if b.newHeader("header-constants", header) {
			b.constants = append(b.constants, Header{header, []byte(value)})
		}
	}
	switch used := b.derive || b.single[partIdempotency] >= 0; {
	case used && b.idempotency == "":
		b.idempotency = HeaderIdempotency
		b.newHeader("idempotency-header", b.idempotency)
	case used:
		b.newHeader("idempotency-header", b.idempotency)
	case b.idempotency != "":
		b.fault(errors.New("idempotency-header has no effect without idempotency-key-column or idempotency-key"))
	}
	if s.trace != "" {
		b.single[partTraceContext] = b.add(partTraceContext, s.trace, "trace-column", c.TraceColumn)
	}
	if s.trace != HeaderTrace && !b.named(HeaderTrace) {
		b.single[partTrace] = b.add(partTrace, HeaderTrace, "header-columns", "")
	}
}

func (b *builder) addIDHeader() {
	header, column := b.shape.idHeader, b.shape.eventID
	if column == "" {
		column = b.shape.rowID
	}
	switch {
	case header == "":
	case column == "":
		b.fault(errors.New("id-header has no effect without id-column"))
	case b.newHeader("id-header", header):
		b.headers = append(b.headers, namedColumn{header, b.add(partEventID, column, "id-column", b.config.IDColumn)})
	}
}

// newHeader reports whether a header may have the name, or the fault.
func (b *builder) newHeader(setting, name string) bool {
	if err := checkHeaderName(setting, name); err != nil {
		b.fault(err)
		return false
	}
	if b.named(name) || b.idempotency == name && setting != "idempotency-header" {
		b.fault(fmt.Errorf("%s: header %q is named twice", setting, name))
		return false
	}
	return true
}

func (b *builder) named(header string) bool {
	return slices.ContainsFunc(b.headers, func(h namedColumn) bool { return h.name == header }) ||
		slices.ContainsFunc(b.constants, func(h Header) bool { return h.Key == header })
}

func (b *builder) addEnvelope() {
	c := b.config
	if len(c.EnvelopeColumns) == 0 {
		if c.EnvelopePayload != "" {
			b.fault(errors.New("envelope-payload has no effect without envelope-columns: without an envelope the value is the column's bytes"))
		}
		return
	}
	if c.ValueFormat == FormatJSON {
		b.fault(errors.New("value-format has no effect with envelope-columns: the envelope is JSON, and envelope-payload says how the value stands in it"))
	}
	for _, text := range c.EnvelopeColumns {
		field, column, err := splitPair("envelope-columns", text)
		switch {
		case err != nil:
			b.fault(err)
		case field == envelopeField || slices.ContainsFunc(b.envelope, func(e namedColumn) bool { return e.name == field }):
			b.fault(fmt.Errorf("envelope-columns: field %q is named twice", field))
		default:
			b.envelope = append(b.envelope, namedColumn{field, b.add(singleParts, column, "envelope-columns", text)})
		}
	}
}
