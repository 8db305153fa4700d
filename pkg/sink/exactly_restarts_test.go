package sink

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
)

// story is a stream of transactions that is always the same, told from wherever a
// checkpoint says.
type story struct {
	topics       []string
	transactions int
}

// rows of transaction n, from 1: mostly a few, now and then more than a window.
func (s story) rows(n int) int {
	if n%29 == 0 {
		return 1500
	}
	return n % 4
}

// tell the story from record on until its end, an error, or until stop says so.
func (s story) tell(r *running, from checkpoint.Record, stop func() bool) {
	first, skip := (int(from.Covered)-1000)/16+1, int(from.Ordinal)
	row := 0
	for n := 1; n < first; n++ {
		row += s.rows(n)
	}
	r.lsn = int(from.Covered)
	for n := first; n <= s.transactions; n++ {
		r.begin()
		for i := 1; i <= s.rows(n); i++ {
			row++
			if i <= skip {
				continue
			}
			for r.drain(); r.ledger.Full() && r.err == nil && !stop(); r.drain() {
				select {
				case <-r.sink.Ready():
				case <-time.After(10 * time.Millisecond):
				}
			}
			if r.err != nil || stop() {
				return
			}
			e := event(s.topics[row%len(s.topics)], fmt.Sprint("k", row%4), fmt.Sprint((row+3)/4), n)
			e.Position.CommitLSN, e.Position.Ordinal = edgeAt(r.lsn).CommitLSN, uint32(i)
			r.row(e)
		}
		skip = 0
		r.end()
	}
	for r.drain(); r.ledger.Pending() && r.err == nil && !stop(); r.drain() {
		select {
		case <-r.sink.Ready():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// survive tells the story over as many starts as it takes, each ended by what
// disturb does, and checks what readers saw in the end.
func (s story) survive(t *testing.T, cfg Config, disturb func(round int) (stop func() bool)) (starts, splits int) {
	t.Helper()
	cfg.Topics = s.topics // as the settings, or the process's memory, have them
	deadline := time.Now().Add(2 * time.Minute)
	var confirmed pglogrepl.LSN
	for {
		var c *Claim
		var from checkpoint.Record
		k := open(t, cfg)
		for ready := false; !ready; { // brokers may be down
			var err error
			if c, err = claimIn(within(t, 60*time.Second), k); err == nil {
				from, _, err = c.Load(within(t, 60*time.Second))
			}
			if ready = err == nil; !ready {
				if !Retriable(err) || time.Now().After(deadline) {
					t.Fatal(err)
				}
				if strings.Contains(err.Error(), "which the broker should have ended") {
					abortHanging(t, cfg, checkpointPrefix+cfg.Pipeline)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		if from.Covered = max(from.Covered, 1000); from.Covered < confirmed {
			t.Fatalf("confirmed %s, the checkpoint covers %s", confirmed, from.Covered)
		}
		sink := c.NewTransactional(baseRecord(cfg.Pipeline), TransactionalOptions{MaxTransactionTime: 20 * time.Millisecond, CommitInterval: time.Millisecond})
		r := drive(t, sink)
		r.ledger = newLedgerAt(from.Edge(), cfg)
		starts++
		s.tell(r, from, disturb(starts))
		confirmed = r.ledger.Confirmed()
		splits += int(sink.Stats().Splits)
		r.close()
		if r.err != nil && !Retriable(r.err) {
			t.Fatalf("reported %v", r.err)
		}
		if r.err == nil && !r.ledger.Pending() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not at the end after %d starts, at %s", starts, confirmed)
		}
	}
	rows := 0
	for n := 1; n <= s.transactions; n++ {
		rows += s.rows(n)
	}
	count := 0
	for m, topic := range s.topics {
		records := seen(t, cfg.Brokers, topic)
		count += len(records)
		last := map[string]int{}
		for _, record := range records {
			var n int
			if _, err := fmt.Sscan(string(record.Value), &n); err != nil {
				t.Fatal(err)
			}
			if before := last[string(record.Key)]; n <= before {
				t.Fatalf("topic %d, key %s: %d after %d", m, record.Key, n, before)
			}
			last[string(record.Key)] = n
		}
	}
	if count != rows { // in order without repetition, so the number says the rest
		t.Errorf("readers see %d rows of %d", count, rows)
	}
	return starts, splits
}

// abortHanging follows the way out of the message, for what a claim could not finish.
func abortHanging(t *testing.T, cfg Config, topic string) {
	t.Helper()
	admin := kadm.NewClient(client(t, cfg.Brokers))
	producers, err := admin.DescribeProducers(within(t, 20*time.Second), kadm.TopicsSet{topic: {0: {}}})
	if err != nil {
		t.Fatal(err)
	}
	producers.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset < 0 {
			return
		}
		t.Logf("the transaction of producer id %d, epoch %d, is aborted as by kafka-transactions.sh", p.ProducerID, p.ProducerEpoch)
		if _, err := admin.WriteTxnMarkers(within(t, 20*time.Second), kadm.TxnMarkers{
			ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: p.CoordinatorEpoch, Topics: kadm.TopicsSet{topic: {0: {}}},
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever the cluster answers, whenever the process dies, whoever takes over:
// readers see every row once, in order.
func TestExactlyOnceOverRestarts(t *testing.T) {
	t.Parallel()
	faults := []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.Produce, kerr.UnknownServerError},
		{kmsg.Produce, kerr.InvalidTxnState},
		{kmsg.Produce, kerr.InvalidProducerEpoch},
		{kmsg.Produce, kerr.OutOfOrderSequenceNumber},
		{kmsg.Produce, kerr.NotEnoughReplicasAfterAppend},
		{kmsg.Produce, kerr.NotLeaderForPartition},
		{kmsg.Produce, kerr.RequestTimedOut},
		{kmsg.EndTxn, kerr.UnknownServerError},
		{kmsg.EndTxn, kerr.ConcurrentTransactions},
		{kmsg.EndTxn, kerr.NotCoordinator},
		{kmsg.EndTxn, kerr.ProducerFenced},
		{kmsg.EndTxn, kerr.TransactionAbortable},
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			cluster, brokers := testenv.NewKfake(t, kfake.NumBrokers(3))
			cfg := testConfig(t, brokers)
			cfg.MaxInFlight.Events = 400
			cfg.DialContext = slow(2 << 20)
			s := story{topics: []string{createTopic(t, brokers, 3, nil), createTopic(t, brokers, 1, nil)}, transactions: 600}
			random := rand.New(rand.NewPCG(seed, 1))
			starts, splits := s.survive(t, cfg, func(round int) func() bool {
				if round > 40 {
					return func() bool { return false }
				}
				end := time.Now().Add(time.Duration(random.IntN(150)) * time.Millisecond)
				f, after := faults[random.IntN(len(faults))], random.IntN(12)
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{f.key}, Err: f.err, When: func(kmsg.Request) bool { after--; return after < 0 }})
				return func() bool { return time.Now().After(end) }
			})
			if starts < 10 {
				t.Errorf("only %d starts", starts)
			}
			t.Logf("%d starts, %d splits", starts, splits)
		})
	}
}

// Brokers that stop or are killed inside transactions.
func TestExactlyOnceOverBrokerRestarts(t *testing.T) {
	t.Parallel()
	k := testenv.NewKafka(t, testenv.KafkaOptions{})
	cfg := testConfig(t, k.Brokers)
	cfg.MaxInFlight.Events = 400
	s := story{topics: []string{createTopic(t, k.Brokers, 2, nil), createTopic(t, k.Brokers, 1, nil)}, transactions: 1500}
	ended := make(chan error, 1)
	go func() {
		var err error
		for _, end := range []func(...int) error{k.Kill, k.Stop} {
			time.Sleep(time.Second)
			if err = end(); err == nil {
				time.Sleep(500 * time.Millisecond)
				err = k.Start(within(t, 60*time.Second))
			}
			if err != nil {
				break
			}
		}
		ended <- err
	}()
	starts, splits := s.survive(t, cfg, func(round int) func() bool {
		end := time.Now().Add(700 * time.Millisecond)
		return func() bool { return round <= 3 && time.Now().After(end) }
	})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d starts, %d splits", starts, splits)
}
