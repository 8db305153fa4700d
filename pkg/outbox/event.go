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
	// RowID is the text of the id column, for messages to people; may be empty.
	RowID string
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
