package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// unverified is a broker that takes transactional records for partitions that the
// coordinator was not told of, as all did before 3.6.
func unverified(t *testing.T) *testenv.Kafka {
	t.Helper()
	return testenv.NewKafka(t, testenv.KafkaOptions{Real: true, Props: map[string]string{"transaction.partition.verification.enable": "false"}})
}

// hang leaves a transaction of a transactional id open on partition 0 of a topic,
// with one record in it, of which its coordinator does not know.
func hang(t testing.TB, brokers []string, transactionalID, topic string, record kmsg.Record) (id int64, epoch int16) {
	t.Helper()
	// Newer ones tell the coordinator by themselves.
	raw := client(t, brokers, kgo.MaxVersions(kversion.V3_9_0()))
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &transactionalID, 30_000
	var owner *kmsg.InitProducerIDResponse
	waitFor(t, func() bool { // the markers of the id's last transaction are written a moment later
		var err error
		if owner, err = init.RequestWith(within(t, 20*time.Second), raw); err == nil {
			err = kerr.ErrorForCode(owner.ErrorCode)
		}
		if err != nil && !errors.Is(err, kerr.ConcurrentTransactions) {
			t.Fatal(err)
		}
		return err == nil
	})
	produceRaw(t, brokers, transactionalID, topic, owner.ProducerID, owner.ProducerEpoch, record)
	return owner.ProducerID, owner.ProducerEpoch
}

// produceRaw writes one record to partition 0 of a topic, and tells no coordinator.
func produceRaw(t testing.TB, brokers []string, transactionalID, topic string, id int64, epoch int16, record kmsg.Record) {
	t.Helper()
	raw := client(t, brokers, kgo.MaxVersions(kversion.V3_9_0()))
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &transactionalID, -1, 10_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rt.Topic, rp.Records = topic, transactionalBatch(id, epoch, record)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	meta, err := kadm.NewClient(raw).Metadata(within(t, 20*time.Second), topic)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := raw.Broker(int(meta.Topics[topic].Partitions[0].Leader)).Request(within(t, 20*time.Second), req)
	if err == nil {
		err = kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func transactionalBatch(id int64, epoch int16, record kmsg.Record) []byte {
	record.Length = int32(len(record.AppendTo(nil)) - 1) // without itself
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1 << 4, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: id, ProducerEpoch: epoch, NumRecords: 1, Records: record.AppendTo(nil),
	}
	const lengthEnd, crcAt, crcEnd = 12, 17, 21
	batch.Length = int32(len(batch.AppendTo(nil)) - lengthEnd)
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[crcEnd:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func rowRecord(value string, p decode.Position) kmsg.Record {
	return kmsg.Record{Value: []byte(value), Headers: []kmsg.Header{{Key: outbox.HeaderPosition, Value: []byte(p.Header(1))}}}
}

// What the guard is for: no broker keeps a hanging transaction out of the next one
// of its producer id, although that has a newer epoch.
func TestHangingTransactionIsCommittedByTheNext(t *testing.T) {
	t.Parallel()
	k := unverified(t)
	topic, id := createTopic(t, k.Brokers, 1, nil), unique("id")
	hung, _ := hang(t, k.Brokers, id, topic, kmsg.Record{Value: []byte("hung")})
	next := client(t, k.Brokers, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	if err := next.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := next.ProduceSync(within(t, 20*time.Second), kgo.StringRecord("next")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := next.EndTransaction(within(t, 20*time.Second), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	records := seen(t, k.Brokers, topic)
	if len(records) != 2 || string(records[0].Value) != "hung" || records[0].ProducerID != hung || records[1].ProducerID != hung {
		t.Errorf("readers see %v: if brokers keep it out now, say so in docs/decisions/0013", records)
	}
}

// hungStart begins a pipeline again whose broker has kept a transaction of lane
// open, and submits a row.
func hungStart(t *testing.T, cfg Config, patience time.Duration, topic string) (*running, *Kafka) {
	t.Helper()
	k := open(t, cfg)
	k.patience = patience
	c := claim(t, k)
	from, _, err := c.Load(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	sink := c.NewTransactional(baseRecord(cfg.Pipeline), TransactionalOptions{})
	t.Cleanup(sink.Close)
	r := drive(t, sink)
	r.lsn, r.ledger = int(from.Covered), newLedgerAt(from.Edge(), cfg)
	r.transaction(event(topic, "k", "again", 0))
	return r, k
}

// A transaction of ours that a broker has kept open is found before the first row
// goes behind it, waited for, and told with the way out, which is then taken.
func TestHangingTransactionStopsTheStream(t *testing.T) {
	t.Parallel()
	broker := unverified(t)
	for name, c := range map[string]struct {
		lane     int
		ordinal  uint32
		newer    int // than the checkpoint
		tells    string
		unwanted string
	}{
		"not published": {lane: 0, ordinal: 1, newer: 16, tells: "are sent again"},
		"published":     {lane: 1, ordinal: 1, newer: 0, tells: "count as published"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, broker.Brokers)
			topic := createTopic(t, broker.Brokers, 2, nil)
			r := startExactly(t, cfg)
			r.transaction(event(topic, "", "first", 0))
			r.untilConfirmed()
			r.close()

			position := decode.Position{CommitLSN: edgeAt(r.lsn + c.newer).CommitLSN, Ordinal: c.ordinal}
			id, epoch := hang(t, broker.Brokers, cfg.transactionalID(c.lane), topic, rowRecord("hung", position))
			var setup *SetupError
			if unseen, err := open(t, cfg).Hanging(within(t, 20*time.Second), []string{topic}); !errors.As(err, &setup) || len(unseen) > 0 {
				t.Fatalf("a check finds %v", err)
			}
			mustContain(t, setup, fmt.Sprintf("partition 0 of topic %q", topic), "--topic "+topic, "--partition 0", "--start-offset ", fmt.Sprintf("producer id %d, epoch %d", id, epoch))

			r, k := hungStart(t, cfg, 1500*time.Millisecond, topic)
			err := r.untilError()
			if !errors.As(err, &setup) || Retriable(err) {
				t.Fatalf("reported %v", err)
			}
			mustContain(t, err, fmt.Sprintf("partition 0 of topic %q", topic), fmt.Sprintf("producer id %d, epoch %d", id, epoch), c.tells,
				"kafka-transactions.sh --bootstrap-server "+cfg.Brokers[0]+" abort --topic "+topic+" --partition 0 --start-offset ")
			r.close()

			// Aborted while it waits, it goes on by itself.
			r, k = hungStart(t, cfg, time.Minute, topic)
			r.until("it is told why rows wait", func() bool { return strings.Contains(k.Trouble(), topic) })
			abortHanging(t, cfg, topic)
			r.untilConfirmed()
			var values []string
			for _, record := range seen(t, cfg.Brokers, topic) {
				values = append(values, string(record.Value))
			}
			slices.Sort(values)
			if !slices.Equal(values, []string{"again", "first"}) {
				t.Errorf("readers see %v", values)
			}
			if unseen, err := open(t, cfg).Hanging(within(t, 20*time.Second), []string{topic}); err != nil || len(unseen) > 0 {
				t.Errorf("a check finds %v", err)
			}
		})
	}
}

// What the coordinator has ended and a partition not is ended there by the next claim,
// as it was decided.
func TestClaimFinishesWhatIsLeftOpen(t *testing.T) {
	t.Parallel()
	broker := unverified(t)
	if each, err := open(t, testConfig(t, broker.Brokers)).epochEach(within(t, 20*time.Second)); err != nil || !each {
		t.Skipf("transactions have no epochs of their own here: %v", err)
	}
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit=", commit), func(t *testing.T) {
			cfg := testConfig(t, broker.Brokers)
			told, left := createTopic(t, broker.Brokers, 1, nil), createTopic(t, broker.Brokers, 1, nil)
			cfg.Topics = []string{left}
			c := claim(t, open(t, cfg))
			lane := c.lane[0]
			if err := lane.begin(within(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			}
			lane.writes(told)
			if err := produceOne(within(t, 20*time.Second), lane.client, &kgo.Record{Topic: told, Value: []byte("told")}); err != nil {
				t.Fatal(err)
			}
			produceRaw(t, cfg.Brokers, cfg.transactionalID(0), left, lane.id, lane.epoch, kmsg.Record{Value: []byte("left")})
			if err := lane.client.EndTransaction(within(t, 20*time.Second), kgo.TransactionEndTry(commit)); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return !isOpen(t, cfg.Brokers, told) })
			c.Close()
			if !isOpen(t, cfg.Brokers, left) {
				t.Fatal("nothing is left open")
			}
			waitFor(t, func() bool { // the coordinator has written that it is complete
				state, err := open(t, cfg).describeLane(within(t, 20*time.Second), 0)
				return err == nil && strings.HasPrefix(state.State, "Complete")
			})
			claim(t, open(t, cfg))
			want := 0
			if commit {
				want = 1
			}
			if n := len(seen(t, cfg.Brokers, left)); n != want {
				t.Errorf("readers see %d rows, want %d", n, want)
			}
			if n := len(seen(t, cfg.Brokers, told)); n != want {
				t.Errorf("readers see %d rows of those told, want %d", n, want)
			}
		})
	}
}

// Others' transactions, open for however long, are none of our business; nor is a
// hanging one of theirs.
func TestOthersOpenTransactions(t *testing.T) {
	t.Parallel()
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		topic := createTopic(t, brokers, 1, nil)
		foreign := openForeign(t, brokers, topic)
		r := startExactly(t, cfg)
		for n := range 3 {
			r.transaction(event(topic, "", fmt.Sprint("v", n), n))
			r.untilConfirmed()
		}
		if unseen, err := open(t, cfg).Hanging(within(t, 20*time.Second), []string{topic}); err != nil || len(unseen) > 0 {
			t.Errorf("a check finds %v", err)
		}
		if n := len(committed(t, brokers, topic)); n > 0 {
			t.Errorf("readers see %d rows behind an open transaction", n)
		}
		if err := foreign.EndTransaction(within(t, 20*time.Second), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		if n := len(seen(t, brokers, topic)); n != 3 {
			t.Errorf("readers see %d rows of 3", n)
		}
	})
}

// openForeign opens a transaction of somebody else's on a topic.
func openForeign(t *testing.T, brokers []string, topic string) *kgo.Client {
	t.Helper()
	foreign := client(t, brokers, kgo.TransactionalID(unique("foreign")), kgo.DefaultProduceTopic(topic))
	if err := foreign.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := foreign.ProduceSync(within(t, 20*time.Second), kgo.StringRecord("theirs")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return foreign
}

// Without the right to see whose a transaction is, an open one is waited for; when it
// lasts, the right is named.
func TestOpenTransactionsThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	cluster, brokers := testenv.NewKfake(t)
	cluster.ControlKey(int16(kmsg.DescribeProducers), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := req.(*kmsg.DescribeProducersRequest)
		resp := asked.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, topic := range asked.Topics {
			rt := kmsg.NewDescribeProducersResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	cfg := testConfig(t, brokers)
	topic := createTopic(t, brokers, 2, nil)
	r := startExactly(t, cfg)
	r.transaction(event(topic, "k", "v", 0))
	r.untilConfirmed() // none is open
	r.close()
	unseen, err := open(t, cfg).Hanging(within(t, 20*time.Second), []string{topic})
	if err != nil || len(unseen) != 2 { // the checkpoint topic, and this one
		t.Errorf("a check finds %v, %v", unseen, err)
	}

	foreign := openForeign(t, brokers, topic)
	r, _ = hungStart(t, cfg, 1200*time.Millisecond, topic)
	err = r.untilError()
	if !as[*AccessError](err) || Retriable(err) {
		t.Fatalf("reported %v", err)
	}
	mustContain(t, err, "Read on topic \""+topic+"\"", "kafka-acls.sh", "--operation Read --topic "+topic)
	r.close()
	r, k := hungStart(t, cfg, time.Minute, topic)
	r.until("it is told why rows wait", func() bool { return strings.Contains(k.Trouble(), topic) })
	if err := foreign.EndTransaction(within(t, 20*time.Second), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	r.untilConfirmed()
}
