package outbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Entry is an event as a service writes it: a row of our own table, made by
// sql/publication.sql. Event is what walstream makes of the row.
type Entry struct {
	// EventID is a UUID, and the record's walstream-event-id. Empty: PostgreSQL
	// makes one. A service that retries a transaction whose outcome it does not
	// know gives the same one again: the second row is refused as not unique.
	EventID string
	// IdempotencyKey names the operation that the event tells of, where a caller
	// may ask for it twice. It is the record's header idempotency-key, and without
	// an EventID makes one: the same for the same key, so that the second row is
	// refused as not unique (ErrDuplicate) and its transaction undone.
	IdempotencyKey string
	// AggregateType and AggregateID name what the event is about, EventType what
	// happened. All three are required.
	AggregateType, AggregateID, EventType string
	// Topic, or empty for walstream's topic-pattern. One that Kafka does not take, or
	// that rows may not go to, is refused: see CheckTopic.
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

// ErrDuplicate is wrapped by the error of an event whose EventID, given or made
// of its IdempotencyKey, is in the table: the operation has been done.
var ErrDuplicate = errors.New("the event is in the outbox already")

// Enqueue inserts the event in the caller's transaction: it is published if that
// commits, and never if it does not.
//
// Commit order is the order of publication. Two transactions that must not
// overtake each other have to wait for each other, as they do when both first
// update the row the event is about.
func Enqueue(ctx context.Context, tx pgx.Tx, e Entry) error {
	args, err := e.args()
	if err == nil {
		_, err = tx.Exec(ctx, insertEntry, args...)
	}
	return e.explain(err)
}

// Execer is a *sql.Tx; or a *sql.Conn or *sql.DB for an event that no other
// change goes with.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// EnqueueSQL is Enqueue for services on database/sql, whichever driver for
// PostgreSQL they use.
func EnqueueSQL(ctx context.Context, tx Execer, e Entry) error {
	args, err := e.args()
	if err == nil {
		_, err = tx.ExecContext(ctx, insertEntry, args...)
	}
	return e.explain(err)
}

// args of insertEntry: text and bytea only. Such arguments fit every one of
// pgx's ways to send them, the simple protocol that some poolers want included,
// and every driver.
func (e *Entry) args() ([]any, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	headers, err := e.encodeHeaders()
	if err != nil {
		return nil, err
	}
	id := e.EventID
	if id == "" && e.IdempotencyKey != "" {
		id = eventIDOf(e.IdempotencyKey)
	}
	return []any{id, e.AggregateType, e.AggregateID, e.EventType, e.Topic, e.Key, e.Payload, headers}, nil
}

// eventIDOf makes a UUID of an idempotency key, version 8 of RFC 9562.
func eventIDOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return string(appendUUID(nil, sum[:16]))
}

func (e *Entry) explain(err error) error {
	if err == nil {
		return nil
	}
	const uniqueViolation = "23505"
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok && coded.SQLState() == uniqueViolation {
		err = fmt.Errorf("%w: %w", ErrDuplicate, err)
	}
	return fmt.Errorf("enqueue event %q of %s %q: %w", e.EventType, e.AggregateType, e.AggregateID, err)
}

// check refuses here what would otherwise be a bad row that stops the stream.
func (e *Entry) check() error {
	switch {
	case e.AggregateType == "" || e.AggregateID == "" || e.EventType == "":
		return errors.New("aggregate type, aggregate id and event type are required")
	case e.Payload == nil:
		return errors.New("the payload is nil: an empty one is []byte{}")
	}
	for _, text := range []struct{ name, text string }{
		{"aggregate type", e.AggregateType},
		{"aggregate id", e.AggregateID},
		{"event type", e.EventType},
		{"topic", e.Topic},
		{"key", e.Key},
		{"idempotency key", e.IdempotencyKey},
	} {
		if err := checkText(text.name, text.text); err != nil {
			return err
		}
	}
	if e.Topic == "" {
		return nil
	}
	return CheckTopic(e.Topic)
}

// checkText refuses what a text of PostgreSQL cannot hold, and what encoding/json
// would replace without a word.
func checkText(name, text string) error {
	switch {
	case !utf8.ValidString(text):
		return fmt.Errorf("%s is no UTF-8: such bytes belong in the payload", name)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%s has a zero byte, which a text in PostgreSQL cannot hold", name)
	}
	return nil
}

func (e *Entry) encodeHeaders() (string, error) {
	for name, value := range e.Headers {
		if err := checkHeaderName("headers", name); err != nil {
			return "", err
		}
		for _, text := range []string{name, value} {
			if err := checkText(fmt.Sprintf("headers: %q", name), text); err != nil {
				return "", err
			}
		}
	}
	headers := e.Headers
	if e.IdempotencyKey != "" {
		if _, twice := headers[HeaderIdempotency]; twice {
			return "", fmt.Errorf("headers: %s is said by IdempotencyKey too", HeaderIdempotency)
		}
		headers = maps.Clone(headers)
		if headers == nil {
			headers = make(map[string]string)
		}
		headers[HeaderIdempotency] = e.IdempotencyKey
	}
	if len(headers) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}
