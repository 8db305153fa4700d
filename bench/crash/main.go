package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("crash", program) }

// program is the command: it owns the servers, prints the report, and returns
// what is wrong with it.
func program(ctx context.Context) error {
	o := options{}
	flag.IntVar(&o.kills, "kills", 30, "kill -9 of walstream")
	flag.IntVar(&o.brokerRestarts, "broker-restarts", -1, "restarts of the broker; default: a third of the kills")
	flag.IntVar(&o.rate, "rate", 2000, "rows per second")
	flag.IntVar(&o.partitions, "partitions", 6, "of the topic")
	flag.StringVar(&o.delivery, "delivery", atLeastOnce, exactlyOnce+" or "+atLeastOnce)
	flag.Uint64Var(&o.seed, "seed", 0, "of the schedule and the rows; 0: a new one")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to kill")
	flag.StringVar(&o.log, "log", "", "file for walstream's log; default: a temporary one")
	flag.Parse()
	if o.delivery != atLeastOnce && o.delivery != exactlyOnce {
		return fmt.Errorf("-delivery %q: %s or %s", o.delivery, exactlyOnce, atLeastOnce)
	}
	if o.brokerRestarts < 0 {
		o.brokerRestarts = o.kills / 3
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	o.say = tool.Say
	var err error
	if o.log, err = tool.LogFile(o.log, "crash"); err != nil {
		return err
	}
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		return tool.Report(run(ctx, o, pg, kafka))
	})
}
