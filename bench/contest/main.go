package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("bench", program) }

// options of a run.
type options struct {
	rows, rounds int
	bytes, perTx int      // of a row, and rows of a transaction
	others       []string // who takes part beside walstream and pg_recvlogical
	pace         pace
	sizes        sizes
	binary       string
	recvlogical  string
	log          string // directory; empty: walstream's logs are not kept
	say          func(format string, args ...any)
}

// contest is one of the program's commands.
type contest struct {
	field func(context.Context, options, *testenv.Postgres) (*field, error)
	run   func(context.Context, *world, *report, *field) error
	// Defaults of the settings.
	rows, rounds, bytes int
	others              string
}

var contests = map[string]contest{
	"quick":       {quickField, quick, 1_000_000, 3, 1024, ""},
	"full":        {fullField, full, 300_000, 9, 1024, "debezium"},
	"latency":     {latencyField, latencyOnly, 0, 1, 1024, ""},
	"growth":      {alone("none"), growth, 0, 3, 256, ""},
	"compression": {alone("none", "lz4", "zstd", "snappy"), compression, 300_000, 3, 1024, ""},
}

// alone is walstream without anybody beside it.
func alone(compressions ...string) func(context.Context, options, *testenv.Postgres) (*field, error) {
	return func(_ context.Context, o options, _ *testenv.Postgres) (*field, error) {
		return ownField(o, compressions...), nil
	}
}

func latencyField(ctx context.Context, o options, _ *testenv.Postgres) (*field, error) {
	f := ownField(o, "none")
	return f, f.addDebeziums(ctx, o.others)
}

// program is the command: it owns the servers and prints the result.
func program(ctx context.Context) error {
	name := "quick"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if name == "page" && len(os.Args) == 3 {
		return again(os.Args[2])
	}
	c, ok := contests[name]
	if !ok {
		return fmt.Errorf("no contest %q: quick, full, latency, growth, compression, or page and a file of raw results", name)
	}
	o, results, err := parseOptions(c, os.Args[min(2, len(os.Args)):])
	if err != nil {
		return err
	}
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		f, err := c.field(ctx, o, pg)
		if err != nil {
			return err
		}
		w, err := newWorld(ctx, o, pg, kafka)
		if err != nil {
			return err
		}
		defer w.close()
		r := newReport(ctx, w, f)
		wrong := c.run(ctx, w, r, f)
		if len(r.Drains)+len(r.Latencies) == 0 {
			return wrong
		}
		path, err := r.write(results, name) // what was measured until then, too
		if err != nil {
			return errors.Join(wrong, err)
		}
		o.say("%s\nraw results in %s", r.page(), path)
		return errors.Join(tool.Result(r.result()), r.err(), wrong)
	})
}

// parseOptions takes settings from flags, else from variables, which make passes on.
func parseOptions(c contest, args []string) (o options, results string, err error) {
	o.say = tool.Say
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	numbers := []struct {
		variable string
		into     *int
		value    int
		what     string
	}{
		{"ROWS", &o.rows, c.rows, "rows to drain"},
		{"ROUNDS", &o.rounds, c.rounds, "drains of each contender"},
		{"PER_TX", &o.perTx, 100, "rows of a transaction"},
		{"BYTES", &o.bytes, c.bytes, "of a payload"},
	}
	for _, n := range numbers {
		value := n.value
		if text := os.Getenv(n.variable); text != "" {
			if value, err = strconv.Atoi(text); err != nil {
				return o, "", fmt.Errorf("%s: %w", n.variable, err)
			}
		}
		flags.IntVar(n.into, strings.ReplaceAll(strings.ToLower(n.variable), "_", "-"), value, n.what+"; also by "+n.variable)
	}
	lists := []struct {
		name, value string
		into        *[]int
		what        string
	}{
		{"rates", "100,1000,5000", &o.pace.rates, "transactions per second"},
		{"growth-rows", "100000,1000000,10000000", &o.sizes.rows, "rows, the middle one for what else grows"},
		{"growth-partitions", "1,10,100,1000", &o.sizes.partitions, "partitions of the topic"},
		{"growth-topics", "1,10,100,1000", &o.sizes.topics, "topics of one partition"},
		{"growth-per-tx", "1,100,10000,1000000", &o.sizes.perTx, "rows of a transaction"},
	}
	for _, l := range lists {
		*l.into, _ = integers(l.value)
		flags.Func(l.name, l.what+", with commas (default "+l.value+")", func(text string) (err error) {
			*l.into, err = integers(text)
			return err
		})
	}
	others := flags.String("contenders", or(os.Getenv("CONTENDERS"), c.others), "more of them, with commas: socket, debezium, or debezium-default, -tuned, -exactly-once; also by CONTENDERS")
	flags.DurationVar(&o.pace.warmUp, "warm-up", 2*time.Second, "before each latency is measured")
	flags.DurationVar(&o.pace.took, "measure", 6*time.Second, "each latency")
	flags.DurationVar(&o.pace.idle, "idle", 4*time.Second, "to measure at rest")
	flags.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to measure")
	flags.StringVar(&o.recvlogical, "pg-recvlogical", "", "the program; default: found on this machine, else fetched")
	flags.StringVar(&o.log, "log", "", "directory for walstream's logs")
	flags.StringVar(&results, "results", "bench/results/local", "directory for the raw results")
	if err := flags.Parse(args); err != nil {
		return o, "", err
	}
	o.others = slices.DeleteFunc(strings.Split(*others, ","), func(word string) bool { return word == "" })
	if o.rounds < 1 || o.perTx < 1 || o.bytes < 200 {
		return o, "", errors.New("-rounds and -per-tx begin at 1, -bytes at 200")
	}
	return o, results, nil
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// integers are positive, with commas.
func integers(text string) (all []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: numbers from 1 on, with commas", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// again prints what raw results say.
func again(path string) error {
	r, err := readReport(path)
	if err != nil {
		return err
	}
	fmt.Print(r.page())
	return nil
}
