package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

var builtBinary string

func TestMain(m *testing.M) {
	code := testenv.Main(m).Run()
	if builtBinary != "" {
		_ = os.RemoveAll(filepath.Dir(builtBinary))
	}
	os.Exit(code)
}

// kinds of tables: ours; one that has an event id only and no order by number (the
// field cases'); one without any event id (preset bank); one in partitions.
var kinds = map[string]struct {
	schema, insert string
	mapping        outbox.MappingConfig
	args           []string
}{
	"ours": {
		schema: `CREATE TABLE outbox (
			id bigserial PRIMARY KEY, event_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,
			aggregate_id text NOT NULL, event_type text NOT NULL, topic text, key text, payload bytea NOT NULL,
			headers jsonb NOT NULL DEFAULT '{}', created_at timestamptz NOT NULL DEFAULT now())`,
		insert: `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload)
			SELECT 'account', 'acc-' || i % 7, 'deposited', $2, convert_to(gen_random_uuid()::text, 'UTF8') FROM generate_series(1, $1::int) i`,
		mapping: outbox.MappingConfig{Schema: "public", Table: "outbox"},
		args:    []string{"--table=public.outbox"},
	},
	"bank_outbox": {
		schema: `CREATE TABLE bank_outbox (
			seq bigserial, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text, event_type text NOT NULL,
			payload jsonb, headers jsonb, created_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
		insert: `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'account', 'acc-' || i % 7, 'deposited', jsonb_build_object('i', i, 'to', $2::text) FROM generate_series(1, $1::int) i`,
		mapping: outbox.MappingConfig{
			Schema: "public", Table: "bank_outbox", KeyColumn: "aggregate_id", ValueColumn: "payload", HeadersColumn: "headers", IDColumn: "id",
		},
		args: []string{"--table=public.bank_outbox", "--key-column=aggregate_id", "--value-column=payload", "--headers-column=headers", "--id-column=id"},
	},
	"no event id": {
		schema: `CREATE TABLE plain (id bigserial PRIMARY KEY, aggregate_id uuid, topic text, key bytea, payload bytea, created_at timestamptz DEFAULT now())`,
		insert: `INSERT INTO plain (aggregate_id, topic, key, payload)
			SELECT gen_random_uuid(), $2, convert_to('acc-' || i % 7, 'UTF8'), convert_to(gen_random_uuid()::text, 'UTF8') FROM generate_series(1, $1::int) i`,
		mapping: outbox.MappingConfig{Schema: "public", Table: "plain", Preset: "bank"},
		args:    []string{"--table=public.plain", "--preset=bank"},
	},
	"partitioned": {
		schema: `CREATE TABLE parts (id bigserial, aggregate_id text, topic text, payload text, event_id uuid DEFAULT gen_random_uuid(), at timestamp DEFAULT now())
			PARTITION BY RANGE (id);
			CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (20);
			CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (20) TO (maxvalue)`,
		insert:  `INSERT INTO parts (aggregate_id, topic, payload) SELECT 'acc-' || i % 7, $2, 'payload ' || i FROM generate_series(1, $1::int) i`,
		mapping: outbox.MappingConfig{Schema: "public", Table: "parts", TimestampColumn: "at"},
		args:    []string{"--table=public.parts", "--timestamp-column=at"},
	},
}

// rig is a database with a table, a topic, and the real walstream between them.
type rig struct {
	t        *testing.T
	ctx      context.Context
	kind     string
	dsn      string
	db       *pgx.Conn
	brokers  []string
	client   *kgo.Client
	topic    string
	pipeline string
	slot     string
}

func newRig(t *testing.T, kind string) *rig { t.Helper(); return newRigOn(t, kind, 0) }

// newRigOn a major of PostgreSQL; 0: the newest that can be had.
func newRigOn(t *testing.T, kind string, major int) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	kafka := testenv.SharedKafka(t)
	name := fmt.Sprintf("audit_%d", time.Now().UnixNano()%1e12)
	r := &rig{
		t: t, ctx: ctx, kind: kind, dsn: testenv.SharedPostgres(t, major).CreateDatabase(t), brokers: kafka.Brokers,
		topic: name, pipeline: name, slot: name + "_slot",
	}
	var err error
	r.db, err = pgx.Connect(ctx, r.dsn)
	r.check(err)
	t.Cleanup(func() { _ = r.db.Close(context.Background()) })
	r.client, err = kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r.check(err)
	t.Cleanup(r.client.Close)
	r.createTopic(r.topic)
	r.exec(kinds[kind].schema)
	return r
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.db.Exec(r.ctx, sql, args...)
	r.check(err)
}

func (r *rig) createTopic(name string) {
	r.t.Helper()
	_, err := kadm.NewClient(r.client).CreateTopic(r.ctx, 3, -1, nil, name)
	r.check(err)
}

// put commits n rows in one transaction.
func (r *rig) put(n int) { r.t.Helper(); r.exec(kinds[r.kind].insert, n, r.topic) }

func (r *rig) count() int64 {
	r.t.Helper()
	var n int64
	m := kinds[r.kind].mapping
	r.check(r.db.QueryRow(r.ctx, "SELECT count(*) FROM "+m.Table).Scan(&n))
	return n
}

func (r *rig) binary() string {
	r.t.Helper()
	if builtBinary == "" {
		dir, err := os.MkdirTemp("", "walstream-audit-test-")
		r.check(err)
		builtBinary, err = service.Build(r.ctx, dir)
		r.check(err)
	}
	return builtBinary
}

// stream runs walstream and waits until it streams.
func (r *rig) stream(args ...string) *service.Service {
	r.t.Helper()
	s, err := service.Start(service.Options{Binary: r.binary(), Args: append(r.args(), args...)})
	r.check(err)
	r.t.Cleanup(func() {
		s.Kill()
		if r.t.Failed() {
			r.t.Logf("walstream said:\n%s", s.Log())
		}
	})
	r.check(s.WaitStreaming(r.ctx))
	return s
}

func (r *rig) args() []string {
	args := append([]string{
		"--slot=" + r.slot, "--pipeline=" + r.pipeline, "--postgres=" + r.dsn, "--kafka-brokers=" + strings.Join(r.brokers, ","),
		"--status-interval=500ms", // an idle checkpoint moves as often
	}, kinds[r.kind].args...)
	if r.kind == "bank_outbox" {
		args = append(args, "--topic="+r.topic)
	}
	return args
}

// published waits until the slot has confirmed everything committed so far.
func (r *rig) published() {
	r.t.Helper()
	var end string
	r.check(r.db.QueryRow(r.ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end))
	for done := false; !done; time.Sleep(20 * time.Millisecond) {
		r.check(r.db.QueryRow(r.ctx, "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2", end, r.slot).Scan(&done))
	}
}

// config of an audit of the rig.
func (r *rig) config() Config {
	m := kinds[r.kind].mapping
	m.Pipeline = r.pipeline
	if r.kind == "bank_outbox" {
		m.Topic = r.topic
	}
	return Config{
		Pipeline: r.pipeline, Slot: r.slot, Publication: strings.TrimSuffix(r.slot, "_slot") + "_pub",
		Postgres: replication.Options{Postgres: r.dsn, ApplicationName: "audit"},
		Kafka: sink.Config{
			Brokers: r.brokers, Pipeline: r.pipeline, MaxInFlight: checkpoint.Limits{Events: 1, Bytes: 1},
			Logger: zerolog.New(zerolog.NewTestWriter(r.t)).Level(zerolog.WarnLevel),
		},
		Mapping: []outbox.MappingConfig{m}, Wait: 30 * time.Second, Memory: 64 << 20, TempDir: r.t.TempDir(),
	}
}

func (r *rig) audit(change func(*Config)) *Result {
	r.t.Helper()
	cfg := r.config()
	if change != nil {
		change(&cfg)
	}
	result, err := Run(r.ctx, cfg)
	r.check(err)
	return result
}

// records of the topic, by partition.
func (r *rig) records() [][]*kgo.Record {
	r.t.Helper()
	ends, err := kadm.NewClient(r.client).ListEndOffsets(r.ctx, r.topic)
	r.check(err)
	reader, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumeTopics(r.topic), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	r.check(err)
	defer reader.Close()
	all, left := make([][]*kgo.Record, 3), map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetches := reader.PollFetches(r.ctx)
		r.check(fetches.Err())
		fetches.EachRecord(func(rec *kgo.Record) {
			if !rec.Attrs.IsControl() {
				all[rec.Partition] = append(all[rec.Partition], rec)
			}
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
		})
	}
	return all
}

// write puts records into a topic, under one producer id.
func (r *rig) write(topic string, records ...*kgo.Record) {
	r.t.Helper()
	for _, rec := range records {
		again := &kgo.Record{Topic: topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Timestamp: rec.Timestamp}
		r.check(r.client.ProduceSync(r.ctx, again).FirstErr())
	}
}
