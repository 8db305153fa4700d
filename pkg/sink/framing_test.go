package sink

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/registry"
)

const amountSchema = `{"type":"object","required":["amount"]}`

var jsonFramed = &outbox.Schema{Format: outbox.SchemaJSON, Check: true}

// schemaRegistry is an empty one, and its client.
func schemaRegistry(t testing.TB) (*srfake.Registry, *registry.Registry) {
	t.Helper()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	r, err := registry.New(registry.Config{URLs: []string{fake.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return fake, r
}

func framed(topic, value string, n int) *outbox.Event {
	e := event(topic, "k", value, n)
	e.Schema, e.SchemaAt = jsonFramed, outbox.SchemaAt{Subject: topic + "-value"}
	return e
}

func framingSink(t *testing.T, start starter) (r *running, fake *srfake.Registry, topic string, brokers []string) {
	_, brokers = testenv.NewKfake(t)
	topic = createTopic(t, brokers, 1, nil)
	cfg := testConfig(t, brokers)
	fake, cfg.Registry = schemaRegistry(t)
	return start(t, cfg), fake, topic, brokers
}

func texts(t testing.TB, brokers []string, topic string) (all []string) {
	for _, record := range seen(t, brokers, topic) {
		all = append(all, fmt.Sprintf("%q", record.Value))
	}
	return all
}

// TestRowsWaitForTheirSchema, in their order, and so do those behind that need
// none: a registry that is down costs time, and nothing else.
func TestRowsWaitForTheirSchema(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, nil)
		cfg := testConfig(t, brokers)
		fake, client := schemaRegistry(t)
		cfg.Registry = client
		var down atomic.Bool
		var asked atomic.Int64
		down.Store(true)
		fake.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			asked.Add(1)
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return down.Load()
		})
		id, _, err := fake.RegisterSchema(topic+"-value", sr.Schema{Schema: amountSchema, Type: sr.TypeJSON})
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, cfg)
		r.transaction(event(topic, "k", "plain 1", 1), framed(topic, `{"amount": 1}`, 2), event(topic, "k", "plain 2", 3))
		r.transaction(framed(topic, `{"amount": 2}`, 4))
		r.until("two requests", func() bool { return asked.Load() >= 2 })
		if confirmed := r.ledger.Confirmed(); confirmed != 1000 && confirmed != 0 {
			t.Errorf("confirmed %s though rows wait", confirmed)
		}
		down.Store(false)
		r.untilConfirmed()
		want := []string{`"plain 1"`, fmt.Sprintf("%q", "\x00\x00\x00\x00"+string(rune(id))+`{"amount": 1}`), `"plain 2"`, fmt.Sprintf("%q", "\x00\x00\x00\x00"+string(rune(id))+`{"amount": 2}`)}
		if got := texts(t, brokers, topic); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := asked.Load(); n > 10 {
			t.Errorf("the registry was asked %d times for one subject", n)
		}
	})
}

func TestWhatIsWrongWithARowsSchema(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		for _, c := range []struct{ name, value, want string }{
			{"no subject", `{"amount": 1}`, `row "2" at`},
			{"no subject", `{"amount": 1}`, `-value" is not in the schema registry`},
			{"unfit", `{"secret": 1}`, "the value does not fit schema id 1: at / it breaks the rule required"},
			{"unfit", `{"secret": 1}`, `-value")`},
		} {
			t.Run(c.name, func(t *testing.T) {
				r, fake, topic, brokers := framingSink(t, start)
				if c.name == "unfit" {
					if _, _, err := fake.RegisterSchema(topic+"-value", sr.Schema{Schema: amountSchema, Type: sr.TypeJSON}); err != nil {
						t.Fatal(err)
					}
				}
				r.transaction(event(topic, "k", "before", 1))
				r.transaction(framed(topic, c.value, 2))
				r.transaction(event(topic, "k", "behind", 3))
				err := r.untilError()
				var refused *DeliveryError
				if !errors.As(err, &refused) || refused.RowID != "2" || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
					t.Fatalf("got %v", err)
				}
				if got := texts(t, brokers, topic); len(got) != 1 || got[0] != `"before"` {
					t.Errorf("published: %v", got)
				}
			})
		}
	})
}

func TestARegistryThatDoesNotLetUsIn(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		r, fake, topic, _ := framingSink(t, start)
		fake.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		})
		r.transaction(framed(topic, `{"amount": 1}`, 1))
		var setup *SetupError
		if err := r.untilError(); !errors.As(err, &setup) || !strings.Contains(err.Error(), "check registry-user") {
			t.Fatalf("got %v", err)
		}
	})
}

// TestTheLimitCountsThePrefix to the byte.
func TestTheLimitCountsThePrefix(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	for _, over := range []int{0, 1} {
		cfg := testConfig(t, brokers)
		fake, client := schemaRegistry(t)
		cfg.Registry = client
		e := framed("x", `{"amount": "`+strings.Repeat("x", 1000)+`"}`, 1)
		plain := *e
		plain.Value = append(make([]byte, 5), e.Value...)
		topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": fmt.Sprint(recordSize(&plain) - over)})
		e.Topic, e.SchemaAt.Subject = topic, topic
		if _, _, err := fake.RegisterSchema(topic, sr.Schema{Schema: amountSchema, Type: sr.TypeJSON}); err != nil {
			t.Fatal(err)
		}
		r := start(t, cfg)
		small := framed(topic, `{"amount": 1}`, 0) // the client learns how batches are framed
		small.SchemaAt.Subject = topic
		r.transaction(small)
		r.untilConfirmed()
		r.transaction(e)
		if over == 0 {
			r.untilConfirmed()
		} else if err := r.untilError(); !strings.Contains(err.Error(), "exceed the topic's max.message.bytes") {
			t.Errorf("got %v", err)
		}
	}
}

// TestNewerVersionsAreFollowed while rows go on.
func TestNewerVersionsAreFollowed(t *testing.T) {
	r, fake, topic, brokers := framingSink(t, func(t testing.TB, cfg Config) *running {
		i := claim(t, open(t, cfg)).NewIdempotent(baseRecord(cfg.Pipeline))
		t.Cleanup(i.Close)
		return drive(t, i)
	})
	register := func(text string) byte {
		id, _, err := fake.RegisterSchema(topic+"-value", sr.Schema{Schema: text, Type: sr.TypeJSON})
		if err != nil {
			t.Fatal(err)
		}
		return byte(id)
	}
	first := register(amountSchema)
	r.transaction(framed(topic, `{"amount": 1}`, 1))
	r.untilConfirmed()
	second := register(`{"type":"object"}`)
	f := &r.sink.(*Idempotent).front
	f.framing.lookAgain(t.Context(), []*framer{f.framing.known[schemaKey{jsonFramed, outbox.SchemaAt{Subject: topic + "-value"}}]})
	r.drain()
	r.transaction(framed(topic, `{"amount": 2}`, 2))
	r.untilConfirmed()
	records := seen(t, brokers, topic)
	if records[0].Value[4] != first || records[len(records)-1].Value[4] != second {
		t.Errorf("got %q, want ids %d and %d", texts(t, brokers, topic), first, second)
	}
}

func TestPrepare(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	cfg := testConfig(t, brokers)
	fake, client := schemaRegistry(t)
	schemas, at := []outbox.Schema{*jsonFramed}, []outbox.SchemaAt{{Subject: "s"}}
	var setup *SetupError
	if err := open(t, cfg).Prepare(t.Context(), schemas, at); !errors.As(err, &setup) {
		t.Errorf("without a registry: %v", err)
	}
	cfg.Registry = client
	k := open(t, cfg)
	if err := k.Prepare(t.Context(), schemas, at); !errors.As(err, &setup) || !strings.Contains(err.Error(), `subject "s" is not in`) {
		t.Errorf("unknown: %v", err)
	}
	fake.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	if err := k.Prepare(t.Context(), schemas, at); !errors.Is(err, ErrRegistry) || !Retriable(err) {
		t.Errorf("down: %v", err)
	}
	fake.Close()
	if err := k.Prepare(within(t, 10*time.Second), schemas, at); !errors.Is(err, ErrRegistry) || !Retriable(err) {
		t.Errorf("gone: %v", err)
	}
	if err := open(t, testConfig(t, brokers)).Prepare(t.Context(), nil, nil); err != nil {
		t.Errorf("nothing to look up: %v", err)
	}
}
