package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := program(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-latency:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	rates        []int
	warmUp, took time.Duration
	binary       string
	say          func(format string, args ...any)
}

// program is the command: it owns the servers and prints the result.
func program(ctx context.Context) error {
	o := options{say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	rates := flag.String("rates", "100,1000", "transactions per second")
	seconds := flag.Int("seconds", 30, "of each measurement")
	flag.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "before each measurement")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to measure")
	flag.Parse()
	o.took = time.Duration(*seconds) * time.Second
	for text := range strings.SplitSeq(*rates, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return fmt.Errorf("-rates %q: numbers of transactions per second, with commas", *rates)
		}
		o.rates = append(o.rates, rate)
	}
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
	found, err := run(ctx, o, pg, kafka)
	if err != nil {
		return err
	}
	line, err := json.Marshal(found)
	if err == nil {
		fmt.Println(string(line))
	}
	return err
}
