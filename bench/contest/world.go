package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
)

const (
	oneTopic    = "bench.events"
	publication = "bench_pub"
)

var (
	// The database is to be as fast as it can when rows are written: that is not
	// what is measured. Who measures a commit turns synchronous_commit on.
	postgresOptions = testenv.PGOptions{Durable: true, Params: map[string]string{
		"max_wal_size": "32GB", "checkpoint_timeout": "1h", "autovacuum": "off", "synchronous_commit": "off", "shared_buffers": "256MB",
		"max_replication_slots": "300",
	}}
	// The compiler in full, as brokers run in life; what is deleted leaves the disk
	// soon.
	kafkaOptions = testenv.KafkaOptions{
		Real: true, JVM: []string{"-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"},
		Props: map[string]string{"log.segment.delete.delay.ms": "1000"},
	}
)

// work is what is to be drained.
type work struct {
	Rows       int `json:"rows"`
	Bytes      int `json:"bytes"`
	PerTx      int `json:"rows_per_transaction"`
	Topics     int `json:"topics"`
	Partitions int `json:"partitions"` // of each topic
}

// usual is a usual outbox: 1 KB of JSON, one topic of three partitions.
func usual(rows, perTx int) work {
	return work{Rows: rows, Bytes: 1024, PerTx: perTx, Topics: 1, Partitions: 3}
}

func (j work) String() string {
	text := fmt.Sprintf("%s rows of %s B, %s per transaction", humanize.Comma(int64(j.Rows)), humanize.Comma(int64(j.Bytes)), humanize.Comma(int64(j.PerTx)))
	switch {
	case j.Topics > 1:
		text += fmt.Sprintf(", topics: %d, partitions of each: %d", j.Topics, j.Partitions)
	case j.Partitions != 3:
		text += fmt.Sprintf(", partitions: %d", j.Partitions)
	}
	return text
}

const schema = `
CREATE TABLE outbox (
	id bigserial PRIMARY KEY,
	aggregate_type text NOT NULL,
	aggregate_id uuid NOT NULL,
	event_type text NOT NULL,
	topic text NOT NULL,
	key bytea,
	payload bytea NOT NULL,
	headers jsonb,
	created_at timestamptz NOT NULL DEFAULT now()
)`

// world is what the contenders run in.
type world struct {
	options
	pg    *testenv.Postgres
	kafka *testenv.Kafka
	db    *pgx.Conn
	admin *kadm.Client

	work   work
	number int // of the work: what outlives it is named by it
	topics []string
	end    string // LSN behind the last row
}

func newWorld(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*world, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	w := &world{options: o, pg: pg, kafka: kafka, admin: kadm.NewClient(client)}
	if w.db, err = pgx.Connect(ctx, pg.DSN("")); err == nil {
		_, err = w.db.Exec(ctx, schema)
	}
	if err == nil {
		err = w.warmUp(ctx)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) close() {
	w.admin.Close()
	if w.db != nil {
		_ = w.db.Close(context.Background())
	}
}

// begin makes the world that of the next work: an empty table, no slot, and its
// topics.
func (w *world) begin(ctx context.Context, job work) error {
	w.number++
	_, err := w.db.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active`)
	if err == nil {
		_, err = w.db.Exec(ctx, `TRUNCATE outbox`)
	}
	if err == nil && len(w.topics) > 0 {
		_, err = w.admin.DeleteTopics(ctx, w.topics...)
	}
	if err != nil {
		return err
	}
	w.work, w.topics = job, []string{oneTopic}
	if job.Topics > 1 {
		w.topics = nil
		for n := range job.Topics {
			w.topics = append(w.topics, fmt.Sprintf("%s.%d", oneTopic, n))
		}
	}
	return w.fresh(ctx)
}

// fresh deletes the topics and makes them anew, so that a drain begins at 0 and
// leaves the disk to the next one.
func (w *world) fresh(ctx context.Context) error {
	if _, err := w.admin.DeleteTopics(ctx, w.topics...); err != nil {
		return fmt.Errorf("delete the topics: %w", err)
	}
	made, err := w.admin.CreateTopics(ctx, int32(w.work.Partitions), 1, nil, w.topics...)
	if err = errors.Join(err, made.Error()); err != nil {
		return fmt.Errorf("create the topics: %w", err)
	}
	for { // until the broker has heard of it
		total, err := w.ends(ctx)
		if err == nil && total == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the topics stay behind (%d records there): %w", total, errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// drainLimit ends a drain that does not come to its end.
func (w *world) drainLimit() time.Duration {
	return 3*time.Minute + time.Duration(w.work.Rows)*500*time.Microsecond
}

// warmUp lets the broker's virtual machine compile what a produce request runs
// through: a broker in life has been up for more than ten seconds.
func (w *world) warmUp(ctx context.Context) error {
	const name, records = "bench.warm-up", 200_000
	made, err := w.admin.CreateTopic(ctx, 3, 1, nil, name)
	if err = errors.Join(err, made.Err); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...), kgo.DefaultProduceTopic(name),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	payload := make([]byte, 1024)
	var failed error
	for range records {
		client.Produce(ctx, &kgo.Record{Value: payload}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // promises come one at a time
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	_, err = w.admin.DeleteTopic(ctx, name)
	return errors.Join(failed, err)
}

// ends are the high watermarks of the topics, added up.
func (w *world) ends(ctx context.Context) (total int64, err error) {
	ends, err := verdict.CommittedEnds(ctx, w.admin, w.topics...)
	for _, end := range ends {
		total += end
	}
	return total, err
}

// stored is what the topics take on the broker's disk, in bytes.
func (w *world) stored(ctx context.Context) (total int64, err error) {
	set := kadm.TopicsSet{}
	for _, topic := range w.topics {
		for partition := range w.work.Partitions {
			set.Add(topic, int32(partition))
		}
	}
	found, err := w.admin.DescribeAllLogDirs(ctx, set)
	found.Each(func(dir kadm.DescribedLogDir) { total += dir.Size() })
	return total, err
}

// brokerCPU is what the broker has used; 0 where that cannot be known.
func (w *world) brokerCPU() time.Duration {
	pid := w.kafka.Pid(0)
	if pid == 0 {
		return 0
	}
	used, _ := cpuTime(pid) // 0 where there is no /proc
	return used
}

// load writes the rows, and notes where they end.
func (w *world) load(ctx context.Context) error {
	from := time.Now()
	if err := loadRows(ctx, w.pg.DSN(""), w.work, w.topics); err != nil {
		return fmt.Errorf("write the rows: %w", err)
	}
	// A record behind the end, so that whoever waits for it gets to hear of it.
	err := w.db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&w.end)
	if err == nil {
		_, err = w.db.Exec(ctx, `SELECT pg_logical_emit_message(true, 'bench', 'end'); CHECKPOINT`)
	}
	w.say("wrote %s: %s", w.work, time.Since(from).Round(time.Millisecond))
	return err
}

// confirmed says whether a slot has been confirmed to the end of the rows.
func (w *world) confirmed(ctx context.Context, slot string) (done bool, err error) {
	err = w.db.QueryRow(ctx, `SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, slot, w.end).Scan(&done)
	return done, err
}
