package outbox

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/testenv"
)

// enqueued is a row as the stream will carry it.
type enqueued struct {
	EventID, AggregateType, AggregateID, EventType string
	Topic, Key                                     *string
	Payload                                        []byte
	Headers                                        string
}

func TestEnqueue(t *testing.T) {
	db := outboxDatabase(t)
	text := func(s string) *string { return &s }
	const id = "0f3c2a4e-1111-4222-8333-444455556666"
	for _, c := range []struct {
		name  string
		entry Entry
		want  enqueued // an empty EventID stands for one that PostgreSQL made
	}{
		{
			name:  "the least",
			entry: Entry{AggregateType: "account", AggregateID: "acc-7", EventType: "opened", Payload: []byte{}},
			want:  enqueued{AggregateType: "account", AggregateID: "acc-7", EventType: "opened", Payload: []byte{}, Headers: `{}`},
		},
		{
			name: "everything",
			entry: Entry{
				EventID: id, AggregateType: "account", AggregateID: "größe", EventType: "deposited", Topic: "deposits", Key: "k",
				Payload: []byte("\x00\xff'\\"), Headers: map[string]string{"traceparent": "00-ab", `"`: "'", "empty": ""},
			},
			want: enqueued{
				EventID: id, AggregateType: "account", AggregateID: "größe", EventType: "deposited", Topic: text("deposits"), Key: text("k"),
				Payload: []byte("\x00\xff'\\"), Headers: `{"\"": "'", "empty": "", "traceparent": "00-ab"}`,
			},
		},
	} {
		// What a pooler asks for must not change what is written.
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			t.Run(c.name+"/"+mode.String(), func(t *testing.T) {
				config, err := pgx.ParseConfig(db)
				if err != nil {
					t.Fatal(err)
				}
				config.DefaultQueryExecMode = mode
				conn, err := pgx.ConnectConfig(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.Background())
				// The transaction is rolled back, so that each way finds an empty table.
				var got enqueued
				rollback := errors.New("enough")
				err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					if err := Enqueue(t.Context(), tx, c.entry); err != nil {
						return err
					}
					rows, err := tx.Query(t.Context(), `
						SELECT event_id::text, aggregate_type, aggregate_id, event_type, topic, key, payload, headers::text
						FROM public.outbox`, pgx.QueryExecModeExec)
					if err != nil {
						return err
					}
					if got, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[enqueued]); err != nil {
						return err
					}
					return rollback
				})
				if !errors.Is(err, rollback) {
					t.Fatal(err)
				}
				if c.want.EventID == "" && len(got.EventID) == len(id) {
					got.EventID = ""
				}
				if !sameRow(got, c.want) {
					t.Errorf("row  %+v\nwant %+v", got, c.want)
				}
			})
		}
	}
}

func sameRow(a, b enqueued) bool {
	same := func(x, y *string) bool { return x == y || x != nil && y != nil && *x == *y }
	return a.EventID == b.EventID && a.AggregateType == b.AggregateType && a.AggregateID == b.AggregateID &&
		a.EventType == b.EventType && same(a.Topic, b.Topic) && same(a.Key, b.Key) &&
		string(a.Payload) == string(b.Payload) && a.Headers == b.Headers
}

// TestEnqueueIdempotencyKey: the key is a header, and makes the event unique; on
// pgx and on database/sql.
func TestEnqueueIdempotencyKey(t *testing.T) {
	dsn := outboxDatabase(t)
	db := sql.OpenDB(plainDriver{dsn})
	defer db.Close()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	entry := Entry{
		IdempotencyKey: "transfer 7", AggregateType: "account", AggregateID: "acc-7", EventType: "deposited",
		Payload: []byte("\x00\xff"), Headers: map[string]string{"a": "1"},
	}
	onSQL := func(e Entry) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := EnqueueSQL(t.Context(), tx, e); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	onPgx := func(e Entry) error {
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return Enqueue(t.Context(), tx, e) })
	}
	if err := onSQL(entry); err != nil {
		t.Fatal(err)
	}
	for name, again := range map[string]func(Entry) error{"pgx": onPgx, "database/sql": onSQL} {
		err := again(entry)
		if !errors.Is(err, ErrDuplicate) || !strings.Contains(err.Error(), `enqueue event "deposited" of account "acc-7"`) {
			t.Errorf("%s: the same operation again: %v", name, err)
		}
	}
	entry.IdempotencyKey = "transfer 8"
	if err := onPgx(entry); err != nil {
		t.Errorf("another operation: %v", err)
	}
	entry.IdempotencyKey = ""
	if err := errors.Join(onSQL(entry), onSQL(entry)); err != nil {
		t.Errorf("without a key: %v", err)
	}
	rows, err := conn.Query(t.Context(), `SELECT event_id::text, aggregate_type, aggregate_id, event_type, topic, key, payload, headers::text FROM public.outbox ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[enqueued])
	if err != nil || len(all) != 4 {
		t.Fatalf("%d rows, %v", len(all), err)
	}
	want := enqueued{
		EventID: eventIDOf("transfer 7"), AggregateType: "account", AggregateID: "acc-7", EventType: "deposited",
		Payload: []byte("\x00\xff"), Headers: `{"a": "1", "idempotency-key": "transfer 7"}`,
	}
	if !sameRow(all[0], want) || all[1].EventID == all[0].EventID || all[2].Headers != `{"a": "1"}` {
		t.Errorf("rows %+v\nwant first %+v", all, want)
	}
	if len(entry.Headers) != 1 {
		t.Errorf("the caller's headers were changed: %v", entry.Headers)
	}
}

// A transaction that is retried with the same event id makes one event.
func TestEnqueueTheSameEventTwice(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), outboxDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	enqueue := func() error {
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			return Enqueue(t.Context(), tx, Entry{
				EventID: "0f3c2a4e-1111-4222-8333-444455556666", AggregateType: "account", AggregateID: "acc-7",
				EventType: "deposited", Payload: []byte("{}"),
			})
		})
	}
	if err := enqueue(); err != nil {
		t.Fatal(err)
	}
	err = enqueue()
	if err == nil || !strings.Contains(err.Error(), `enqueue event "deposited" of account "acc-7"`) {
		t.Fatalf("error %v, want one about the event", err)
	}
}

// outboxDatabase is a database with the table of sql/publication.sql.
func outboxDatabase(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile("../../sql/publication.sql")
	if err != nil {
		t.Fatal(err)
	}
	p := testenv.NewPostgres(t, testenv.PGOptions{}) // the script makes a role, which no other test shall see
	database := p.CreateDatabase(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), string(script)); err != nil {
		t.Fatalf("apply sql/publication.sql: %v", err)
	}
	return database
}

func TestEnqueueRefuses(t *testing.T) {
	whole := Entry{AggregateType: "account", AggregateID: "acc-7", EventType: "deposited", Payload: []byte("{}")}
	for _, c := range []struct {
		name   string
		change func(*Entry)
		want   string
	}{
		{"no aggregate type", func(e *Entry) { e.AggregateType = "" }, "required"},
		{"no aggregate id", func(e *Entry) { e.AggregateID = "" }, "required"},
		{"no event type", func(e *Entry) { e.EventType = "" }, "required"},
		{"no payload", func(e *Entry) { e.Payload = nil }, "payload is nil"},
		{"a header twice", func(e *Entry) { e.IdempotencyKey, e.Headers = "k", map[string]string{HeaderIdempotency: "x"} }, "is said by IdempotencyKey too"},
		{"a header of walstream's", func(e *Entry) { e.Headers = map[string]string{"walstream-event-id": "x"} }, "walstream's own"},
		// JSON would carry them as other characters, or not at all.
		{"a header that is no UTF-8", func(e *Entry) { e.Headers = map[string]string{"h": "a\xff"} }, `headers: "h" is no UTF-8`},
		{"a header's name that is no UTF-8", func(e *Entry) { e.Headers = map[string]string{"h\xff": "a"} }, `headers: "h\xff" is no UTF-8`},
		{"a zero byte in a header", func(e *Entry) { e.Headers = map[string]string{"h": "a\x00"} }, `headers: "h" has a zero byte`},
		{"an idempotency key that is no UTF-8", func(e *Entry) { e.IdempotencyKey = "a\xff" }, "idempotency key is no UTF-8"},
		{"a key that is no UTF-8", func(e *Entry) { e.Key = "a\xff" }, "key is no UTF-8"},
		{"an aggregate id that is no UTF-8", func(e *Entry) { e.AggregateID = "a\xff" }, "aggregate id is no UTF-8"},
		{"a topic that Kafka does not take", func(e *Entry) { e.Topic = "orders of ünal" }, "ASCII letters"},
		{"a topic that is a directory", func(e *Entry) { e.Topic = ".." }, `".." is not allowed`},
		{"a long topic", func(e *Entry) { e.Topic = strings.Repeat("x", MaxTopicName+1) }, "has 250 bytes, kafka allows 249"},
		{"Kafka's topic", func(e *Entry) { e.Topic = "__consumer_offsets" }, "kafka's own"},
		{"a topic of walstream's", func(e *Entry) { e.Topic = "walstream.control.p" }, "walstream's own bookkeeping"},
		{"a zero byte in the topic", func(e *Entry) { e.Topic = "a\x00" }, "topic has a zero byte"},
	} {
		entry := whole
		c.change(&entry)
		// It is refused before the transaction is touched.
		if err := Enqueue(t.Context(), nil, entry); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
