package outbox

import (
	"context"
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
		{"a header of walstream's", func(e *Entry) { e.Headers = map[string]string{"walstream-event-id": "x"} }, "walstream's own"},
	} {
		entry := whole
		c.change(&entry)
		// It is refused before the transaction is touched.
		if err := Enqueue(t.Context(), nil, entry); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
