// Package tool is what the programs in bench share: how they start and end, how
// they talk, and the table they write into.
//
// A program says what it does on stderr, and prints one JSON line, its result, on
// stdout.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/walstream/walstream/internal/testenv"
)

// OutboxTable is our own table, as sql/publication.sql makes it.
const OutboxTable = `
CREATE TABLE outbox (
	id bigserial PRIMARY KEY,
	event_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(),
	aggregate_type text NOT NULL,
	aggregate_id text NOT NULL,
	event_type text NOT NULL,
	topic text,
	key text,
	payload bytea NOT NULL,
	headers jsonb NOT NULL DEFAULT '{}',
	created_at timestamptz NOT NULL DEFAULT now()
);`

// Main runs program until it ends or a signal comes, and exits with 1 after an
// error.
func Main(name string, program func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := program(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Say is a line for whoever watches.
func Say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Result prints the line that the program is run for.
func Result(result any) error {
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	fmt.Println(string(line))
	return nil
}

// WithServers runs a program's work on servers of its own.
func WithServers(ctx context.Context, p testenv.PGOptions, k testenv.KafkaOptions, work func(*testenv.Postgres, *testenv.Kafka) error) error {
	pg, err := testenv.StartPostgres(ctx, p)
	if err != nil {
		return err
	}
	defer pg.Close()
	kafka, err := testenv.StartKafka(ctx, k)
	if err != nil {
		return err
	}
	defer kafka.Close()
	return work(pg, kafka)
}

// Report prints what was found, also when something is wrong with it.
func Report[T any](report *T, wrong error) error {
	if report == nil {
		return wrong
	}
	return errors.Join(Result(report), wrong)
}

// LogFile is path, or a new temporary file.
func LogFile(path, name string) (string, error) {
	if path != "" {
		return path, nil
	}
	file, err := os.CreateTemp("", "walstream-"+name+"-*.log")
	if err != nil {
		return "", err
	}
	return file.Name(), file.Close()
}
