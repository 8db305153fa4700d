package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/walstream/walstream/internal/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := program(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-quick:", err)
		stop()
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	rows, rounds int
	both         bool // deliveries
	binary       string
	recvlogical  string
	log          string // directory; empty: walstream's logs are not kept
	say          func(format string, args ...any)
}

// program is the command: it owns the servers and prints the result.
func program(ctx context.Context) error {
	o := options{say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	rows := 1_000_000
	if text := os.Getenv("ROWS"); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("ROWS: %w", err)
		}
	}
	flag.IntVar(&o.rows, "rows", rows, "rows to drain; also by ROWS")
	flag.IntVar(&o.rounds, "rounds", 3, "drains of each contender")
	flag.BoolVar(&o.both, "both", os.Getenv("DELIVERIES") == "both", "exactly-once delivery too; also by DELIVERIES=both")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to measure")
	flag.StringVar(&o.recvlogical, "pg-recvlogical", "", "the program; default: found on this machine, else fetched")
	flag.StringVar(&o.log, "log", "", "directory for walstream's logs")
	results := flag.String("results", "bench/results/local", "directory for the raw results")
	flag.Parse()

	pg, err := testenv.StartPostgres(ctx, postgresOptions)
	if err != nil {
		return err
	}
	defer pg.Close()
	kafka, err := testenv.StartKafka(ctx, kafkaOptions)
	if err != nil {
		return err
	}
	defer kafka.Close()
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
	line, err := json.Marshal(report.Line)
	if err == nil {
		fmt.Println(string(line))
	}
	return err
}
