package checkpoint

import "context"

// Store reads the newest durable checkpoint. Writing is the sink's: the record
// goes out by the same producer, in the same Kafka transaction, as what it
// covers.
type Store interface {
	// Load returns the newest committed record of the pipeline; found is false
	// when there has never been one. It fences nobody.
	Load(ctx context.Context) (record Record, found bool, err error)
}
