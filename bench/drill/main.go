package main

import (
	"context"
	"flag"
	"time"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("drill", program) }

type options struct {
	rate        int
	load        time.Duration // of each step
	binary, log string
	say         func(format string, args ...any)
}

// program is the command: it owns the servers, prints the report, and returns what
// is wrong with it.
func program(ctx context.Context) error {
	o := options{say: tool.Say}
	flag.IntVar(&o.rate, "rate", 300, "rows per second")
	flag.DurationVar(&o.load, "load", 4*time.Second, "of each step")
	flag.StringVar(&o.binary, "binary", "bin/walstream", "the walstream that recovers")
	flag.StringVar(&o.log, "log", "", "file for walstream's log; default: a temporary one")
	flag.Parse()
	var err error
	if o.log, err = tool.LogFile(o.log, "drill"); err != nil {
		return err
	}
	o.say("walstream's log: %s", o.log)
	return tool.WithServers(ctx, postgresOptions, kafkaOptions, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		return tool.Report(run(ctx, o, pg, kafka))
	})
}

// Report is the JSON line.
type Report struct {
	Missing    int                `json:"missing"`
	Duplicates int                `json:"duplicates"`
	Windows    []Window           `json:"windows"`
	Times      map[string]float64 `json:"times_s"`
	Rows       int                `json:"rows"`
}

// Window is what a report said, and what was so.
type Window struct {
	Step     string `json:"step"`
	Reported Counts `json:"reported"`
	Truth    Counts `json:"truth"`
	// Published by --execute, which ran while rows came: at least what was looked at,
	// and in the topic as it says.
	Executed        int `json:"executed_published"`
	ExecutedInTopic int `json:"executed_in_topic"`
}

// Counts of rows.
type Counts struct {
	Found     int `json:"found"`
	Left      int `json:"left_to_stream"`
	Published int `json:"to_be_published"`
	Lost      int `json:"events_lost"`
}
