package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// persist streams the transactions as the supervisor does: after an error that may
// pass it starts again behind what is covered. It returns the final error.
func persist(t *testing.T, start starter, cfg Config, transactions ...[]*outbox.Event) (starts int, _ error) {
	t.Helper()
	covered := 1000
	for starts = 1; ; starts++ {
		if starts > 20 {
			t.Fatal("it starts over and over")
		}
		r := start(t, cfg)
		r.lsn = covered
		edge := checkpoint.Edge{Covered: pglogrepl.LSN(covered)}
		r.ledger = newLedgerAt(edge, cfg)
		for _, events := range transactions[(covered-1000)/16:] {
			for r.ledger.Full() && r.err == nil {
				<-r.sink.Ready()
				r.drain()
			}
			r.transaction(events...)
		}
		r.until("all is done, or an error", func() bool { return r.err != nil || !r.ledger.Pending() })
		r.close()
		if r.err == nil || !Retriable(r.err) {
			return starts, r.err
		}
		t.Logf("start %d: %v", starts, r.err)
		covered = int(r.ledger.Confirmed())
	}
}

// single makes a transaction of each event, and gives it the position of one.
func single(events []*outbox.Event) [][]*outbox.Event {
	var out [][]*outbox.Event
	for n, e := range events {
		e.Position = decode.Position{CommitLSN: pglogrepl.LSN(1000 + 16*(n+1) - 8), Ordinal: 1}
		out = append(out, []*outbox.Event{e})
	}
	return out
}

// everyPolicy that lets bad rows pass.
func everyPolicy(t *testing.T, test func(t *testing.T, policy Policy)) {
	for _, policy := range []Policy{Skip, DeadLetter} {
		t.Run(string(policy), func(t *testing.T) { test(t, policy) })
	}
}

// Rows of every kind of badness that the check before sending finds, between good
// ones: the good ones arrive, in order, and each bad one is passed as the policy
// has it.
func TestPoisonBeforeSending(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			everyPolicy(t, func(t *testing.T, policy Policy) { poisonBeforeSending(t, start, brokers, policy) })
		})
	})
}

func poisonBeforeSending(t *testing.T, start starter, brokers []string, policy Policy) {
	topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "2000"})
	cfg := testConfig(t, brokers)
	cfg.OnPoison, cfg.Seen, cfg.TopicsAllowed = policy, NewSeen(), []string{topic, "nobody-*", "ü*", "__*", "walstream.*"}
	bad := map[Class]*outbox.Event{
		ClassTooLarge:  event(topic, "k", strings.Repeat("x", 3000), 0),
		ClassNoTopic:   event("nobody-made-this", "k", "bad", 0),
		ClassTopicName: event("ünal", "k", "bad", 0),
		ClassPartition: event(topic, "k", "bad", 0),
		ClassNotListed: event("elsewhere", "k", "bad", 0),
		ClassHeader:    event(topic, "k", "bad", 0),
	}
	bad[ClassPartition].Partition = 7
	bad[ClassHeader].Headers = []outbox.Header{{Key: "\xff", Value: []byte("x")}}
	bombs := []*outbox.Event{event(topic, "k", "bad", 0), event("__consumer_offsets", "", "bad", 0), event(checkpointPrefix+"x", "", "bad", 0)}
	for n := range 500 {
		bombs[0].Headers = append(bombs[0].Headers, outbox.Header{Key: fmt.Sprint("h", n), Value: []byte("0123456789")})
	}
	var events []*outbox.Event
	good := func() {
		for range 20 {
			events = append(events, event(topic, "k", fmt.Sprint(len(events)), 0))
		}
	}
	for _, class := range Classes {
		if bad[class] != nil {
			good()
			events = append(events, bad[class])
		}
	}
	events = append(events, bombs...)
	good()
	for n := range events {
		events[n].RowID = fmt.Sprint(n)
	}
	starts, err := persist(t, start, cfg, single(events)...)
	if err != nil || starts != 1 {
		t.Fatalf("%d starts, ended with %v", starts, err)
	}
	var want []string
	for n, e := range events {
		if e.Topic == topic && string(e.Value) == fmt.Sprint(n) {
			want = append(want, fmt.Sprint(n))
		}
	}
	if got := values(seen(t, brokers, topic)); !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	counts, recent := cfg.Seen.BadRows()
	for class := range bad {
		wanted := uint64(1)
		switch class {
		case ClassTooLarge:
			wanted = 2
		case ClassTopicName:
			wanted = 3
		}
		if got := counts[policy][class]; got != wanted {
			t.Errorf("class %s: counted %d, want %d", class, got, wanted)
		}
	}
	if len(recent) != min(recentRows, len(bad)+len(bombs)) || recent[0].Position != bad[ClassTopicName].Position {
		t.Errorf("recent rows %+v", recent)
	}
	if policy == DeadLetter {
		checkLetters(t, brokers, cfg, append(slices.Collect(valuesOf(bad)), bombs...))
	}
}

// Dead letters of the pipelines before this one are read too, where they are named.
func TestLettersOfEarlierPipelines(t *testing.T) {
	t.Parallel()
	_, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "1000"})
	var cfg Config
	var pipelines []string
	for n := range 3 {
		cfg = testConfig(t, brokers)
		cfg.OnPoison = DeadLetter
		pipelines = append(pipelines, cfg.Pipeline)
		r := start(t, cfg)
		r.transaction(event(topic, "k", strings.Repeat("x", 2000), n))
		r.untilConfirmed()
		r.close()
	}
	var in []string
	k := open(t, cfg)
	parts, err := k.EachLetter(t.Context(), pipelines[:1], time.Second, func(l *Letter, _ *TopicRecord) error {
		in = append(in, l.In)
		return nil
	}, func(string, string, time.Time) {})
	slices.Sort(in)
	want := []string{DeadLetterTopic(pipelines[0]), DeadLetterTopic(pipelines[2])}
	slices.Sort(want)
	if err != nil || len(parts) != 2 || !slices.Equal(in, want) {
		t.Errorf("read %v, want %v: %v", in, want, err)
	}
}

func valuesOf(m map[Class]*outbox.Event) func(func(*outbox.Event) bool) {
	return func(yield func(*outbox.Event) bool) {
		for _, e := range m {
			if !yield(e) {
				return
			}
		}
	}
}

// checkLetters: one for each, whole, in order of position.
func checkLetters(t *testing.T, brokers []string, cfg Config, want []*outbox.Event) {
	t.Helper()
	letters := seen(t, brokers, cfg.deadLetterTopic())
	slices.SortFunc(want, func(a, b *outbox.Event) int { return a.Position.Compare(b.Position) })
	if len(letters) != len(want) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(want))
	}
	for n, letter := range letters {
		e := want[n]
		if string(letter.Value) != string(e.Value) {
			t.Errorf("letter %d: value %q, want %q", n, letter.Value, e.Value)
		}
		if got := headerOf(letter, letterTopic); got != e.Topic {
			t.Errorf("letter %d: topic %q, want %q", n, got, e.Topic)
		}
		if e.Key == nil && (string(letter.Key) != e.RowID || headerOf(letter, letterKey) != noKey) || e.Key != nil && string(letter.Key) != string(e.Key) {
			t.Errorf("letter %d: key %q of row with key %q", n, letter.Key, e.Key)
		}
		for _, name := range []string{letterReason, letterClass, letterSize, letterSHA256, letterTimestamp} {
			if headerOf(letter, name) == "" {
				t.Errorf("letter %d has no header %s", n, name)
			}
		}
	}
}

func headerOf(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Only the broker can tell: rows with a time that it does not take, in the middle
// of thousands. They are found and passed; none of the others is lost, doubled in
// exactly-once, or out of order.
func TestPoisonOnlyTheBrokerCanTell(t *testing.T) {
	k := testenv.SharedKafka(t)
	if k.From == testenv.Kfake {
		t.Skip("kfake takes such rows")
	}
	everySink(t, func(t *testing.T, start starter) {
		for _, policy := range []Policy{Stop, Skip, DeadLetter} {
			t.Run(string(policy), func(t *testing.T) {
				topic := createTopic(t, k.Brokers, 1, youngOnly)
				cfg := testConfig(t, k.Brokers)
				cfg.OnPoison, cfg.Seen = policy, NewSeen()
				bad := map[int]bool{777: true, 2000: true, 2001: true}
				var events, letters []*outbox.Event
				var want []string
				for n := range 3000 {
					events = append(events, event(topic, "k", fmt.Sprint(n), n))
					if bad[n] {
						letters = append(letters, old(events[n]))
					} else if policy != Stop || n < 777 {
						want = append(want, fmt.Sprint(n))
					}
				}
				starts, err := persist(t, start, cfg, single(events)...)
				if policy == Stop {
					refused, ok := errors.AsType[*DeliveryError](err)
					if !ok || refused.RowID != "777" {
						t.Fatalf("ended with %v", err)
					}
					if class, bad := Flaw(err); !bad || class != ClassTime {
						t.Errorf("class %s", class)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d starts", starts)
				got := values(seen(t, k.Brokers, topic))
				if t.Name(); strings.Contains(t.Name(), "at-least-once") {
					got = firsts(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("published %d, want %d", len(got), len(want))
				}
				if policy == DeadLetter {
					checkLetters(t, k.Brokers, cfg, letters)
				}
				if counts, _ := cfg.Seen.BadRows(); policy != Stop && counts[policy][ClassTime] != 3 {
					t.Errorf("counted %v", counts)
				}
			})
		}
	})
}

// The same in one large transaction: it is sent from its beginning again and again,
// and still no row comes twice, in at-least-once either.
func TestPoisonInALargeTransaction(t *testing.T) {
	k := testenv.SharedKafka(t)
	if k.From == testenv.Kfake {
		t.Skip("kfake takes such rows")
	}
	everySink(t, func(t *testing.T, start starter) {
		topic := createTopic(t, k.Brokers, 1, youngOnly)
		cfg := testConfig(t, k.Brokers)
		cfg.OnPoison, cfg.Seen = DeadLetter, NewSeen()
		var events, letters []*outbox.Event
		var want []string
		for n := range 3000 {
			e := event(topic, "k", fmt.Sprint(n), n)
			e.Position = decode.Position{CommitLSN: 1008, Ordinal: uint32(n + 1)}
			if n == 0 || n == 1500 || n == 2999 {
				letters = append(letters, old(e))
			} else {
				want = append(want, fmt.Sprint(n))
			}
			events = append(events, e)
		}
		starts, err := persist(t, start, cfg, events, []*outbox.Event{event(topic, "k", "behind", 3000)})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d starts", starts)
		if got := values(seen(t, k.Brokers, topic)); !slices.Equal(got, append(want, "behind")) {
			t.Errorf("published %d, of them %d different, want %d", len(got), len(firsts(got)), len(want)+1)
		}
		checkLetters(t, k.Brokers, cfg, letters)
	})
}

// firsts leaves out what was there before.
func firsts(values []string) (out []string) {
	had := map[string]bool{}
	for _, v := range values {
		if !had[v] {
			out = append(out, v)
		}
		had[v] = true
	}
	return out
}

// A whole PostgreSQL transaction of bad rows, and one of which every second row is
// bad: in exactly-once the rest of it and its dead letters are one Kafka
// transaction.
func TestPoisonInsideTransactions(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			everyPolicy(t, func(t *testing.T, policy Policy) {
				topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "2000"})
				cfg := testConfig(t, brokers)
				cfg.OnPoison, cfg.Seen = policy, NewSeen()
				var all, mixed, letters []*outbox.Event
				for n := range 10 {
					all = append(all, event(topic, "k", strings.Repeat("x", 3000), n))
					all[n].Position = decode.Position{CommitLSN: 1008, Ordinal: uint32(n + 1)}
					value := "good"
					if n%2 == 0 {
						value = strings.Repeat("x", 3000)
					}
					mixed = append(mixed, event(topic, "k", value, 100+n))
					mixed[n].Position = decode.Position{CommitLSN: 1024, Ordinal: uint32(n + 1)}
					if n%2 == 0 {
						letters = append(letters, mixed[n])
					}
				}
				if starts, err := persist(t, start, cfg, all, mixed); err != nil || starts != 1 {
					t.Fatalf("%d starts: %v", starts, err)
				}
				if got := seen(t, brokers, topic); len(got) != 5 {
					t.Errorf("%d records", len(got))
				}
				if policy == DeadLetter {
					checkLetters(t, brokers, cfg, append(letters, all...))
				}
			})
		})
	})
}

// A limit that is raised, or a topic that is made, lets the next rows pass: what
// was known a while ago does not count against a row.
func TestPoisonIsNotJudgedByOldFacts(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "2000"})
		cfg := testConfig(t, brokers)
		cfg.OnPoison, cfg.Seen = Skip, NewSeen()
		large := strings.Repeat("x", 3000)
		first := []*outbox.Event{event(topic, "k", "a", 0), event(topic, "k", large, 1)}
		if _, err := persist(t, start, cfg, single(first)...); err != nil {
			t.Fatal(err)
		}
		r := start(t, cfg)
		r.transaction(event(topic, "k", "b", 10))
		r.untilConfirmed()
		limit := "5000"
		if _, err := kadm.NewClient(client(t, brokers)).AlterTopicConfigs(within(t, 20*time.Second),
			[]kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic); err != nil {
			t.Fatal(err)
		}
		for _, tp := range r.front().topics {
			tp.asOf = tp.asOf.Add(-factsFresh)
		}
		r.transaction(event(topic, "k", large, 11))
		if err := r.untilError(); !errors.Is(err, ErrSentAgain) {
			t.Fatalf("reported %v", err)
		}
		r.close()
		again := start(t, cfg)
		again.transaction(event(topic, "k", large, 11))
		again.untilConfirmed()
		if got := seen(t, brokers, topic); len(got) != 3 {
			t.Errorf("%d records, want 3", len(got))
		}
		if counts, _ := cfg.Seen.BadRows(); counts[Skip][ClassTooLarge] != 1 {
			t.Errorf("counted %v", counts)
		}
	})
}

func (r *running) front() *front {
	switch s := r.sink.(type) {
	case *Idempotent:
		return &s.front
	case *Transactional:
		return &s.front
	}
	return nil
}

// A column of names that are no topics costs no memory for ever.
func TestBadTopicNamesAreForgotten(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, nil)
		cfg := testConfig(t, brokers)
		cfg.OnPoison, cfg.Logger = Skip, zerolog.Nop()
		r := start(t, cfg)
		for n := range 3 * topicsKept {
			r.transaction(event(fmt.Sprint("no/topic/", n), "k", "x", 2*n))
			if n%1000 == 0 {
				r.transaction(event(topic, "k", "x", 2*n+1))
				r.untilConfirmed()
			}
		}
		r.untilConfirmed()
		if kept := len(r.front().topics); kept > topicsKept+1 {
			t.Errorf("%d topics are kept", kept)
		}
	})
}
