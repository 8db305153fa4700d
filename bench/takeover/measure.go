package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
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
	partitions = 3
	// settled is how long a standby instance has stood by before it is needed: its
	// pauses have come to their longest, a second. Up to a second more spreads the
	// moments of the kills over a pause.
	settled = 2 * time.Second
	// waitLimit ends a round in which nobody takes over.
	waitLimit = 2 * time.Minute
)

var (
	// Commits take the time they take in life.
	postgresOptions = testenv.PGOptions{Durable: true}
	kafkaOptions    = testenv.KafkaOptions{Real: true}
)

// measurement is one kind of end in one delivery.
type measurement struct {
	options
	pg                   *testenv.Postgres
	kafka                *testenv.Kafka
	delivery, kind, name string

	logged          *os.File
	active, standby *service.Service
	tail            *tail
}

func (m *measurement) run(ctx context.Context) (found *figures, err error) {
	if m.logged, err = os.OpenFile(m.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range []*service.Service{m.active, m.standby} {
			if s != nil {
				s.Kill()
			}
		}
		_ = m.logged.Close()
	}()
	db, err := m.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if m.tail, err = follow(m.kafka.Brokers, m.name); err != nil {
		return nil, err
	}
	defer m.tail.close()
	stop := m.write(ctx, db)
	var taken []time.Duration
	for range m.rounds {
		took, err := m.round(ctx)
		if err != nil {
			_ = stop() // what failed first counts
			return nil, fmt.Errorf("round %d: %w", len(taken)+1, err)
		}
		taken = append(taken, took)
	}
	if err := stop(); err != nil {
		return nil, err
	}
	return m.judge(ctx, db, taken)
}

// prepare makes database and topic, and starts both instances.
func (m *measurement) prepare(ctx context.Context) (*pgx.Conn, error) {
	if err := m.pg.Exec(ctx, "", "CREATE DATABASE "+m.name); err != nil {
		return nil, err
	}
	db, err := pgx.Connect(ctx, m.pg.DSN(m.name))
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(ctx, tool.OutboxTable); err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(m.kafka.Brokers...), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, m.name)
	if err = errors.Join(err, made.Err); err != nil {
		return nil, err
	}
	if m.active, err = m.start(); err != nil {
		return nil, err
	}
	if err := m.active.WaitStreaming(ctx); err != nil {
		return nil, err
	}
	m.standby, err = m.start()
	return db, err
}

// start an instance with default settings.
func (m *measurement) start() (*service.Service, error) {
	return service.Start(service.Options{
		Binary: m.binary, Log: m.logged,
		Args: []string{"--slot", m.name + "_slot", "--kafka-brokers", m.kafka.Brokers[0], "--delivery", m.delivery, "--log-format", "json"},
		Env:  []string{"WALSTREAM_POSTGRES=" + m.pg.DSN(m.name)},
	})
}

// round ends the active instance and tells how long it took the standby.
func (m *measurement) round(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	if _, err := m.standby.WaitFor(ctx, "standing by", func(st service.Status) bool { return st.State == "standby" }); err != nil {
		return 0, err
	}
	select {
	case <-time.After(settled + rand.N(time.Second)):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	// Rows flow up to the moment.
	if _, err := m.tail.writtenAfter(ctx, time.Now()); err != nil {
		return 0, err
	}
	began := time.Now()
	if m.kind == kill {
		m.active.Kill()
	} else if err := m.active.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	<-m.active.Done()
	arrived, err := m.tail.writtenAfter(ctx, time.Now())
	if err != nil {
		return 0, fmt.Errorf("nobody takes over: %w\n%s", err, m.standby.Log())
	}
	if m.kind == sigterm && m.active.ExitCode() != 0 {
		return 0, fmt.Errorf("SIGTERM ended it with exit code %d\n%s", m.active.ExitCode(), m.active.Log())
	}
	m.active = m.standby
	m.standby, err = m.start()
	return arrived.Sub(began), err
}

// write commits rows of one transaction each until stop is called; their payload
// is the time.
func (m *measurement) write(ctx context.Context, db *pgx.Conn) (stop func() error) {
	ended := make(chan struct{})
	var failed error
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(m.rate))
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			_, failed = db.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('account', $1, 'deposited', $2, $3)`,
				fmt.Sprintf("account-%d", i%20), m.name, []byte(strconv.FormatInt(time.Now().UnixNano(), 10)))
			if failed != nil {
				return
			}
		}
	})
	return func() error {
		close(ended)
		running.Wait()
		return failed
	}
}

// judge holds the topic against the table once the last row has arrived.
func (m *measurement) judge(ctx context.Context, db *pgx.Conn, taken []time.Duration) (*figures, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	var last int64
	if err := db.QueryRow(ctx, `SELECT max(convert_from(payload, 'UTF8')::bigint) FROM outbox`).Scan(&last); err != nil {
		return nil, err
	}
	if _, err := m.tail.writtenAfter(ctx, time.Unix(0, last)); err != nil {
		return nil, fmt.Errorf("wait for the last row: %w", err)
	}
	if err := m.active.Stop(time.Minute); err != nil {
		return nil, err
	}
	rows, err := verdict.ReadTable(ctx, db, `SELECT event_id::text, aggregate_id, id, payload FROM outbox`)
	if err != nil {
		return nil, err
	}
	records, err := verdict.ReadTopics(ctx, m.kafka.Brokers, m.name)
	if err != nil {
		return nil, err
	}
	result := verdict.Judge(rows, records, nil)
	if m.delivery == atLeastOnce && m.kind == kill {
		result.BeforeCheckpoint = 0 // lawful here; make crash has the bound
	}
	slices.Sort(taken)
	return &figures{
		Median: milliseconds(median(taken)), Min: milliseconds(taken[0]), Max: milliseconds(taken[len(taken)-1]), Takeovers: len(taken),
		Committed: result.Committed, Missing: result.Missing, Duplicates: result.Duplicates, Reordered: result.Reordered,
	}, result.Err()
}

func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d.Round(time.Millisecond).Milliseconds()) }
