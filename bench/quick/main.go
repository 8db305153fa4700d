package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("bench-quick", program) }

// options of a run.
type options struct {
	rows, rounds int
	perTx        int    // rows of a transaction
	others       string // contenders beside walstream and pg_recvlogical
	both         bool   // deliveries
	binary       string
	recvlogical  string
	log          string // directory; empty: walstream's logs are not kept
	say          func(format string, args ...any)
}

// program is the command: it owns the servers and prints the result.
func program(ctx context.Context) error {
	o := options{say: tool.Say}
	rows, err := number("ROWS", 1_000_000)
	perTx, err2 := number("PER_TX", 100)
	rounds, err3 := number("ROUNDS", 3)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	flag.IntVar(&o.rows, "rows", rows, "rows to drain; also by ROWS")
	flag.IntVar(&o.perTx, "per-tx", perTx, "rows of a transaction; also by PER_TX")
	flag.IntVar(&o.rounds, "rounds", rounds, "drains of each contender; also by ROUNDS")
	flag.StringVar(&o.others, "contenders", os.Getenv("CONTENDERS"), "more of them, with commas: debezium, or debezium-default, -tuned, -exactly-once; also by CONTENDERS")
	flag.BoolVar(&o.both, "both", os.Getenv("DELIVERIES") == "both", "exactly-once delivery too; also by DELIVERIES=both")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to measure")
	flag.StringVar(&o.recvlogical, "pg-recvlogical", "", "the program; default: found on this machine, else fetched")
	flag.StringVar(&o.log, "log", "", "directory for walstream's logs")
	results := flag.String("results", "bench/results/local", "directory for the raw results")
	flag.Parse()
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		report, err := run(ctx, o, pg, kafka)
		if err != nil {
			return err
		}
		report.print(os.Stderr)
		path, err := report.write(*results)
		if err != nil {
			return err
		}
		o.say("raw results in %s", path)
		return tool.Result(report.Line)
	})
}

// number is that of a variable.
func number(variable string, otherwise int) (int, error) {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", variable, err)
	}
	return n, nil
}
