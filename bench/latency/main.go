package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("bench-latency", program) }

type options struct {
	rates        []int
	warmUp, took time.Duration
	binary       string
	say          func(format string, args ...any)
}

// program is the command: it owns the servers and prints the result.
func program(ctx context.Context) error {
	o := options{say: tool.Say}
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
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		found, err := run(ctx, o, pg, kafka)
		if err != nil {
			return err
		}
		return tool.Result(found)
	})
}
