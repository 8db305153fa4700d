package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Entry is an event as a service writes it: a row of our own table, made by
// sql/publication.sql. Event is what walstream makes of the row.
type Entry struct {
	// EventID is a UUID, and the record's walstream-event-id. Empty: PostgreSQL
	// makes one. A service that retries a transaction whose outcome it does not
	// know gives the same one again: the second row is refused as not unique.
	EventID string
	// AggregateType and AggregateID name what the event is about, EventType what
	// happened. All three are required.
	AggregateType, AggregateID, EventType string
	// Topic, or empty for walstream's topic-pattern.
	Topic string
	// Key of the record, or empty for AggregateID. Records of one key keep the
	// order of their commits.
	Key string
	// Payload is the record's value, byte for byte. It may be empty, not nil.
	Payload []byte
	// Headers of the record beside walstream's own; traceparent belongs here.
	Headers map[string]string
}

const insertEntry = `
INSERT INTO public.outbox (event_id, aggregate_type, aggregate_id, event_type, topic, key, payload, headers)
VALUES (coalesce(nullif($1, '')::uuid, gen_random_uuid()), $2, $3, $4, nullif($5, ''), nullif($6, ''), $7, $8::text::jsonb)`

// Enqueue inserts the event in the caller's transaction: it is published if that
// commits, and never if it does not.
//
// Commit order is the order of publication. Two transactions that must not
// overtake each other have to wait for each other, as they do when both first
// update the row the event is about.
func Enqueue(ctx context.Context, tx pgx.Tx, e Entry) error {
	headers, err := e.encodeHeaders()
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return fmt.Errorf("enqueue event %q of %s %q: %w", e.EventType, e.AggregateType, e.AggregateID, err)
	}
	// Text and bytea only: such arguments fit every one of pgx's ways to send
	// them, the simple protocol that some poolers want included.
	_, err = tx.Exec(ctx, insertEntry,
		e.EventID, e.AggregateType, e.AggregateID, e.EventType, e.Topic, e.Key, e.Payload, headers)
	if err != nil {
		return fmt.Errorf("enqueue event %q of %s %q: %w", e.EventType, e.AggregateType, e.AggregateID, err)
	}
	return nil
}

// check refuses here what would otherwise be a bad row that stops the stream.
func (e *Entry) check() error {
	switch {
	case e.AggregateType == "" || e.AggregateID == "" || e.EventType == "":
		return errors.New("aggregate type, aggregate id and event type are required")
	case e.Payload == nil:
		return errors.New("the payload is nil: an empty one is []byte{}")
	}
	return nil
}

func (e *Entry) encodeHeaders() (string, error) {
	if len(e.Headers) == 0 {
		return "{}", nil
	}
	for name := range e.Headers {
		if strings.HasPrefix(name, reservedPrefix) {
			return "", fmt.Errorf("header %q: names that begin with %s are walstream's own", name, reservedPrefix)
		}
	}
	text, err := json.Marshal(e.Headers)
	return string(text), err
}
