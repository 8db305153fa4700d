package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

const (
	sessions   = 8
	partitions = 3
	// arriveLimit ends a measurement whose rows do not all arrive.
	arriveLimit = time.Minute
)

var (
	// Commits take the time they take in life.
	postgresOptions = testenv.PGOptions{Durable: true}
	// The compiler in full, as brokers run in life.
	kafkaOptions = testenv.KafkaOptions{Real: true, JVM: []string{"-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"}}
	deliveries   = []string{"at-least-once", "exactly-once"}
)

// insert stamps the row with the clock in microseconds.
const insert = `
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload)
VALUES ('account', $1, 'deposited', $2, convert_to((extract(epoch FROM clock_timestamp()) * 1000000)::bigint || ' ' || $3, 'UTF8'))`

// figures in milliseconds.
type figures struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	N   int     `json:"rows"`
}

// run measures every delivery at every rate: {"exactly_once_1000": {...}, ...}.
func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (map[string]figures, error) {
	if err := pg.Exec(ctx, "", tool.OutboxTable); err != nil {
		return nil, err
	}
	found := map[string]figures{}
	for _, rate := range o.rates {
		for _, delivery := range deliveries {
			name := fmt.Sprintf("%s_%d", strings.ReplaceAll(delivery, "-", "_"), rate)
			m := &measurement{options: o, pg: pg, kafka: kafka, delivery: delivery, rate: rate, topic: "latency." + name, slot: name + "_slot"}
			f, err := m.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s at %d/s: %w", delivery, rate, err)
			}
			o.say("%s at %d/s: p50 %.1f ms, p99 %.1f ms, max %.1f ms of %d rows", delivery, rate, f.P50, f.P99, f.Max, f.N)
			found[name] = f
		}
	}
	return found, nil
}

// measurement is one delivery at one rate.
type measurement struct {
	options
	pg              *testenv.Postgres
	kafka           *testenv.Kafka
	delivery, topic string
	slot            string
	rate            int
}

func (m *measurement) run(ctx context.Context) (f figures, err error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(m.kafka.Brokers...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeTopics(m.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return f, err
	}
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, m.topic)
	if err = errors.Join(err, made.Err); err != nil {
		return f, err
	}
	s, err := service.Start(service.Options{
		Binary: m.binary,
		Args:   []string{"--slot", m.slot, "--kafka-brokers", strings.Join(m.kafka.Brokers, ","), "--delivery", m.delivery, "--log-format", "json"},
		Env:    []string{"WALSTREAM_POSTGRES=" + m.pg.DSN("")},
	})
	if err != nil {
		return f, err
	}
	defer s.Kill()
	if err := s.WaitStreaming(ctx); err != nil {
		return f, err
	}
	rows := m.rate * int((m.warmUp+m.took)/time.Second)
	wrote := make(chan error, 1)
	go func() { wrote <- m.write(ctx, rows) }()
	taken, err := m.consume(ctx, client, rows)
	if err = errors.Join(<-wrote, err); err != nil {
		return f, fmt.Errorf("%w\n%s", err, s.Log())
	}
	if err := s.Stop(arriveLimit); err != nil {
		return f, err
	}
	// The slot would keep what the next measurements write.
	err = m.pg.Exec(ctx, "", fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", m.slot))
	return conclude(taken[m.rate*int(m.warmUp/time.Second):]), err
}

// write keeps to the schedule whatever a commit takes, as far as the sessions do.
func (m *measurement) write(ctx context.Context, rows int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan int)
	var running sync.WaitGroup
	for n := range sessions {
		running.Go(func() {
			if err := m.session(ctx, uint64(n), due); err != nil {
				cancel(err)
			}
		})
	}
	began := time.Now()
	for n := range rows {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(m.rate))))
		select {
		case due <- n:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(due)
	running.Wait()
	return context.Cause(ctx)
}

func (m *measurement) session(ctx context.Context, n uint64, due <-chan int) error {
	conn, err := pgx.Connect(ctx, m.pg.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	source := rand.New(rand.NewPCG(n, 0))
	payload := make([]byte, 1000)
	for i := range payload {
		payload[i] = byte('a' + source.IntN(26))
	}
	for number := range due {
		if _, err := conn.Exec(ctx, insert, fmt.Sprintf("account-%d", source.IntN(1000)), m.topic, fmt.Sprintf("%d %s", number, payload)); err != nil {
			return err
		}
	}
	return nil
}

// consume returns what each row took, in the order in which they came.
func (m *measurement) consume(ctx context.Context, client *kgo.Client, rows int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, m.warmUp+m.took+arriveLimit)
	defer cancel()
	seen := make([]bool, rows)
	var taken []time.Duration
	for len(taken) < rows {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d rows arrived: %w", len(taken), rows, ctx.Err())
		}
		for it := fetches.RecordIter(); !it.Done(); {
			number, at, err := parse(it.Next().Value)
			if err == nil && (number < 0 || number >= rows || seen[number]) {
				err = fmt.Errorf("row %d arrived twice, or was never written", number)
			}
			if err != nil {
				return nil, err
			}
			seen[number] = true
			taken = append(taken, now.Sub(at))
		}
	}
	return taken, nil
}

// parse reads a row's number and when it was written.
func parse(value []byte) (number int, at time.Time, err error) {
	parts := bytes.SplitN(value, []byte(" "), 3)
	if len(parts) != 3 {
		return 0, at, fmt.Errorf("a record holds %.40q", value)
	}
	micros, err := strconv.ParseInt(string(parts[0]), 10, 64)
	number, numberErr := strconv.Atoi(string(parts[1]))
	return number, time.UnixMicro(micros), errors.Join(err, numberErr)
}

func conclude(taken []time.Duration) figures {
	sorted := slices.Sorted(slices.Values(taken))
	at := func(share float64) float64 {
		d := sorted[int(math.Ceil(share*float64(len(sorted))))-1]
		return math.Round(float64(d.Microseconds())/100) / 10
	}
	return figures{P50: at(0.5), P99: at(0.99), Max: at(1), N: len(sorted)}
}
