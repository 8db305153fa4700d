package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("takeover", program) }

type options struct {
	rounds, rate int
	binary, log  string
	say          func(format string, args ...any)
}

// program is the command: it owns the servers, prints the report, and returns
// what is wrong with it.
func program(ctx context.Context) error {
	o := options{say: tool.Say}
	flag.IntVar(&o.rounds, "rounds", 20, "takeovers of each kind, in each delivery")
	flag.IntVar(&o.rate, "rate", 100, "rows per second")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream to kill")
	flag.StringVar(&o.log, "log", "", "file for walstream's log; default: a temporary one")
	flag.Parse()
	var err error
	if o.log, err = tool.LogFile(o.log, "takeover"); err != nil {
		return err
	}
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		return tool.Report(run(ctx, o, pg, kafka))
	})
}

// Report is the JSON line: figures by delivery and kind, as exactly_once_kill.
type Report map[string]figures

// figures of one kind of end in one delivery.
type figures struct {
	Median     float64 `json:"median_ms"`
	Min        float64 `json:"min_ms"`
	Max        float64 `json:"max_ms"`
	Takeovers  int     `json:"takeovers"`
	Committed  int     `json:"committed"`
	Missing    int     `json:"missing"`
	Duplicates int     `json:"duplicates"`
	Reordered  int     `json:"reordered"`
}

const (
	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
	kill        = "kill"
	sigterm     = "sigterm"
)

// limits of the medians, in milliseconds. Killed, the dead instance's Kafka
// transaction has to be ended first.
var limits = map[string]float64{kill: 3000, sigterm: 1000}

// run measures every kind in every delivery. The report is nil when a
// measurement did not come to its end.
func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*Report, error) {
	report := Report{}
	var wrong error
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		for _, kind := range []string{kill, sigterm} {
			name := strings.ReplaceAll(delivery, "-", "_") + "_" + kind
			m := &measurement{options: o, pg: pg, kafka: kafka, delivery: delivery, kind: kind, name: name}
			f, err := m.run(ctx)
			if f == nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			o.say("%s: median %.0f ms [%.0f-%.0f] of %d takeovers; %d rows, %d missing, %d twice, %d reordered", name,
				f.Median, f.Min, f.Max, f.Takeovers, f.Committed, f.Missing, f.Duplicates, f.Reordered)
			report[name] = *f
			wrong = errors.Join(wrong, err)
			if limit := limits[kind]; f.Median > limit {
				wrong = errors.Join(wrong, fmt.Errorf("%s: the median of %.0f ms is above %.0f", name, f.Median, limit))
			}
		}
	}
	return &report, wrong
}
