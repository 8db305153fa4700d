package outbox

// MappingConfig is one outbox table and the settings that say how its rows
// become records. An empty setting means the preset's, or that of our own table
// without one. Of the settings of one part (topic, key, headers), one that is
// given replaces all that the preset says about the part.
type MappingConfig struct {
	Schema, Table string
	Preset        string

	// At most one of Topic, TopicPattern and the route, either of them for rows
	// whose TopicColumn is NULL when that is set too.
	Topic, TopicColumn, TopicPattern string
	// The route: the value of RouteColumn, which RouteRegex must match as a whole,
	// becomes RouteReplacement, where $1 and ${name} stand for groups, as in Java.
	// A value that it does not match is the topic as it stands.
	RouteColumn, RouteRegex, RouteReplacement string

	KeyColumn string
	KeyFormat string // FormatText or FormatJSON, of the column's
	Key       string // one key for all rows whose KeyColumn is NULL or not named

	ValueColumn string
	ValueFormat string // FormatText or FormatJSON
	Tombstone   string // OnNull, OnEmpty, OnBlank or Never
	// EnvelopeColumns make the value an object, {"payload": ..., "field": ...}, of
	// the value column and these: COLUMN or FIELD=COLUMN.
	EnvelopeColumns []string
	EnvelopePayload string // EnvelopeAuto, EnvelopeJSON or EnvelopeString

	HeadersColumn   string   // spread out: json, jsonb or text of an object; hstore; text[] of pairs
	HeaderColumns   []string // COLUMN or HEADER=COLUMN
	HeaderFormat    string   // FormatText or FormatJSON, of HeaderColumns and IDHeader
	HeaderConstants []string // HEADER=TEXT
	TraceColumn     string   // a traceparent, or properties of a trace context
	// MissingColumns says what a column of HeaderColumns or EnvelopeColumns that
	// the table does not have means: MissingError or MissingIgnore.
	MissingColumns string

	PartitionColumn, TimestampColumn string

	IDColumn string // event id, and the row's name in messages
	IDHeader string // one more header for it

	// IdempotencyKeyColumn gives the header IdempotencyHeader; with IdempotencyKey
	// Derived, rows without one get IdempotencyKeyOf their event id, topic and key.
	IdempotencyKeyColumn string
	IdempotencyKey       string // Derived, or None to leave the header out
	IdempotencyHeader    string

	// Envelope is EnvelopeNone, CloudEventsBinary or CloudEventsStructured. The
	// attributes are texts with {column} in them; one whose column is NULL is left
	// out. An empty CESource is /walstream/<pipeline>, an empty CEType the preset's
	// column, an empty CEDataContentType that of the value column's type.
	Envelope                        string
	CESource, CEType, CESubject     string
	CEDataContentType, CEDataSchema string
	CEExtensions                    []string // NAME=TEXT

	// SchemaFormat, if set, has values framed by a schema of the registry: that of
	// SchemaSubject, a text with {column} and {topic} in it, in SchemaVersion
	// (empty: the latest), or the one with SchemaID; numbers, or {column}.
	SchemaFormat  string // SchemaAvro, SchemaProtobuf or SchemaJSON
	SchemaSubject string // empty: {topic}-value
	SchemaVersion string
	SchemaID      string
	SchemaText    string // registered under the subject
	SchemaMessage string // protobuf: full name of the message; empty: the first of the schema
	SchemaCheck   bool   // a value that does not fit is a bad row

	Pipeline string // value of the walstream-pipeline header

	// Transform, if any, has the last word on every event of the table.
	Transform Transform
}

// What MappingConfig.Tombstone can be: when a row becomes a tombstone, a record
// without a value.
const (
	OnNull  = "on-null"  // the default: a NULL value
	OnEmpty = "on-empty" // an empty or blank one too
	OnBlank = "on-blank" // an empty or blank one too, but no bytea: as Debezium's router has it
	Never   = "never"    // a NULL value is a bad row, or null in the envelope
)

// What MappingConfig.KeyFormat, ValueFormat and HeaderFormat can be: what stands
// in the record for a column.
const (
	FormatText = "text" // the default: its bytes
	// FormatJSON is what Connect's JsonConverter writes without schemas: text, json
	// and jsonb as a JSON string, bytea in base64, numbers and bools as such, NULL as
	// null; but a NULL value is a tombstone unless Tombstone is Never.
	FormatJSON = "json"
)

// What MappingConfig.EnvelopePayload can be: how the value stands in an envelope.
const (
	EnvelopeAuto   = "auto"   // the default: json and jsonb as JSON, text as a string, bytea in base64
	EnvelopeJSON   = "json"   // text that holds an object or array as JSON too
	EnvelopeString = "string" // json and jsonb as a string too, also in other fields: as Debezium has them
)

// What MappingConfig.MissingColumns can be.
const (
	MissingError  = "error" // the default: it stops the start
	MissingIgnore = "ignore"
)

// What MappingConfig.IdempotencyKey can be.
const (
	Derived = "derived"
	None    = "none"
)

// What MappingConfig.Envelope can be.
const (
	EnvelopeNone          = "none" // the default
	CloudEventsBinary     = "cloudevents-binary"
	CloudEventsStructured = "cloudevents-structured"
)

// What MappingConfig.SchemaFormat can be.
const (
	SchemaAvro     = "avro"
	SchemaProtobuf = "protobuf"
	SchemaJSON     = "json"
)
