package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"time"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("chaos", program) }

// program is the command: it owns the servers, prints the report, and returns
// what is wrong with it.
func program(ctx context.Context) error {
	o := options{}
	flag.IntVar(&o.faults, "faults", 200, "how many")
	flag.Uint64Var(&o.seed, "seed", 0, "of the schedule and the rows; 0: a new one")
	flag.IntVar(&o.rate, "rate", 600, "rows per second, but for the large transactions")
	flag.IntVar(&o.bigRows, "big-rows", 50_000, "of a large transaction")
	flag.DurationVar(&o.bigEvery, "big-every", 10*time.Second, "pause between large transactions, about")
	flag.DurationVar(&o.longest, "longest", 12*time.Second, "cut or blackhole")
	flag.IntVar(&o.txnVersion, "transaction-version", 0, "of the broker's protocol; 1 is that before KIP-890, 0 the broker's own")
	flag.StringVar(&o.delivery, "delivery", "exactly-once", "at-least-once shows what is found without")
	flag.StringVar(&o.only, "only", "", "pattern of the names of faults to choose from, e.g. 'kill-at-*'")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to break")
	flag.StringVar(&o.log, "log", "", "file for walstream's log; default: a temporary one")
	flag.Parse()
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	started := time.Now()
	o.say = func(format string, args ...any) {
		tool.Say("%7.1fs "+format, append([]any{time.Since(started).Seconds()}, args...)...)
	}
	var err error
	if o.log, err = tool.LogFile(o.log, "chaos"); err != nil {
		return err
	}
	o.say("seed %d", o.seed)
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		return tool.Report(run(ctx, o, pg, kafka))
	})
}
