package outbox

import (
	"time"

	"github.com/walstream/walstream/pkg/decode"
)

// Header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Schema of a registry that frames values: each begins with the schema's id there.
type Schema struct {
	Format  string // SchemaAvro, SchemaProtobuf or SchemaJSON
	Text    string // if any, it is registered under the subject
	Message string // protobuf: full name of the message; empty: the schema's first
	Check   bool   // a value that does not fit is refused
}

// SchemaAt is the place of a schema in a registry: an id, or the version of a
// subject, 0 for the latest.
type SchemaAt struct {
	Subject string
	ID      int
	Version int
}

// Event is one record to be: what any sink publishes. Its byte slices may alias
// the row it was made from; a sink copies what it keeps beyond Submit.
type Event struct {
	Topic string
	Key   []byte // nil: no key
	Value []byte // nil: a tombstone; empty: an empty value
	// Headers in the order they are sent.
	Headers []Header
	// Partition, or -1 for the partitioner's choice by key.
	Partition int32
	Timestamp time.Time
	// Position of the row, unique and rising within one server history.
	Position decode.Position
	// Table is schema.name, for messages to people.
	Table string
	// RowID is the text of the id column, for messages to people; may be empty.
	RowID string
	// ID is the number in the id column, if Numbered; Timed says that Timestamp is that
	// of the timestamp column.
	ID       int64
	Numbered bool
	Timed    bool
	// Schema that frames the value, and the one of the registry that the row
	// means; nil: none does.
	Schema   *Schema
	SchemaAt SchemaAt
}

// Size is what the event counts for in the window of bytes in flight.
func (e *Event) Size() int {
	n := len(e.Topic) + len(e.Key) + len(e.Value)
	for i := range e.Headers {
		n += len(e.Headers[i].Key) + len(e.Headers[i].Value)
	}
	return n + eventOverhead
}

// eventOverhead stands for the record structures kept beside the bytes.
const eventOverhead = 128
