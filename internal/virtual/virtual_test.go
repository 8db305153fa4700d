package virtual

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

var (
	seedsFlag  = flag.Int("seeds", 20, "seeds of the service in virtual time")
	seedFlag   = flag.Uint64("seed", 1, "the first of them")
	reportFlag = flag.String("report", "", "file for the result, as JSON; all failing seeds are counted then")
	storyFlag  = flag.Bool("story", false, "tell the story of seeds that pass, too")
	logFlag    = new(zerolog.Level)
)

func init() {
	flag.TextVar(logFlag, "level", zerolog.InfoLevel, "of the instances' logs in a story")
}

const whyTagged = "franz-go's mutexes stop virtual time without its build tag: go test -tags synctests ./internal/virtual"

// report is what internal/simulate reads.
type report struct {
	Seeds  int    `json:"seeds"`
	Failed int    `json:"failed"`
	First  uint64 `json:"first"` // failing seed
	Found  string `json:"found"` // what was broken there
}

// TestVirtual runs the whole service between pgfake and kfake, in virtual time:
// load, faults at random moments, and a verdict. A seed decides load and faults;
// how goroutines interleave is the scheduler's, so a seed that failed once may
// pass the next time: repeat it with -count.
func TestVirtual(t *testing.T) {
	if !tagged {
		t.Skip(whyTagged)
	}
	var (
		mu      sync.Mutex
		result  report
		sum     counts
		running = map[uint64]bool{}
	)
	mark := func(seed uint64, runs bool) {
		mu.Lock()
		defer mu.Unlock()
		if running[seed] = runs; !runs {
			delete(running, seed)
		}
		if *reportFlag != "" { // a panic ends the process, and does not say where it was
			_ = os.WriteFile(*reportFlag+".running", fmt.Appendf(nil, "seeds at work: %v\n", slices.Sorted(maps.Keys(running))), 0o600)
		}
	}
	t.Run("seeds", func(t *testing.T) {
		for n := range *seedsFlag {
			seed := *seedFlag + uint64(n)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				var w *world
				mark(seed, true)
				defer mark(seed, false)
				synctest.Test(t, func(t *testing.T) { w = runSeed(t, seed) })
				mu.Lock()
				defer mu.Unlock()
				sum.add(&w.counts)
				result.Seeds++
				if len(w.failures) == 0 {
					if *storyFlag {
						t.Log("\n" + strings.Join(w.story, "\n"))
					}
					return
				}
				if result.Failed++; result.Failed == 1 || seed < result.First {
					result.First, result.Found = seed, w.failures[0]
				}
				if *reportFlag != "" {
					fmt.Fprintln(os.Stderr, repeat(seed, w.failures[0]))
					t.Fail()
					return
				}
				t.Errorf("\n%s\n%s", strings.Join(w.story, "\n"), repeat(seed, strings.Join(w.failures, "\n")))
			})
		}
	})
	t.Logf("%d seeds: %+v", result.Seeds, sum)
	if *seedsFlag >= 200 {
		sum.requireAll(t)
	}
	if *reportFlag != "" {
		data, err := json.Marshal(result)
		if err == nil {
			err = os.WriteFile(*reportFlag, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func repeat(seed uint64, failure string) string {
	return fmt.Sprintf("seed %d: %s; again: go test -tags synctests ./internal/virtual -run TestVirtual -seeds 1 -count 5 -seed %d", seed, failure, seed)
}

func runSeed(t *testing.T, seed uint64) *world {
	w, err := newWorld(seed)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.live()
	w.countRestarts()
	if len(w.failures) == 0 {
		w.judge()
	}
	return w
}

// live is what happens: load and faults, then quiet, then a stop.
func (w *world) live() {
	copies := pick(w.rng, 1, 1, 2)
	w.keep(copies)
	loading, stopLoad := context.WithCancel(context.Background())
	var running sync.WaitGroup
	load := newLoad(w)
	running.Go(func() { load.run(loading) })
	defer running.Wait()
	defer stopLoad()

	for range w.rng.IntN(8) {
		time.Sleep(time.Duration(w.rng.ExpFloat64() * float64(pick(w.rng, time.Second, 10*time.Second))))
		w.fault()
		w.keep(copies)
	}
	time.Sleep(time.Duration(w.rng.IntN(5_000)) * time.Millisecond)
	stopLoad()
	running.Wait()
	w.healing.Wait()
	w.keep(1)
	w.tell("the last fault is over, the load has ended")
	if !w.settle() {
		return
	}
	// A last row, when whoever was paused has done what it was about to: an instance
	// that it has fenced, or that has lost a connection without a word, notices.
	time.Sleep(time.Minute)
	load.commit(1)
	time.Sleep(time.Minute)
	if !w.settle() {
		return
	}
	w.idle(pick(w.rng, 2*time.Minute, 2*time.Minute, 2*time.Minute, 2*time.Minute, 2*time.Minute, time.Hour))
	for _, i := range w.running() {
		w.stop(i)
		<-i.ended
		if i.err != nil {
			w.fail("%s had nothing in flight, and stopped with: %v", i.name, i.err)
		}
	}
}

// settleTimeout is generous: pauses between attempts grow to half a minute, and
// several things may have to time out one after the other.
const settleTimeout = 5 * time.Minute

// settle waits until everything is published and confirmed.
func (w *world) settle() bool {
	began := time.Now()
	for time.Since(began) < settleTimeout {
		slot, found := w.postgres.Slot(slotName)
		if found && slot.Confirmed == w.postgres.Flushed() {
			w.counts.Settled++
			w.counts.SlowestSettle = max(w.counts.SlowestSettle, time.Since(began))
			w.tell("settled after %s", time.Since(began))
			return true
		}
		if len(w.broken()) > 0 {
			return false
		}
		time.Sleep(100 * time.Millisecond)
	}
	slot, found := w.postgres.Slot(slotName)
	w.fail("not settled %s after the last fault: the slot (there: %v) stands at %s of %s%s", settleTimeout, found, slot.Confirmed, w.postgres.Flushed(), w.states())
	return false
}

func (w *world) states() string {
	var b strings.Builder
	for _, i := range w.running() {
		p := i.supervisor.Progress()
		fmt.Fprintf(&b, "; %s is %s since %s, %s %s", i.name, p.State, p.Since.Sub(w.began).Round(time.Millisecond), p.Reason, p.Trouble)
	}
	return b.String()
}

func (w *world) broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures
}

// idle time: other tables are written, and the slot moves on without a restart.
func (w *world) idle(d time.Duration) {
	before := w.restarts()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(7 * time.Second) {
		w.postgres.Other(100_000)
	}
	time.Sleep(10 * time.Second)
	if after := w.restarts(); after != before {
		w.fail("%d restarts in %s of quiet", after-before, d)
	}
	if slot, _ := w.postgres.Slot(slotName); slot.Confirmed != w.postgres.Flushed() {
		w.fail("after %s of quiet the slot stands at %s of %s%s", d, slot.Confirmed, w.postgres.Flushed(), w.states())
	}
}

// restarts of the instances at work; a standby instance counts its looks at the
// slot too, and is left out.
func (w *world) restarts() (total uint64) {
	for _, i := range w.running() {
		for reason, n := range i.supervisor.Progress().Restarts {
			if reason != "slot-busy" {
				total += n
			}
		}
	}
	return total
}
