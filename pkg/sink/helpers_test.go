package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// everyBroker runs the same test against kfake and against the real broker: what
// the sink promises must hold on both.
func everyBroker(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Run("kfake", func(t *testing.T) {
		_, brokers := testenv.NewKfake(t)
		test(t, brokers)
	})
	t.Run("kafka", func(t *testing.T) {
		k := testenv.SharedKafka(t)
		if k.From == testenv.Kfake {
			t.Skip("no real broker; kfake has run already")
		}
		test(t, k.Brokers)
	})
}

// starter of a claimed, running sink.
type starter func(t testing.TB, cfg Config) *running

// everySink runs the same test against both deliveries.
func everySink(t *testing.T, test func(t *testing.T, start starter)) {
	t.Run("at-least-once", func(t *testing.T) { test(t, start) })
	t.Run("exactly-once", func(t *testing.T) { test(t, startExactly) })
}

func start(t testing.TB, cfg Config) *running {
	t.Helper()
	c := claim(t, open(t, cfg))
	i := c.NewIdempotent(baseRecord(cfg.Pipeline))
	t.Cleanup(i.Close)
	return drive(t, i)
}

func startExactly(t testing.TB, cfg Config) *running {
	t.Helper()
	r, _ := startWith(t, cfg, TransactionalOptions{})
	return r
}

func startWith(t testing.TB, cfg Config, o TransactionalOptions) (*running, *Transactional) {
	t.Helper()
	c := claim(t, open(t, cfg))
	s := c.NewTransactional(baseRecord(cfg.Pipeline), o)
	t.Cleanup(s.Close)
	r := drive(t, s)
	r.ledger = checkpoint.NewLedger(checkpoint.Edge{Covered: 1000}, 1000, cfg.MaxInFlight)
	return r, s
}

var names atomic.Int64

// unique names keep tests apart on a shared broker.
func unique(prefix string) string {
	return fmt.Sprintf("%s-%d-%d", prefix, time.Now().UnixMilli()%1e8, names.Add(1))
}

func testConfig(t testing.TB, brokers []string) Config {
	return Config{
		Brokers: brokers, ClientID: "walstream-test", Pipeline: unique("p"), Version: "1.2.3",
		MaxInFlight: checkpoint.Limits{Events: 20_000, Bytes: 32 << 20},
		Logger:      zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.InfoLevel),
	}
}

func open(t testing.TB, cfg Config) *Kafka {
	t.Helper()
	k, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func claim(t testing.TB, k *Kafka) *Claim {
	t.Helper()
	c, err := claimIn(within(t, 20*time.Second), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// claimIn takes all lanes, or nothing.
func claimIn(ctx context.Context, k *Kafka) (*Claim, error) {
	c := k.NewClaim(nil)
	for lane := range lanes {
		if err := c.Take(ctx, lane); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func createTopic(t testing.TB, brokers []string, partitions int32, configs map[string]string) string {
	t.Helper()
	name := unique("topic")
	createNamed(t, brokers, name, partitions, configs)
	return name
}

func createNamed(t testing.TB, brokers []string, name string, partitions int32, configs map[string]string) {
	t.Helper()
	set := map[string]*string{}
	for key, value := range configs {
		set[key] = &value
	}
	if _, err := kadm.NewClient(client(t, brokers)).CreateTopic(within(t, 20*time.Second), partitions, -1, set, name); err != nil {
		t.Fatal(err)
	}
}

func event(topic, key, value string, n int) *outbox.Event {
	e := &outbox.Event{
		Topic: topic, Value: []byte(value), Partition: -1, Timestamp: time.Now(),
		Position: decode.Position{CommitLSN: pglogrepl.LSN(1000 + n), Ordinal: 1}, RowID: fmt.Sprint(n),
	}
	if key != "" {
		e.Key = []byte(key)
	}
	return e
}

func edgeAt(lsn int) checkpoint.Edge {
	return checkpoint.Edge{
		Covered: pglogrepl.LSN(lsn), CommitLSN: pglogrepl.LSN(lsn - 8), XID: uint32(lsn),
		CommitTime: time.Unix(1_700_000_000, 0).UTC(),
	}
}

func baseRecord(pipeline string) checkpoint.Record {
	return checkpoint.Record{
		Pipeline: pipeline, SystemID: "7", Timeline: 1, Database: "bank", Slot: "s",
		Publication: "p", Delivery: "at-least-once", Phase: checkpoint.PhaseStream,
	}
}

// running is a sink with a ledger, driven the way the loop does it.
type running struct {
	t      testing.TB
	sink   loopSink
	ledger *checkpoint.Ledger
	lsn    int
	acked  int
	err    error

	noCheckpoints bool
}

// loopSink is pipeline.Sink, declared here so that the test needs no pipeline.
type loopSink interface {
	Begin(edge checkpoint.Edge)
	Submit(e *outbox.Event, t checkpoint.Ticket)
	End(edge checkpoint.Edge)
	Checkpoint(edge checkpoint.Edge)
	Drain(report *checkpoint.Report)
	Ready() <-chan struct{}
}

var (
	_ loopSink = (*Idempotent)(nil)
	_ loopSink = (*Transactional)(nil)
	_ loopSink = (*Stdout)(nil)
)

func drive(t testing.TB, sink loopSink) *running {
	return &running{
		t: t, sink: sink, lsn: 1000,
		ledger: checkpoint.NewLedger(checkpoint.Edge{Covered: 1000}, 1000, checkpoint.Limits{Events: 20_000, Bytes: 32 << 20}),
	}
}

// transaction submits the events as one.
func (r *running) transaction(events ...*outbox.Event) {
	r.begin()
	for _, e := range events {
		r.row(e)
	}
	r.end()
}

// begin, row and end are a transaction in pieces.
func (r *running) begin() {
	r.lsn += 16
	edge := edgeAt(r.lsn)
	edge.Covered = r.ledger.Newest()
	r.ledger.Begin(edge.CommitTime)
	r.sink.Begin(edge)
}

func (r *running) close() { r.sink.(interface{ Close() }).Close() }

func (r *running) row(e *outbox.Event) { r.sink.Submit(e, r.ledger.Track(e.Size())) }

func (r *running) end() {
	edge := edgeAt(r.lsn)
	r.ledger.End(edge)
	r.sink.End(edge)
}

// drain takes what is there, and asks for a checkpoint when the edge moved.
func (r *running) drain() {
	var report checkpoint.Report
	before := r.ledger.Published()
	r.sink.Drain(&report)
	for _, ticket := range report.Acked {
		r.ledger.Ack(ticket)
		r.acked++
	}
	if after := r.ledger.Published(); after.Covered > before.Covered && !r.noCheckpoints {
		r.sink.Checkpoint(after)
	}
	if report.Durable.Covered != 0 {
		r.ledger.Durable(report.Durable)
	}
	if r.err == nil {
		r.err = report.Err
	}
}

// until drains until cond holds.
func (r *running) until(what string, cond func() bool) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	look := time.NewTicker(20 * time.Millisecond) // at what no report tells of
	defer look.Stop()
	for {
		r.drain()
		if cond() {
			return
		}
		select {
		case <-r.sink.Ready():
		case <-look.C:
		case <-deadline:
			r.t.Fatalf("waited too long until %s: acknowledged %d, error %v", what, r.acked, r.err)
		}
	}
}

func (r *running) untilConfirmed() {
	r.t.Helper()
	r.until("everything is confirmed", func() bool {
		if r.err != nil {
			r.t.Fatalf("sink failed: %v", r.err)
		}
		return !r.ledger.Pending()
	})
}

func (r *running) untilError() error {
	r.t.Helper()
	r.until("an error is reported", func() bool { return r.err != nil })
	return r.err
}

// isOpen reports that a transaction on the topic is not ended, or that its markers
// are not written yet: a broker answers a commit before that.
func isOpen(t testing.TB, brokers []string, topic string) bool {
	t.Helper()
	adm := kadm.NewClient(client(t, brokers))
	ends, err := adm.ListEndOffsets(within(t, 20*time.Second), topic)
	stable, err2 := adm.ListCommittedOffsets(within(t, 20*time.Second), topic)
	if err = errors.Join(err, err2, ends.Error(), stable.Error()); err != nil {
		t.Fatal(err)
	}
	open := false
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := stable.Lookup(topic, end.Partition)
		open = open || at.Offset != end.Offset
	})
	return open
}

// seen reads what a read_committed consumer sees once every transaction is ended.
func seen(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	waitFor(t, func() bool { return !isOpen(t, brokers, topic) })
	return committed(t, brokers, topic)
}

// committed reads what a read_committed consumer sees of the topic now.
func committed(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	ends, err := kadm.NewClient(client(t, brokers)).ListCommittedOffsets(within(t, 30*time.Second), topic)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 30*time.Second)
	want := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			want[o.Partition] = o.Offset
		}
	})
	reader := client(t, brokers, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var records []*kgo.Record
	for len(want) > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if r.Offset+1 >= want[r.Partition] {
				delete(want, r.Partition)
			}
		})
	}
	return records
}

func mustContain(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

// newLedgerAt starts where a checkpoint ends.
func newLedgerAt(edge checkpoint.Edge, cfg Config) *checkpoint.Ledger {
	return checkpoint.NewLedger(edge, edge.Covered, cfg.MaxInFlight)
}

// pass lets kfake handle a request that a test has looked at.
func pass() (kmsg.Response, error, bool) { return nil, nil, false } //nolint:nilnil // kfake's way to say so
