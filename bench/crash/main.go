package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/walstream/walstream/internal/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := program(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		stop()
		os.Exit(1)
	}
}

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
	o.say = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if o.log == "" {
		file, err := os.CreateTemp("", "walstream-crash-*.log")
		if err != nil {
			return err
		}
		_ = file.Close()
		o.log = file.Name()
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
	report, err := run(ctx, o, pg, kafka)
	if report != nil {
		line, _ := json.Marshal(report) // numbers only
		fmt.Println(string(line))
	}
	return err
}
