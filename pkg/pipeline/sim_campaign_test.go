package pipeline

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedsFlag  = flag.Int("seeds", 2000, "simulated seeds")
	seedFlag   = flag.Uint64("seed", 1, "the first of them")
	reportFlag = flag.String("report", "", "file for the result, as JSON; all failing seeds are counted then, and none is told")
	findFlag   = flag.Bool("find", false, "stop at the first failing seed, and do not ask for coverage")
)

// simReport is what internal/simulate reads.
type simReport struct {
	Seeds  int    `json:"seeds"`
	Failed int    `json:"failed"`
	First  uint64 `json:"first"` // failing seed
	Found  string `json:"found"` // what was broken there
}

// TestSimulation drives the core with a PostgreSQL and a Kafka that do anything
// they may: answer in any order, delay, refuse, crash, come back from a copy or on
// another timeline; and with instances that are killed or paused anywhere, in
// either delivery, with a standby instance beside them. A seed decides
// everything; a failing one is run again with its story told.
//
// What must hold, whatever happens:
//   - no row is lost: what the slot has passed is visible to a read_committed
//     reader, and so is what a checkpoint covers; at the end, everything is;
//   - between instances that deliver exactly once, no row is visible twice, and
//     no transaction in part, unless its checkpoint says that it was split;
//   - in at-least-once, a row is published again only when the checkpoint of the
//     start did not cover it, and never by the same instance;
//   - per key, first appearances are in commit order;
//   - nothing is confirmed beyond a durable checkpoint, or beyond the oldest row
//     without an answer; what is confirmed is a commit's end or a keepalive; no
//     checkpoint stands behind a newer one;
//   - an instance that waits for the slot fences nobody;
//   - the window holds;
//   - a row that cannot become an event is left out, or stands in the dead-letter
//     partition, as the policy has it: never both lost and passed, never twice in
//     exactly-once; where the policy stops, nothing behind it is published before
//     an operator lets it pass;
//   - in the end everything settles: the slot stands at the end of the WAL,
//     unless the server's history is another one, which stops the stream.
func TestSimulation(t *testing.T) {
	counts, report := simulate(*seedFlag, *seedsFlag)
	if *reportFlag != "" {
		data, err := json.Marshal(report)
		if err == nil {
			err = os.WriteFile(*reportFlag, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d seeds: %+v", report.Seeds, counts)
	if report.Failed > 0 {
		if *reportFlag == "" {
			told := newSim(report.First, true)
			told.run()
			t.Log(strings.Join(told.story, "\n"))
		}
		t.Fatal(repeatBy(report.First, report.Found))
	}
	if *seedsFlag >= 1000 {
		counts.requireAll(t)
	}
}

func repeatBy(seed uint64, failure string) string {
	return fmt.Sprintf("seed %d: %s; again: go test ./pkg/pipeline -run TestSimulation -seed %d -seeds 1", seed, failure, seed)
}

// simulate runs seeds on all processors. Without a report it stops at the first
// that fails: no later one is begun.
func simulate(first uint64, seeds int) (counts simCounts, report simReport) {
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
		next    atomic.Uint64
		end     atomic.Uint64
	)
	end.Store(uint64(seeds))
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := next.Add(1) - 1; n < end.Load(); n = next.Add(1) - 1 {
				s := newSim(first+n, false)
				failure := s.run()
				mu.Lock()
				counts.add(&s.simCounts)
				report.Seeds++
				if failure != "" {
					if report.Failed++; report.Failed == 1 || first+n < report.First {
						report.First, report.Found = first+n, failure
					}
					if *reportFlag == "" || *findFlag {
						end.Store(min(end.Load(), n))
					} else if report.Failed <= 20 {
						fmt.Fprintln(os.Stderr, repeatBy(first+n, failure))
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return counts, report
}

// simCounts show that a simulation met what it is there for.
type simCounts struct {
	Starts, Resumed, TakenOver, Fenced, Failed, Accepted, OtherHistory, Settled int
	Duplicates, KafkaCommits, LateCommits, Splits                               int
	Snapshots, Recoveries, Blocked, Skipped, Letters                            int
}

func (c *simCounts) add(other *simCounts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for n := range sum.NumField() {
		sum.Field(n).SetInt(sum.Field(n).Int() + more.Field(n).Int())
	}
}

func (c *simCounts) requireAll(t *testing.T) {
	v := reflect.ValueOf(*c)
	for n := range v.NumField() {
		if v.Field(n).Int() == 0 {
			t.Errorf("the simulation never meets %s: %+v", v.Type().Field(n).Name, *c)
		}
	}
}
