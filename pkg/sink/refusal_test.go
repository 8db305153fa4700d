package sink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

func values(records []*kgo.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

// A row that is refused before it is sent: what lies before it is published and
// covered by a checkpoint, nothing behind it is published.
func TestRefusedBeforeSending(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) { refusedBeforeSending(t, start, brokers) })
	})
}

func refusedBeforeSending(t *testing.T, start starter, brokers []string) {
	small := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "2000"})
	for name, c := range map[string]struct {
		bad  func(e *outbox.Event)
		says []string
	}{
		"too large": {
			bad:  func(e *outbox.Event) { e.Value = make([]byte, 3000) },
			says: []string{"2000", "3.0 KiB", "max.message.bytes"},
		},
		"missing topic": {
			bad:  func(e *outbox.Event) { e.Topic = "nobody-made-this" },
			says: []string{"does not exist", "--create-topics", "nobody-made-this"},
		},
		"bad name": {
			bad:  func(e *outbox.Event) { e.Topic = "orders of ünal" },
			says: []string{"ASCII"},
		},
		"no such partition": {
			bad:  func(e *outbox.Event) { e.Partition = 7 },
			says: []string{"partition 7", "the topic has 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "2000"})
			r := start(t, testConfig(t, brokers))
			r.transaction(event(small, "k", "elsewhere", 0)) // so that topics are known at different times
			r.transaction(event(topic, "k", "before", 1))
			covered := r.lsn
			bad := event(topic, "k", "bad", 2)
			c.bad(bad)
			r.transaction(bad)
			for n := 3; n < 50; n++ {
				r.transaction(event(topic, "k", "behind", n))
			}
			err := r.untilError()
			var refused *DeliveryError
			if !errors.As(err, &refused) || Retriable(err) {
				t.Fatalf("reported %v", err)
			}
			if refused.Topic != bad.Topic || refused.Position != bad.Position || refused.RowID != "2" {
				t.Errorf("names %+v", refused)
			}
			mustContain(t, err, append(c.says, `"2"`, bad.Position.String())...)
			mustBeRunnable(t, brokers, err.Error())
			if got := int(r.ledger.Confirmed()); got != covered {
				t.Errorf("confirmed %d, want %d: what lies before the row", got, covered)
			}
			if got := values(seen(t, brokers, topic)); len(got) != 1 || got[0] != "before" {
				t.Errorf("published %q", got)
			}
		})
	}
}

// With nothing under way, a refusal does not wait for the time that what is
// under way would have.
func TestRefusedWithNothingUnderWay(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		r := start(t, testConfig(t, brokers))
		began := time.Now()
		r.transaction(event("orders of ünal", "k", "bad", 1))
		for r.err == nil { // as the loop does: nothing is drained without a signal
			select {
			case <-r.sink.Ready():
				r.drain()
			case <-time.After(10 * time.Second):
				t.Fatal("no signal")
			}
		}
		if took := time.Since(began); !as[*DeliveryError](r.err) || took > settleTime/2 {
			t.Errorf("reported after %s: %v", took, r.err)
		}
	})
}

// The sizes computed here are the broker's own, to the byte.
func TestSizeLimitIsExact(t *testing.T) {
	t.Parallel()
	const limit = 5000
	everyBroker(t, func(t *testing.T, brokers []string) {
		for _, headers := range [][]outbox.Header{nil, {{Key: "a", Value: nil}, {Key: strings.Repeat("b", 200), Value: make([]byte, 300)}}} {
			for _, key := range []string{"", "key", strings.Repeat("k", 100)} {
				sized := func(topic string, size, n int) *outbox.Event {
					e := event(topic, key, "", n)
					e.Headers = headers
					e.Value = make([]byte, size-200)
					for recordSize(e) < size {
						e.Value = append(e.Value, 'x')
					}
					for recordSize(e) > size {
						e.Value = e.Value[1:]
					}
					return e
				}
				topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
				r := start(t, testConfig(t, brokers))
				r.transaction(sized(topic, limit-2, 0)) // the client learns how batches are framed
				r.untilConfirmed()
				r.transaction(sized(topic, limit, 1))
				r.untilConfirmed()
				// One byte more, past our check: the broker refuses.
				var a arena
				over := a.row(t.Context(), sized(topic, limit+1, 2), topic, checkpoint.Ticket{})
				producer := client(t, brokers, kgo.ProducerBatchMaxBytes(2*limit), kgo.ProducerBatchCompression(kgo.NoCompression()))
				if err := producer.ProduceSync(t.Context(), &over.record).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
					t.Errorf("the broker took %d bytes with a limit of %d: %v", limit+1, limit, err)
				}
				r.transaction(sized(topic, limit+1, 3))
				var refused *DeliveryError
				if err := r.untilError(); !errors.As(err, &refused) || refused.Size != limit+1 {
					t.Errorf("reported %v", err)
				}
			}
		}
	})
}

// A batch is filled to the topic's limit and not a byte beyond, whatever the rows'
// sizes.
func TestFullBatchesFit(t *testing.T) {
	t.Parallel()
	everyBroker(t, func(t *testing.T, brokers []string) {
		everySink(t, func(t *testing.T, start starter) {
			t.Parallel()
			cfg := testConfig(t, brokers)
			cfg.Compression = "none"
			r := start(t, cfg)
			topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "5000"})
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range 30 { // the first one's batches are framed more cautiously
				events := make([]*outbox.Event, 1000)
				for i := range events {
					events[i] = event(topic, "", strings.Repeat("x", rng.IntN(40)), n*1000+i)
				}
				r.transaction(events...)
				r.untilConfirmed()
			}
		})
	})
}

// What the broker refuses ends the sink, and nothing behind the row is published
// on its partition, however much the client has buffered. A refusal of a batch for
// what is in it is not yet one of a row: which one it is, the next starts find out.
func TestRefusedByTheBroker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  *kerr.Error
		want func(err error) bool
		says string
	}{
		"invalid record":     {kerr.InvalidRecord, isSentAgain, "INVALID_RECORD"},
		"invalid time":       {kerr.InvalidTimestamp, isSentAgain, "INVALID_TIMESTAMP"},
		"policy":             {kerr.PolicyViolation, isSentAgain, "POLICY_VIOLATION"},
		"no right":           {kerr.TopicAuthorizationFailed, as[*AccessError], "the right Write on topic"},
		"too large":          {kerr.MessageTooLarge, isSentAgain, "MESSAGE_TOO_LARGE"},
		"unknown":            {kerr.InvalidRequest, as[*DeliveryError], "INVALID_REQUEST"},
		"lost state":         {kerr.OutOfOrderSequenceNumber, Retriable, "does not know what it acknowledged"},
		"stale epoch":        {kerr.InvalidProducerEpoch, Retriable, "PRODUCER_EPOCH"},
		"corrupt in transit": {kerr.CorruptMessage, Retriable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			everySink(t, func(t *testing.T, start starter) {
				cluster, brokers := testenv.NewKfake(t)
				topic := createTopic(t, brokers, 1, nil)
				r := start(t, testConfig(t, brokers))
				r.transaction(event(topic, "k", "before", 0))
				r.untilConfirmed()
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: c.err})
				for n := 1; n <= 3000; n++ {
					r.transaction(event(topic, "k", fmt.Sprint(n), n))
				}
				err := r.untilError()
				if !c.want(err) {
					t.Errorf("reported %v", err)
				}
				mustContain(t, err, c.says)
				r.close()
				if got := values(seen(t, brokers, topic)); len(got) != 1 {
					t.Errorf("published behind the refused row: %d records", len(got)-1)
				}
			})
		})
	}
}

func isSentAgain(err error) bool { return errors.Is(err, ErrSentAgain) && Retriable(err) }

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

// youngOnly is a topic that takes no old rows, and only its broker compares the times.
var youngOnly = map[string]string{"message.timestamp.before.max.ms": "86400000"}

// old makes a row of a column's time that such a topic refuses.
func old(e *outbox.Event) *outbox.Event {
	e.Timestamp = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	return e
}

// The real broker's own refusal: a row older than the topic takes.
func TestRefusedByTheRealBroker(t *testing.T) {
	k := testenv.SharedKafka(t)
	if k.From == testenv.Kfake {
		t.Skip("kfake takes such rows")
	}
	everySink(t, func(t *testing.T, start starter) {
		topic := createTopic(t, k.Brokers, 1, youngOnly)
		r := start(t, testConfig(t, k.Brokers))
		const before = 500
		for n := range before {
			r.transaction(event(topic, "k", "before", n))
		}
		r.untilConfirmed()
		r.transaction(old(event(topic, "k", "refused", before)))
		for n := range 3000 {
			r.transaction(event(topic, "k", "behind", before+1+n))
		}
		err := r.untilError()
		if !isSentAgain(err) {
			t.Fatalf("reported %v", err)
		}
		mustContain(t, err, "INVALID_TIMESTAMP", topic)
		r.close()
		if got := len(seen(t, k.Brokers, topic)); got != before {
			t.Errorf("published %d rows behind the refused one", got-before)
		}
	})
}

// A topic's limit that is lowered while rows flow is not a bad row: the next
// start reads it anew, and batches get smaller.
func TestLimitLoweredWhileStreaming(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			topic := createTopic(t, brokers, 1, nil)
			cfg := testConfig(t, brokers)
			r := start(t, cfg)
			r.transaction(event(topic, "k", "first", 0))
			r.untilConfirmed()
			limit := "3000"
			if _, err := kadm.NewClient(client(t, brokers)).AlterTopicConfigs(within(t, 20*time.Second),
				[]kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic); err != nil {
				t.Fatal(err)
			}
			row := strings.Repeat("x", 1000)
			for n := 1; r.err == nil; n++ { // until the broker has heard of it and a batch is too large
				if n > 100_000 {
					t.Fatal("every batch was taken")
				}
				r.transaction(event(topic, "k", row, n))
				if n%10 == 0 {
					r.drain()
				}
				for r.ledger.Full() && r.err == nil {
					<-r.sink.Ready()
					r.drain()
				}
			}
			if !Retriable(r.err) {
				t.Fatalf("reported %v", r.err)
			}
			mustContain(t, r.err, "max.message.bytes has changed to 3000")
			r.close()

			again := start(t, cfg)
			for n := range 200 {
				again.transaction(event(topic, "k", row, n))
			}
			again.untilConfirmed()
		})
	})
}

// The library must tell of a refused batch while it holds the partition, or
// records behind it slip through now and then. A new release of it may change
// the line we listen for.
func TestClientTellsOfARefusalInTime(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	topic := createTopic(t, brokers, 1, nil)
	told := make(chan struct{}, 1)
	release := make(chan struct{})
	producer := client(t, brokers, kgo.WithLogger(kgoLogger{log: zerolog.Nop(), refused: func() {
		told <- struct{}{}
		<-release // while we stand here, the partition must stand still
	}}))
	if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("before")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.InvalidRecord})
	var answered atomic.Int64
	promise := func(*kgo.Record, error) { answered.Add(1) }
	producer.Produce(t.Context(), &kgo.Record{Topic: topic, Value: []byte("refused")}, promise)
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatalf("the library did not say %q", batchRefused)
	}
	done := make(chan struct{})
	go func() { // waits for the partition's lock
		producer.Produce(t.Context(), &kgo.Record{Topic: topic, Value: []byte("behind")}, promise)
		close(done)
	}()
	select {
	case <-done:
		t.Error("a record was buffered while the refusal was being told")
	case <-time.After(100 * time.Millisecond):
	}
	if answered.Load() != 0 || fault.Hits() != 1 {
		t.Errorf("%d promises ran before we were told", answered.Load())
	}
	close(release)
	<-done
	if err := producer.Flush(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
}
