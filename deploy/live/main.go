// Command live scrapes the real binary at work, for make monitoring-check: two
// instances on one slot between test servers, one streaming, one standing by, and
// one of another slot that publishes a snapshot and sends traces.
//
//	go run ./deploy/live DIR    writes DIR/streaming.txt, standby.txt and snapshot.txt,
//	                            and what alerts have to fire on: DIR/alerts.tests.yml
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "live: name a directory")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	// A limit, so that there is a budget to tell.
	postgres, err := testenv.StartPostgres(ctx, testenv.PGOptions{Params: map[string]string{"max_slot_wal_keep_size": "4GB"}})
	if err != nil {
		return err
	}
	defer postgres.Close()
	kafka, err := testenv.StartKafka(ctx, testenv.KafkaOptions{})
	if err != nil {
		return err
	}
	defer kafka.Close()
	fmt.Fprintf(os.Stderr, "PostgreSQL %d (%s), Kafka (%s)\n", postgres.Major, postgres.From, kafka.From)
	binary, err := service.Build(ctx, dir)
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, postgres.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(ctx) }()
	schema, err := os.ReadFile("sql/publication.sql")
	if err != nil {
		return err
	}
	// The index tells how old the oldest row is.
	if _, err := db.Exec(ctx, string(schema)+"; CREATE INDEX ON outbox (created_at)"); err != nil {
		return err
	}
	options := service.Options{Binary: binary, Args: []string{
		"--slot=bank_outbox_slot", "--pipeline=bank", "--postgres=" + postgres.DSN(""),
		"--kafka-brokers=" + strings.Join(kafka.Brokers, ","), "--create-topics", "--max-retained-wal=10GiB", "--rewind-window=1h",
		"--retention=7d", "--retention-interval=1s",
	}}
	active, err := service.Start(options)
	if err != nil {
		return err
	}
	defer active.Kill()
	if err := publish(ctx, db, active); err != nil {
		return err
	}
	second, err := service.Start(options)
	if err != nil {
		return err
	}
	defer second.Kill()
	if _, err := second.WaitFor(ctx, "standing by", func(s service.Status) bool { return s.State == "standby" }); err != nil {
		return err
	}
	_, err = shows(ctx, active, values{ // what comes with a first pass, and a first look
		"walstream_retention_last_pass_timestamp_seconds{": atLeast(1), "walstream_retention_oldest_row_timestamp_seconds{": atLeast(1),
		"walstream_rewind_reach_seconds{": atLeast(0),
	})
	if err != nil {
		return err
	}
	if err := scrape(ctx, active, filepath.Join(dir, "streaming.txt")); err != nil {
		return err
	}
	if err := scrape(ctx, second, filepath.Join(dir, "standby.txt")); err != nil {
		return err
	}
	if err := snapshot(ctx, db, options, filepath.Join(dir, "snapshot.txt")); err != nil {
		return err
	}
	second.Kill()
	active.Kill()
	s := &stage{binary: binary, schema: string(schema), postgres: postgres, kafka: kafka, db: db}
	if err := s.provoke(ctx); err != nil {
		return err
	}
	return writeAlerts(dir, "deploy/prometheus/walstream.rules.yml", s.states)
}

// snapshot scrapes one that takes its time: what is told only meanwhile is told.
func snapshot(ctx context.Context, db *pgx.Conn, options service.Options, path string) error {
	if _, err := db.Exec(ctx, "ANALYZE outbox"); err != nil { // the estimate is the planner's
		return err
	}
	options.Args = append(slices.Clone(options.Args[2:]), "--slot=snapshot_slot", "--pipeline=snapshot",
		"--snapshot=initial", "--snapshot-where=pg_sleep(0.1) IS NOT NULL")
	options.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9"} // nobody listens there
	third, err := service.Start(options)
	if err != nil {
		return err
	}
	defer third.Kill()
	_, err = third.WaitFor(ctx, "publishing a snapshot", func(s service.Status) bool { return s.Snapshot != nil })
	if err != nil {
		return err
	}
	return scrape(ctx, third, path)
}

// publish has rows streamed, and waits until lag is told and is 0.
func publish(ctx context.Context, db *pgx.Conn, s *service.Service) error {
	if err := s.WaitStreaming(ctx); err != nil {
		return err
	}
	const rows = 500
	_, err := db.Exec(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload)
		SELECT 'account', i::text, 'deposited', CASE i % 2 WHEN 0 THEN 'deposits' ELSE 'audits' END, convert_to(repeat('x', 100), 'UTF8')
		FROM generate_series(1, $1::int) i`, rows)
	if err != nil {
		return err
	}
	_, err = s.WaitFor(ctx, "done", func(st service.Status) bool {
		lag := st.LagBytes["confirmed"]
		return st.Events == rows && st.InFlightEvents == 0 && lag != nil && *lag == 0
	})
	return err
}

func scrape(ctx context.Context, s *service.Service, path string) error {
	code, body, err := s.Get(ctx, "/metrics")
	if err != nil || code != 200 {
		return fmt.Errorf("scrape: %d, %w", code, err)
	}
	return os.WriteFile(path, body, 0o644)
}
