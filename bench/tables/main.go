package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/testenv"
)

func main() { tool.Main("tables", program) }

const (
	defaultMajors = "15,18"
	defaultBinary = "bin/walstream"
)

type options struct {
	seconds int
	seed    uint64
	majors  string
	binary  string
}

// report is the JSON line.
type report struct {
	Seed     uint64         `json:"seed"`
	Postgres []int          `json:"postgres"`
	Rounds   int            `json:"rounds"`
	Tables   int            `json:"tables"`
	Restarts int            `json:"restarts"`
	Kills    map[string]int `json:"kills"` // kill -9 among them, by delivery
	Changes  map[string]int `json:"changes"`
	Refused  int            `json:"refused"` // changes that the server did not allow
	// Retyped: a change of type that the binary format could not follow.
	Retyped int `json:"restarts_type_changed"`
	verdict
	Failed []uint64 `json:"failed_seeds"`
}

func program(ctx context.Context) error {
	o := &options{}
	flag.IntVar(&o.seconds, "seconds", 30, "no round begins later; there is one on each PostgreSQL at least")
	flag.Uint64Var(&o.seed, "seed", 0, "of the first round, the next has the next; 0: a new one")
	flag.StringVar(&o.majors, "postgres", defaultMajors, "majors to try in turn")
	flag.StringVar(&o.binary, "binary", defaultBinary, "the walstream to try")
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	tool.Say("seed %d", o.seed)
	// Rows whose timestamp column says 1970 would be deleted for their age.
	kafka, err := testenv.StartKafka(ctx, testenv.KafkaOptions{Real: true, Props: map[string]string{"log.retention.ms": "-1"}})
	if err != nil {
		return err
	}
	defer kafka.Close()
	var servers []*testenv.Postgres
	for text := range strings.SplitSeq(o.majors, ",") {
		major, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-postgres %q: %w", o.majors, err)
		}
		pg, err := testenv.StartPostgres(ctx, testenv.PGOptions{Major: major})
		if err != nil {
			return err
		}
		defer pg.Close()
		servers = append(servers, pg)
	}
	return tool.Report(o.run(ctx, servers, kafka.Brokers))
}

// run rounds until the time is over. A seed's round is on the same PostgreSQL
// each time.
func (o *options) run(ctx context.Context, servers []*testenv.Postgres, brokers []string) (*report, error) {
	all := &report{Seed: o.seed, Kills: map[string]int{}, Changes: map[string]int{}, Failed: []uint64{}}
	for _, pg := range servers {
		all.Postgres = append(all.Postgres, pg.Major)
	}
	var wrong []error
	for started, n := time.Now(), 0; n < len(servers) || time.Since(started) < time.Duration(o.seconds)*time.Second; n++ {
		seed := o.seed + uint64(n)
		if err := o.round(ctx, all, seed, servers[seed%uint64(len(servers))], brokers); err != nil {
			tool.Say("WRONG: %v", err)
			all.Failed = append(all.Failed, seed)
			wrong = append(wrong, fmt.Errorf("seed %d failed; again: %s", seed, o.again(seed)))
		}
		if ctx.Err() != nil || len(wrong) >= 3 {
			break
		}
	}
	return all, errors.Join(wrong...)
}

// again is the command that repeats a round.
func (o *options) again(seed uint64) string {
	if o.majors == defaultMajors && o.binary == defaultBinary {
		return fmt.Sprintf("make fuzz-tables SECONDS=0 SEED=%d", seed)
	}
	return fmt.Sprintf("go run ./bench/tables -seconds 0 -seed %d -postgres %s -binary %s", seed, o.majors, o.binary)
}

func (o *options) round(ctx context.Context, all *report, seed uint64, pg *testenv.Postgres, brokers []string) error {
	dir, err := os.MkdirTemp("", "walstream-tables-")
	if err != nil {
		return err
	}
	r := &round{o: o, seed: seed, pg: pg, brokers: brokers, dir: dir}
	began := time.Now()
	found, err := r.run(ctx)
	all.Rounds++
	all.Tables += len(r.tables)
	all.Restarts += r.restarts
	for i, delivery := range deliveries {
		all.Kills[delivery] += r.kills[i]
	}
	for _, w := range r.writers {
		for kind, n := range w.changes {
			all.Changes[kind] += n
		}
		for _, n := range w.refused {
			all.Refused += n
		}
	}
	all.Retyped += r.retyped()
	rows := 0
	if found != nil {
		all.add(found)
		rows = found.Rows
		if found.wrong() {
			err = errors.Join(err, fmt.Errorf("%d lost, %d altered, %d doubled, %d unknown, %d out of order:\n  %s",
				found.Lost, found.Altered, found.Doubled, found.Unknown, found.Disorder, strings.Join(found.examples, "\n  ")))
		}
	}
	if err != nil {
		return fmt.Errorf("seed %d on PostgreSQL %d (settings, statements and logs in %s): %w", seed, pg.Major, dir, err)
	}
	tool.Say("seed %d on PostgreSQL %d: %d rows in %.1f s", seed, pg.Major, rows, time.Since(began).Seconds())
	return os.RemoveAll(dir)
}
