package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

// limit ends a run that hangs; it takes half a minute once Debezium is fetched.
const limit = 10 * time.Minute

// postgresOptions: each connector and each walstream wants a slot.
var postgresOptions = testenv.PGOptions{Params: map[string]string{"max_replication_slots": "60", "max_wal_senders": "60"}}

func main() { tool.Main("parity", program) }

func program(ctx context.Context) error {
	binary := flag.String("binary", "bin/walstream", "the walstream to compare")
	live := flag.Bool("live", false, "instead: show that Kafka Connect itself sends what the Java side says")
	log := flag.String("log", "", "file for the Java side's log; default: a temporary one")
	major := flag.Int("pg", 0, "major of PostgreSQL; 0: the newest")
	vectors := flag.Bool("partitions", false, "instead: print keys and the partitions Kafka's producer sends them to (pkg/sink/testdata/partitions.txt)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if *vectors {
		return printPartitions(ctx, os.Stdout)
	}
	themes, err := loadCorpus()
	if err != nil {
		return err
	}
	reasons, err := loadExplanations(explainedFile)
	if err != nil {
		return err
	}
	path, err := tool.LogFile(*log, "parity")
	if err != nil {
		return err
	}
	javaLog, err := os.Create(path)
	if err != nil {
		return err
	}
	defer javaLog.Close()
	postgres := postgresOptions
	postgres.Major = *major
	return tool.WithServers(ctx, postgres, testenv.KafkaOptions{Real: *live}, func(pg *testenv.Postgres, kafka *testenv.Kafka) error {
		r := &run{binary: *binary, pg: pg, kafka: kafka, groups: groupsOf(themes), javaLog: javaLog}
		if *live {
			verdict, err := r.live(ctx)
			if err != nil {
				return fmt.Errorf("%w (log of the Java side: %s)", err, path)
			}
			return tool.Report(verdict, verdict.wrong())
		}
		verdict, err := r.all(ctx, reasons)
		if err != nil {
			return fmt.Errorf("%w (log of the Java side: %s)", err, path)
		}
		verdict.tell()
		return tool.Report(verdict, verdict.wrong())
	})
}

// run is one comparison of the whole corpus.
type run struct {
	binary  string
	pg      *testenv.Postgres
	kafka   *testenv.Kafka
	groups  []*group
	javaLog io.Writer
}

func (r *run) all(ctx context.Context, reasons *explanations) (*verdict, error) {
	dir, err := os.MkdirTemp("", "walstream-parity-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tool.Say("compiling the Java side; Debezium is fetched on first use")
	side, err := compileJava(ctx, dir)
	if err != nil {
		return nil, err
	}
	db, err := pgx.Connect(ctx, r.pg.DSN(""))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if err := createTables(ctx, db, r.groups); err != nil {
		return nil, err
	}
	tool.Say("starting Debezium's connectors and walstream")
	other, err := startDebezium(ctx, side, r.pg, r.groups, r.javaLog)
	if err != nil {
		return nil, err
	}
	defer other.close()
	streams, err := startStreams(ctx, r.binary, dir, r.pg, r.kafka, r.groups)
	defer stop(streams)
	if err != nil {
		return nil, err
	}
	if err := other.awaitStreaming(); err != nil {
		return nil, err
	}
	samples, err := insertRows(ctx, db, r.groups)
	if err != nil {
		return nil, err
	}
	tool.Say("%d rows of %d tables are written", len(samples), len(r.groups))
	for _, s := range streams {
		if err := s.awaitAll(ctx, db, samples[len(samples)-1].end); err != nil {
			return nil, err
		}
	}
	theirs, err := other.answers(samples)
	if err != nil {
		return nil, err
	}
	ours, err := answersOf(ctx, r.kafka, streams, samples)
	if err != nil {
		return nil, err
	}
	return compareAll(reasons, samples, theirs, ours), nil
}

func compareAll(reasons *explanations, samples []*sample, theirs, ours map[string]*answer) *verdict {
	found, needed := map[string][]difference{}, map[string]bool{}
	for _, s := range samples {
		d, w := theirs[s.name], ours[s.name]
		differences, rules := compare(d, w, s.when)
		found[s.name] = differences
		for _, rule := range rules {
			needed[rule] = true
		}
		if d.Outcome == refused || w.Outcome == refused {
			tool.Say("%s\n  Debezium: %s %.200s\n  walstream: %s %.200s", s.name, d.Outcome, d.Error, w.Outcome, w.Error)
		}
	}
	return judge(reasons, found, needed)
}

// tell writes what has to be looked at, in the form of explained.yaml.
func (v *verdict) tell() {
	for _, stale := range v.stale {
		tool.Say("explained, but not so: %s", stale)
	}
	if len(v.rest) == 0 {
		return
	}
	text := "not explained:"
	for _, e := range v.rest {
		text += fmt.Sprintf("\n  - case: %s\n    part: %s\n    reason: \n    debezium: %s\n    walstream: %s",
			e.Case, e.Part, quoteYAML(e.Debezium), quoteYAML(e.Walstream))
	}
	tool.Say("%s", text)
}

// quoteYAML keeps a text as readable as may be.
func quoteYAML(text string) string {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return strconv.Quote(text)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
