package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
)

const (
	pipeline        = "crash"
	slot            = "crash_outbox_slot"
	topic           = "crash.events"
	checkpointTopic = "walstream.checkpoints." + pipeline
	// waitLimit ends a campaign in which nothing moves any more. It is longer
	// than every time-out that walstream may have to sit out.
	waitLimit = 2 * time.Minute

	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
	// bandwidth of each of walstream's connections to the broker, in kilobytes a
	// second: enough for 6,000 rows/s. So rows are on their way for milliseconds,
	// while a checkpoint, which has a connection of its own, could overtake them.
	bandwidth = 4096
)

var (
	// A killed server would keep its data either way; fsync makes commits take
	// the time they take in life.
	postgresOptions = testenv.PGOptions{Durable: true}
	kafkaOptions    = testenv.KafkaOptions{Real: true}
)

type options struct {
	kills, brokerRestarts int
	rate, partitions      int
	seed                  uint64
	delivery              string
	binary, log           string
	say                   func(format string, args ...any)
}

// Report is the JSON line.
type Report struct {
	Delivery         string `json:"delivery"`
	Kills            int    `json:"kills"`
	KillsInFlight    int    `json:"kills_in_flight"`
	BrokerRestarts   int    `json:"broker_restarts"`
	Committed        int    `json:"committed"`
	Published        int    `json:"published"`
	Missing          int    `json:"missing"`
	Duplicates       int    `json:"duplicates"`
	BeforeCheckpoint int    `json:"duplicates_before_checkpoint"`
	Reordered        int    `json:"reordered"`
}

// campaign is one run.
type campaign struct {
	options
	pg     *testenv.Postgres
	kafka  *testenv.Kafka
	proxy  *testenv.Proxy // in front of the broker, for walstream
	db     *pgx.Conn
	client *kgo.Client
	admin  *kadm.Client
	rng    *rand.Rand
	logged *os.File

	service     *service.Service
	startedAt   time.Time
	writers     *writers
	checkpoints *checkpointTail

	restarts []verdict.Restart // kills and broker restarts, in the order of time
	kills    []kill
	brokers  int
}

// kill is what was known at one.
type kill struct {
	restart   int           // its index
	committed int           // rows whose COMMIT had been answered
	ran       time.Duration // since the start of the instance
	tooLate   bool          // it had ended by itself
}

// run makes the campaign and judges it. The report is nil when it did not come
// to its end.
func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*Report, error) {
	c := &campaign{options: o, pg: pg, kafka: kafka, rng: rand.New(rand.NewPCG(o.seed, 0))}
	defer c.close()
	o.say("PostgreSQL %d (%s), Kafka (%s), %s, seed %d, walstream's log in %s", pg.Major, pg.From, kafka.From, o.delivery, o.seed, o.log)
	if err := c.prepare(ctx); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	err := c.faults(ctx)
	if err == nil {
		err = c.settle(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.service.Log())
	}
	return c.judge(ctx)
}

func (c *campaign) prepare(ctx context.Context) (err error) {
	if c.logged, err = os.Create(c.log); err != nil {
		return err
	}
	if c.proxy, err = c.kafka.StartProxy(); err != nil {
		return err
	}
	c.proxy.Bandwidth(bandwidth)
	if c.db, err = pgx.Connect(ctx, c.pg.DSN("")); err != nil {
		return err
	}
	if _, err = c.db.Exec(ctx, tool.OutboxTable); err != nil {
		return err
	}
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.kafka.Brokers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond)); err != nil {
		return err
	}
	c.admin = kadm.NewClient(c.client)
	made, err := c.admin.CreateTopic(ctx, int32(c.partitions), 1, nil, topic)
	if err = errors.Join(err, made.Err); err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	if err := c.streaming(ctx); err != nil {
		return err
	}
	if c.checkpoints, err = tailCheckpoints(c.kafka.Brokers); err != nil {
		return err
	}
	c.writers, err = startWriters(ctx, c.pg.DSN(""), c.rate, c.seed)
	return err
}

func (c *campaign) close() {
	if c.writers != nil {
		_ = c.writers.stop() // a failure of theirs has ended the campaign
	}
	if c.checkpoints != nil {
		c.checkpoints.close()
	}
	if c.service != nil {
		c.service.Kill()
	}
	if c.proxy != nil {
		c.proxy.Close()
	}
	if c.client != nil {
		c.client.Close()
	}
	if c.db != nil {
		_ = c.db.Close(context.Background())
	}
	if c.logged != nil {
		_ = c.logged.Close()
	}
}

func (c *campaign) start() (err error) {
	c.startedAt = time.Now()
	c.service, err = service.Start(service.Options{
		Binary: c.binary, Log: c.logged,
		Args: []string{"--slot", slot, "--pipeline", pipeline, "--kafka-brokers", c.proxy.Addr, "--delivery", c.delivery, "--log-format", "json"},
		Env:  []string{"WALSTREAM_POSTGRES=" + c.pg.DSN("")},
	})
	return err
}

func (c *campaign) streaming(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	return c.service.WaitStreaming(ctx)
}

// settle ends the load, waits until everything is confirmed, and lets walstream
// leave in order.
func (c *campaign) settle(ctx context.Context) error {
	if err := c.writers.stop(); err != nil {
		return fmt.Errorf("a writer failed: %w", err)
	}
	if err := c.streaming(ctx); err != nil {
		return err
	}
	c.say("the writers have ended with %d rows committed; waiting until all are confirmed", c.writers.committed.Load())
	if err := c.confirmed(ctx); err != nil {
		return err
	}
	return c.service.Stop(30 * time.Second)
}

// confirmed waits until everything committed so far is confirmed.
func (c *campaign) confirmed(ctx context.Context) error {
	var end string
	if err := c.db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&end); err != nil {
		return err
	}
	return c.until(ctx, "the slot to confirm "+end, func(ctx context.Context) (done bool, err error) {
		err = c.db.QueryRow(ctx, `SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, slot, end).Scan(&done)
		return done, err
	})
}

// until asks again and again until it is done.
func (c *campaign) until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		ok, err := done(ctx)
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s in vain for %s: %w", waitLimit, what, ctx.Err())
		case <-c.service.Done():
			return fmt.Errorf("walstream ended (exit code %d) while waiting for %s", c.service.ExitCode(), what)
		case err := <-c.writers.failed:
			return fmt.Errorf("a writer failed: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
