package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

func TestMain(m *testing.M) {
	code := testenv.Main(m).Run()
	for _, broker := range proxied.all {
		broker.kafka.Close()
	}
	if trio != nil {
		trio.Close()
	}
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// full reports that cases run at their full length.
func full() bool { return os.Getenv("WALSTREAM_CASES") == "full" }

// scaled is a duration of a case, a tenth of it unless full.
func scaled(d time.Duration) time.Duration {
	if full() {
		return d
	}
	return d / 10
}

const rigSchema = `
CREATE TABLE bank_outbox (
  seq bigserial, id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  aggregate_type text NOT NULL, aggregate_id text, event_type text NOT NULL,
  payload jsonb, headers jsonb, created_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE noise (id bigserial PRIMARY KEY, filler text)`

// rig is one case: a database, a topic, and walstream between them.
type rig struct {
	t        *testing.T
	ctx      context.Context
	dsn      string
	slot     string
	pipeline string
	topic    string
	delivery string
	brokers  []string
	// brokersSeen are the addresses walstream gets; brokers unless set.
	brokersSeen []string
	db          *pgx.Conn
	admin       *kadm.Client
	binary      string
}

// newRig makes database and topic names for a case on the given servers.
func newRig(t *testing.T, pg *testenv.Postgres, brokers []string) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	if full() {
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), 30*time.Minute)
	}
	t.Cleanup(cancel)
	name := strings.ToLower(strings.NewReplacer("/", "_", "=", "_", "-", "_", " ", "_").Replace(t.Name()))
	name = name[max(0, len(name)-35):]
	name = strings.TrimLeft(name, "_") + fmt.Sprintf("_%d", time.Now().UnixNano()%1e9)
	r := &rig{
		t: t, ctx: ctx, dsn: pg.CreateDatabase(t), slot: name + "_slot", pipeline: name,
		topic: name, delivery: deliveryOf(t), brokers: brokers, binary: binary(t),
	}
	r.db = r.connect()
	r.exec(rigSchema)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics())
	r.check(err)
	t.Cleanup(client.Close)
	r.admin = kadm.NewClient(client)
	return r
}

const (
	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
)

// inBoth runs a case in both deliveries; a rig takes its own from the test's name.
func inBoth(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	t.Run(atLeastOnce, run)
	t.Run(exactlyOnce, run)
}

// inBothAtOnce is for cases that share nothing but servers: side by side with each
// other and with all others of that kind.
func inBothAtOnce(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		t.Parallel()
		run(t)
	})
}

func deliveryOf(t *testing.T) string {
	if strings.Contains(t.Name(), exactlyOnce) {
		return exactlyOnce
	}
	return atLeastOnce
}

// sharedRig is a rig on the shared servers.
func sharedRig(t *testing.T) *rig {
	t.Helper()
	return newRig(t, testenv.SharedPostgres(t, 0), testenv.SharedKafka(t).Brokers)
}

var (
	building             sync.Mutex
	builtBinary, builtIn string
)

func binary(t *testing.T) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if builtBinary == "" {
		var err error
		if builtIn, err = os.MkdirTemp("", "walstream-cases-"); err != nil {
			t.Fatal(err)
		}
		if builtBinary, err = service.Build(context.Background(), builtIn); err != nil {
			t.Fatal(err)
		}
	}
	return builtBinary
}

func (r *rig) check(err error) {
	r.t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		r.t.Skip("not on this system: ", err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// connect opens a session of the application.
func (r *rig) connect() *pgx.Conn { r.t.Helper(); return r.connectTo(r.dsn) }

func (r *rig) connectTo(dsn string) *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(r.ctx, dsn)
	r.check(err)
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.db.Exec(r.ctx, sql, args...)
	r.check(err)
}

const putSQL = `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'account', 'acc-' || i % 7, 'deposited', jsonb_build_object('i', i) FROM generate_series(1, $1::int) i`

// put commits n outbox rows in one transaction.
func (r *rig) put(n int) { r.t.Helper(); r.putOn(r.db, n) }

func (r *rig) putOn(conn *pgx.Conn, n int) {
	r.t.Helper()
	_, err := conn.Exec(r.ctx, putSQL, n)
	r.check(err)
}

// wal writes n rows of 1 kB to another table, then switches the WAL segment.
func (r *rig) wal(n int) {
	r.t.Helper()
	r.exec(`INSERT INTO noise (filler) SELECT repeat('x', 1000) FROM generate_series(1, $1::int)`, n)
	r.exec(`SELECT pg_switch_wal()`)
}

// args of walstream for the rig's table; extra pairs of flag and value replace
// the rig's own.
func (r *rig) args(extra ...string) []string {
	brokers := r.brokers
	if r.brokersSeen != nil {
		brokers = r.brokersSeen
	}
	args := []string{
		"--slot", r.slot, "--pipeline", r.pipeline, "--postgres", r.dsn, "--kafka-brokers", strings.Join(brokers, ","),
		"--table", "public.bank_outbox", "--topic", r.topic, "--key-column", "aggregate_id", "--value-column", "payload",
		"--headers-column", "headers", "--id-column", "id", "--create-topics", "true", "--topic-partitions", "3",
		"--delivery", r.delivery,
	}
	given := make([]string, 0, len(args)+len(extra))
	for i := 0; i < len(args); i += 2 {
		if !slices.Contains(extra, args[i]) {
			given = append(given, args[i]+"="+args[i+1])
		}
	}
	for i := 0; i < len(extra); i += 2 {
		if extra[i+1] != unset {
			given = append(given, extra[i]+"="+extra[i+1])
		}
	}
	return given
}

// unset as a value takes one of the rig's flags away.
const unset = "\x00"

// start runs walstream; it is killed at the end of the test.
func (r *rig) start(args ...string) *service.Service {
	r.t.Helper()
	s, err := service.Start(service.Options{Binary: r.binary, Args: r.args(args...)})
	r.check(err)
	r.t.Cleanup(func() {
		s.Kill()
		if r.t.Failed() {
			r.t.Logf("walstream %d said:\n%s", s.PID(), s.Log())
		}
	})
	return s
}

// stream starts walstream and waits until it streams.
func (r *rig) stream(args ...string) *service.Service {
	r.t.Helper()
	s := r.start(args...)
	r.check(s.WaitStreaming(r.ctx))
	return s
}

// confirmed is the slot's confirmed_flush_lsn, and restart its restart_lsn.
func (r *rig) confirmed() (confirmed, restart pglogrepl.LSN) {
	r.t.Helper()
	var a, b string
	r.check(r.db.QueryRow(r.ctx, `SELECT confirmed_flush_lsn::text, restart_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&a, &b))
	confirmed, err := pglogrepl.ParseLSN(a)
	r.check(err)
	restart, err = pglogrepl.ParseLSN(b)
	r.check(err)
	return confirmed, restart
}

// walEnd is the server's insert position: beyond every commit made so far.
func (r *rig) walEnd() pglogrepl.LSN {
	r.t.Helper()
	var text string
	r.check(r.db.QueryRow(r.ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&text))
	lsn, err := pglogrepl.ParseLSN(text)
	r.check(err)
	return lsn
}

// warm starts walstream and publishes one row, so that topics and connections are
// there before a fault begins.
func (r *rig) warm(args ...string) *service.Service {
	r.t.Helper()
	s := r.stream(args...)
	r.put(1)
	r.untilConfirmed()
	return s
}

// during runs check every 100 ms for d.
func (r *rig) during(d time.Duration, check func()) {
	r.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end) && !r.t.Failed(); time.Sleep(100 * time.Millisecond) {
		check()
	}
}

// ends waits until the process has ended and returns its exit code.
func (r *rig) ends(s *service.Service, within time.Duration) int {
	r.t.Helper()
	select {
	case <-s.Done():
		return s.ExitCode()
	case <-time.After(within):
		r.t.Fatalf("walstream still runs after %s\n%s", within, s.Log())
		return -1
	}
}

// until waits for a condition.
func (r *rig) until(what string, fits func() bool) {
	r.t.Helper()
	for !fits() {
		select {
		case <-r.ctx.Done():
			r.t.Fatalf("waited in vain for: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// untilConfirmed waits until everything committed so far is confirmed.
func (r *rig) untilConfirmed() {
	r.t.Helper()
	end := r.walEnd()
	r.until("the slot to confirm "+end.String(), func() bool {
		confirmed, _ := r.confirmed()
		return confirmed >= end
	})
}

// published are the records of the topic, in order within each partition.
func (r *rig) published() []*kgo.Record {
	r.t.Helper()
	return readTopic(r.t, r.ctx, r.brokers, r.topic)
}

// markersWritten waits until every transaction on the topic is ended for readers
// too: a broker answers a commit before it has written its markers.
func (r *rig) markersWritten(topic string) {
	r.t.Helper()
	r.until("the markers of all transactions", func() bool {
		high, err := r.admin.ListEndOffsets(r.ctx, topic)
		stable, err2 := r.admin.ListCommittedOffsets(r.ctx, topic)
		if err != nil || err2 != nil {
			return false
		}
		written := true
		high.Each(func(o kadm.ListedOffset) {
			at, _ := stable.Lookup(topic, o.Partition)
			written = written && o.Err == nil && at.Offset >= o.Offset
		})
		return written
	})
}

func readTopic(t *testing.T, ctx context.Context, brokers []string, topic string) (records []*kgo.Record) {
	t.Helper()
	eachRecord(t, ctx, brokers, topic, func(rec *kgo.Record) { records = append(records, rec) })
	return records
}

func eachRecord(t *testing.T, ctx context.Context, brokers []string, topic string, do func(*kgo.Record)) {
	t.Helper()
	// What a careful consumer sees, up to the last stable offset. Client metrics
	// cost a second of Close.
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	partitions, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for _, o := range ends[topic] {
		if o.Err == nil && o.Offset > 0 {
			partitions[o.Partition] = kgo.NewOffset().AtStart()
			left[o.Partition] = o.Offset
		}
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: partitions})
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
			if !rec.Attrs.IsControl() {
				do(rec)
			}
		})
	}
}

// verify holds the topic against the table: every committed row is there (V1),
// nothing else is (V2), first appearances stand in commit order per key (V3).
// It returns how many records are duplicates, for the caller to judge (V4).
func (r *rig) verify() (duplicates int) {
	r.t.Helper()
	return r.verifyAgainst(`SELECT id::text FROM bank_outbox`)
}

// verifyAgainst takes the ids of the committed rows from a query, for tables that
// rows leave.
func (r *rig) verifyAgainst(query string) (duplicates int) {
	r.t.Helper()
	rows, err := r.db.Query(r.ctx, query)
	r.check(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	r.check(err)
	committed := make(map[string]bool, len(ids))
	for _, id := range ids {
		committed[id] = false
	}
	lastPosition := map[string]string{} // by key
	r.markersWritten(r.topic)
	for _, rec := range r.published() {
		id, position := header(rec, "walstream-event-id"), header(rec, "walstream-position")
		seen, known := committed[id]
		switch {
		case !known:
			r.t.Errorf("record %s of no committed row", id)
		case seen:
			duplicates++
		default:
			committed[id] = true
			if last := lastPosition[string(rec.Key)]; position <= last {
				r.t.Errorf("key %s: position %s first appears after %s", rec.Key, position, last)
			}
			lastPosition[string(rec.Key)] = position
		}
	}
	if duplicates > 0 && r.delivery == exactlyOnce {
		r.t.Errorf("%d duplicates for a read_committed consumer", duplicates)
	}
	for id, seen := range committed {
		if !seen {
			r.t.Errorf("row %s is not in Kafka", id)
		}
	}
	return duplicates
}

func header(rec *kgo.Record, key string) string {
	for _, h := range rec.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

func replaceOnce(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if strings.Count(text, old) != 1 {
		t.Fatalf("no one %s to be replaced", old)
	}
	return strings.Replace(text, old, replacement, 1)
}
