package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
)

const (
	topic       = "bench.events"
	partitions  = 3
	publication = "bench_pub"
	payloadSize = 1024
)

var (
	// The database is to be as fast as it can: it is not what is measured.
	postgresOptions = testenv.PGOptions{Params: map[string]string{
		"max_wal_size": "32GB", "checkpoint_timeout": "1h", "autovacuum": "off", "synchronous_commit": "off", "shared_buffers": "256MB",
	}}
	// The compiler in full, as brokers run in life.
	kafkaOptions = testenv.KafkaOptions{Real: true, JVM: []string{"-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"}}
)

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
	end   string // LSN behind the last row
}

func newWorld(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*world, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers...), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	w := &world{options: o, pg: pg, kafka: kafka, admin: kadm.NewClient(client)}
	if w.db, err = pgx.Connect(ctx, pg.DSN("")); err == nil {
		_, err = w.db.Exec(ctx, schema)
	}
	if err == nil {
		err = w.createTopic(ctx, topic)
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

func (w *world) createTopic(ctx context.Context, name string) error {
	made, err := w.admin.CreateTopic(ctx, partitions, 1, nil, name)
	return errors.Join(err, made.Err)
}

// warmUp lets the broker's virtual machine compile what a produce request runs
// through: a broker in life has been up for more than ten seconds.
func (w *world) warmUp(ctx context.Context) error {
	const name, records = "bench.warm-up", 200_000
	if err := w.createTopic(ctx, name); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...), kgo.DefaultProduceTopic(name),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	payload := make([]byte, payloadSize)
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

// ends are the high watermarks of the topic.
func (w *world) ends(ctx context.Context) (ends map[verdict.Place]int64, total int64, err error) {
	ends, err = verdict.CommittedEnds(ctx, w.admin, topic)
	for _, end := range ends {
		total += end
	}
	return ends, total, err
}

// load writes the rows, and notes where they end.
func (w *world) load(ctx context.Context) error {
	from := time.Now()
	if err := loadRows(ctx, w.pg.DSN(""), w.rows, w.perTx); err != nil {
		return fmt.Errorf("write the rows: %w", err)
	}
	// A record behind the end, so that whoever waits for it gets to hear of it.
	err := w.db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&w.end)
	if err == nil {
		_, err = w.db.Exec(ctx, `SELECT pg_logical_emit_message(true, 'bench', 'end'); CHECKPOINT`)
	}
	w.say("wrote %d rows of %d bytes in transactions of %d: %s", w.rows, payloadSize, w.perTx, time.Since(from).Round(time.Millisecond))
	return err
}

// confirmed says whether a slot has been confirmed to the end of the rows.
func (w *world) confirmed(ctx context.Context, slot string) (done bool, err error) {
	err = w.db.QueryRow(ctx, `SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, slot, w.end).Scan(&done)
	return done, err
}
