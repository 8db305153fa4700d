package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("bench-snapshot", program) }

type options struct {
	rows, kills    int
	seed           uint64
	binary, log    string
	leastRate      float64 // of COPY's; 0: none
	mostRSS        float64 // MB; 0: no limit
	say            func(format string, args ...any)
	pauseOfWriters time.Duration
}

var (
	postgresOptions = testenv.PGOptions{Params: map[string]string{"max_wal_size": "16GB", "checkpoint_timeout": "1h", "shared_buffers": "256MB"}}
	// The compiler in full, as brokers run in life.
	kafkaOptions = testenv.KafkaOptions{Real: true, JVM: []string{"-Xms1g", "-Xmx1g", "-XX:TieredStopAtLevel=4"}}
)

// program is the command: it owns the servers, prints the report, and returns what is
// wrong with it.
func program(ctx context.Context) error {
	o := options{say: tool.Say, pauseOfWriters: 5 * time.Millisecond}
	flag.IntVar(&o.rows, "rows", 5_000_000, "rows of 1 KB that are there before the slot")
	flag.IntVar(&o.kills, "kills", 20, "kill -9 while they are published")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "of payloads and moments")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to measure")
	flag.StringVar(&o.log, "log", "", "file for walstream's log; default: a temporary one")
	flag.Float64Var(&o.leastRate, "least-rate", 0.5, "fail below this share of COPY's rate; 0: do not")
	flag.Float64Var(&o.mostRSS, "most-rss", 256, "fail above so many MB of VmHWM; 0: do not")
	flag.Parse()
	var err error
	if o.log, err = tool.LogFile(o.log, "snapshot"); err != nil {
		return err
	}
	o.say("seed %d; walstream's log is in %s", o.seed, o.log)
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		return tool.Report(run(ctx, o, pg, kafka))
	})
}

// report is the JSON line.
type report struct {
	Rows       int     `json:"rows"`    // before the slot
	Missing    int     `json:"missing"` // in the table at the end, and not in the topic
	Duplicates int     `json:"duplicates"`
	Foreign    int     `json:"foreign"` // records of rows that were never committed
	Kills      int     `json:"kills"`   // inside the snapshot
	RateVsCopy float64 `json:"rate_vs_copy"`
	WithKills  float64 `json:"rate_with_kills_vs_copy"`
	PeakRSS    float64 `json:"peak_rss_mb"`

	Rate     float64 `json:"rows_per_second"`
	CopyRate float64 `json:"copy_rows_per_second"`
	Written  int     `json:"rows_written_meanwhile"`
	Deleted  int     `json:"rows_deleted_meanwhile"`
	Records  int     `json:"records"`
}

func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*report, error) {
	logged, err := os.Create(o.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logged.Close() }()
	b := &bench{options: o, pg: pg, kafka: kafka, logged: logged, random: rand.New(rand.NewPCG(o.seed, 0))}
	defer b.close()
	r, err := b.run(ctx)
	if err != nil {
		return nil, err
	}
	var wrong error
	fault := func(is bool, format string, args ...any) {
		if is {
			wrong = errors.Join(wrong, fmt.Errorf(format, args...))
		}
	}
	fault(r.Missing > 0, "%d rows are missing", r.Missing)
	fault(r.Duplicates > 0, "%d rows are there twice", r.Duplicates)
	fault(r.Foreign > 0, "%d records are of no row", r.Foreign)
	fault(r.Kills < o.kills, "only %d of %d kills hit the snapshot", r.Kills, o.kills)
	fault(o.leastRate > 0 && r.RateVsCopy < o.leastRate, "the rate is %.2f of COPY's, less than %.2f", r.RateVsCopy, o.leastRate)
	fault(o.mostRSS > 0 && r.PeakRSS > o.mostRSS, "walstream had %.0f MB, more than %.0f", r.PeakRSS, o.mostRSS)
	return r, wrong
}
