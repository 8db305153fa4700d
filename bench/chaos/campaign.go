package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

const (
	pipeline        = "chaos"
	slot            = "chaos_outbox_slot"
	checkpointTopic = "walstream.checkpoints." + pipeline
	partitions      = 3 // of each topic
	// waitLimit ends a campaign in which nothing moves any more. It is longer
	// than every time-out that walstream may have to sit out.
	waitLimit = 2 * time.Minute
	// walSenderTimeout frees the slot of an instance that is paused or cut off;
	// ours is 15 s.
	walSenderTimeout = 2 * time.Second
)

var (
	postgresOptions = testenv.PGOptions{Durable: true, Params: map[string]string{"max_prepared_transactions": "20"}}
	kafkaOptions    = testenv.KafkaOptions{Real: true}
)

type options struct {
	faults      int
	seed        uint64
	rate        int // rows a second of the small writers
	bigRows     int
	bigEvery    time.Duration
	longest     time.Duration // of a cut or a blackhole
	txnVersion  int           // of the broker's transactions; 0: its own
	delivery    string
	only        string // names of faults to choose from; empty: all
	binary, log string
	say         func(format string, args ...any)
}

// campaign is one run.
type campaign struct {
	options
	pg        *testenv.Postgres
	kafka     *testenv.Kafka
	toKafka   *link
	toPG      *link
	release   func()
	rng       *rand.Rand
	client    *kgo.Client
	admin     *kadm.Client
	logged    *os.File
	load      *load
	tail      *tail
	instances []*instance // that run
	started   int
	done      map[string]int // faults by name

	checks, hidden int // looks between a fault and the next start, and those with a transaction open
	torn           int
	halves         int // looks that met a split transaction half published
}

// instance is a walstream.
type instance struct {
	*service.Service
	n         int
	startedAt time.Time
	paused    bool
}

func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*Report, error) {
	c := &campaign{options: o, pg: pg, kafka: kafka, rng: rand.New(rand.NewPCG(o.seed, 0)), done: map[string]int{}}
	defer c.close()
	o.say("seed %d: PostgreSQL %d (%s), Kafka (%s), walstream's log in %s", o.seed, pg.Major, pg.From, kafka.From, o.log)
	if err := c.prepare(ctx); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	err := c.inflict(ctx)
	if err == nil {
		err = c.settle(ctx)
	}
	if err != nil {
		err = fmt.Errorf("seed %d: %w", o.seed, err)
		for _, i := range c.instances {
			err = fmt.Errorf("%w\ninstance %d ends its log with\n%.8000s", err, i.n, lastLines(i.Log(), 30))
		}
		return nil, err
	}
	return c.judge(ctx)
}

func (c *campaign) prepare(ctx context.Context) (err error) {
	if c.logged, err = os.Create(c.log); err != nil {
		return err
	}
	listen, upstream, err := c.kafka.Behind()
	if err != nil {
		return err
	}
	if c.toKafka, err = startLink(listen, upstream, kafkaWire); err != nil {
		return err
	}
	if listen, c.release, err = testenv.ClaimAddress(); err != nil {
		return err
	}
	if c.toPG, err = startLink(listen, c.pgURL().Host, postgresWire); err != nil {
		return err
	}
	timeout := fmt.Sprintf("ALTER ROLE %s SET wal_sender_timeout = '%dms'", pgx.Identifier{c.pg.User}.Sanitize(), walSenderTimeout.Milliseconds())
	if err := c.pg.Exec(ctx, "", schema, timeout); err != nil {
		return err
	}
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.kafka.Brokers...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond)); err != nil {
		return err
	}
	c.admin = kadm.NewClient(c.client)
	if err := c.setTransactionVersion(ctx); err != nil {
		return err
	}
	made, err := c.admin.CreateTopics(ctx, partitions, 1, nil, topics...)
	if err = errors.Join(err, made.Error()); err != nil {
		return err
	}
	if _, err := c.start(); err != nil {
		return err
	}
	if _, err := c.streaming(ctx); err != nil {
		return err
	}
	if c.tail, err = startTail(c.kafka.Brokers); err != nil {
		return err
	}
	c.load = startLoad(ctx, c.pg.DSN(""), c.options)
	return c.arrivals(ctx, 200)
}

// setTransactionVersion makes the broker speak the older protocol, in which
// clients ask to add partitions to a transaction. (From 2 on, KIP-890, writing to
// one does.)
func (c *campaign) setTransactionVersion(ctx context.Context) error {
	if c.txnVersion == 0 {
		return nil
	}
	_, err := c.admin.UpdateFeatures(ctx, false, kadm.FeatureUpdate{
		Feature: "transaction.version", MaxVersionLevel: int16(c.txnVersion), UpgradeType: 2, // a safe downgrade
	})
	return err
}

func (c *campaign) pgURL() *url.URL {
	u, err := url.Parse(c.pg.DSN(""))
	if err != nil {
		panic(err) // it is made by url.URL
	}
	return u
}

func (c *campaign) close() {
	if c.load != nil {
		_ = c.load.stop() // a failure of theirs has ended the campaign
	}
	for _, i := range slices.Clone(c.instances) {
		c.resume(i)
		c.kill(i)
	}
	if c.tail != nil {
		c.tail.close()
	}
	for _, l := range []*link{c.toKafka, c.toPG} {
		if l != nil {
			l.close()
		}
	}
	if c.release != nil {
		c.release()
	}
	if c.client != nil {
		c.client.Close()
	}
	if c.logged != nil {
		_ = c.logged.Close()
	}
}

// start an instance. One in three splits what takes longer than a moment.
func (c *campaign) start() (*instance, error) {
	u := c.pgURL()
	u.Host = c.toPG.Addr
	c.started++
	i := &instance{n: c.started, startedAt: time.Now()}
	args := []string{"--slot", slot, "--pipeline", pipeline, "--kafka-brokers", c.toKafka.Addr, "--delivery", c.delivery, "--log-format", "json"}
	if c.rng.IntN(3) == 0 {
		args = append(args, "--max-transaction-time", "100ms")
	}
	var err error
	i.Service, err = service.Start(service.Options{
		Binary: c.binary, Log: &labelled{out: c.logged, label: fmt.Sprintf("#%d ", i.n)},
		Args: args, Env: []string{"WALSTREAM_POSTGRES=" + u.String()},
	})
	if err == nil {
		c.instances = append(c.instances, i)
	}
	return i, err
}

// kill is kill -9.
func (c *campaign) kill(i *instance) {
	i.Kill()
	c.forget(i)
}

func (c *campaign) forget(i *instance) {
	c.instances = slices.DeleteFunc(c.instances, func(other *instance) bool { return other == i })
}

func (c *campaign) pause(i *instance) error {
	i.paused = true
	return i.Signal(stopSignal)
}

func (c *campaign) resume(i *instance) {
	if i.paused {
		i.paused = false
		_ = i.Signal(continueSignal) // it may have been killed
	}
}

// ended says which instance has ended by itself.
func (c *campaign) ended() error {
	for _, i := range c.instances {
		select {
		case <-i.Done():
			return fmt.Errorf("instance %d ended by itself, with exit code %d", i.n, i.ExitCode())
		default:
		}
	}
	return nil
}

// streaming waits for an instance that streams.
func (c *campaign) streaming(ctx context.Context) (active *instance, err error) {
	err = c.until(ctx, "an instance to stream", func(ctx context.Context) (bool, error) {
		active = c.inState(ctx, "streaming", nil)
		return active != nil, nil
	})
	return active, err
}

func (c *campaign) inState(ctx context.Context, state string, only *instance) *instance {
	for _, i := range c.instances {
		if i.paused || only != nil && only != i {
			continue
		}
		if status, err := i.Status(ctx); err == nil && status.State == state {
			return i
		}
	}
	return nil
}

// arrivals waits until so many more records have arrived.
func (c *campaign) arrivals(ctx context.Context, more int) error {
	from, err := c.tail.records()
	if err != nil {
		return err
	}
	due := time.Now().Add(slow)
	return c.until(ctx, fmt.Sprintf("%d records to arrive", more), func(ctx context.Context) (bool, error) {
		now, err := c.tail.records()
		if now-from < more && time.Now().After(due) {
			c.sayWhy(ctx, now-from)
			due = due.Add(slow)
		}
		return now-from >= more, err
	})
}

// slow arrivals are explained by what walstream says of itself.
const slow = 3 * time.Second

func (c *campaign) sayWhy(ctx context.Context, arrived int) {
	for _, i := range c.instances {
		if i.paused {
			continue
		}
		status, err := i.Status(ctx)
		c.say("    %d records arrived for %s; instance %d: %s %q, %d in flight, positions %v (%v)",
			arrived, slow, i.n, status.State, status.Reason, status.InFlightEvents, status.Positions, err)
	}
	transactions, err := c.admin.DescribeTransactions(ctx, transactionalIDs...)
	for _, t := range transactions {
		c.say("    %s: %s since %s", t.TxnID, t.State, time.UnixMilli(t.StartTimestamp).Format("15:04:05.000"))
	}
	if err != nil {
		c.say("    the broker says: %v", err)
	}
}

// until asks again and again until it is done.
func (c *campaign) until(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	var failed <-chan error
	if c.load != nil {
		failed = c.load.failed
	}
	for {
		ok, err := done(ctx)
		if err != nil || ok {
			return err
		}
		if err := c.ended(); err != nil {
			return fmt.Errorf("%w while waiting for %s", err, what)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s in vain for %s: %w", waitLimit, what, ctx.Err())
		case err := <-failed:
			return fmt.Errorf("the load failed: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
