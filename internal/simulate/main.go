package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := program(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		stop()
		os.Exit(1)
	}
}

func program(ctx context.Context) error {
	seeds := flag.Int("seeds", 10_000, "how many; with -bugs, within how many a bug has to be found")
	seed := flag.Uint64("seed", 1, "the first of them")
	planted := flag.Bool("bugs", false, "plant bugs in a copy, and find them")
	virtual := flag.Bool("virtual", false, "the whole service in virtual time, not the core alone")
	only := flag.String("bug", "*", "with -bugs: only those whose file name matches, without .patch")
	flag.Parse()
	if *seeds < 1 || flag.NArg() > 0 {
		return errors.New("want -seeds N with N > 0, [-seed N], [-bugs] or [-virtual], and nothing else")
	}
	dir, err := os.MkdirTemp("", "walstream-simulate-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *planted {
		return findBugs(ctx, dir, *only, *seed, *seeds)
	}
	what := core
	if *virtual {
		what = service
	}
	return campaign(ctx, dir, what, *seed, *seeds)
}

// simulation is a test that takes -seeds, -seed and -report.
type simulation struct {
	tested, name string
	tags         string
}

var (
	core    = simulation{tested: "./pkg/pipeline", name: "TestSimulation"}
	service = simulation{tested: "./internal/virtual", name: "TestVirtual", tags: "synctests"}
)

// campaign is all seeds on the code at hand.
func campaign(ctx context.Context, dir string, what simulation, seed uint64, seeds int) error {
	test := filepath.Join(dir, "simulation.test")
	if err := build(ctx, ".", test, what); err != nil {
		return err
	}
	began := time.Now()
	found, err := run(ctx, test, what, seed, seeds)
	if err != nil {
		return err
	}
	perSecond, digits := float64(found.Seeds)/time.Since(began).Seconds(), 1.0
	if perSecond < 100 {
		digits = 10
	}
	perSecond = math.Round(perSecond*digits) / digits
	if err := printLine(struct {
		Seeds     int     `json:"seeds"`
		Failed    int     `json:"failed"`
		PerSecond float64 `json:"per_second"`
	}{found.Seeds, found.Failed, perSecond}); err != nil {
		return err
	}
	if found.Failed > 0 {
		return fmt.Errorf("%d of %d seeds failed", found.Failed, found.Seeds)
	}
	return nil
}

// report is what the test writes.
type report struct {
	Seeds  int
	Failed int
	First  uint64
	Found  string
}

// build the test of the module in root.
func build(ctx context.Context, root, test string, what simulation) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", what.tags, "-o", test, what.tested)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", what.tested, err)
	}
	return nil
}

// run the simulation. That a seed failed is no error; that there is no report is.
func run(ctx context.Context, test string, what simulation, seed uint64, seeds int, more ...string) (report, error) {
	file := test + ".json"
	args := []string{"-test.run=^" + what.name + "$", "-test.timeout=0", "-report=" + file, fmt.Sprint("-seed=", seed), fmt.Sprint("-seeds=", seeds)}
	cmd := exec.CommandContext(ctx, test, append(args, more...)...)
	cmd.Stderr = os.Stderr
	out, runErr := cmd.Output()
	data, err := os.ReadFile(file)
	if err != nil {
		running, _ := os.ReadFile(file + ".running") // only the service's simulation has one
		return report{}, fmt.Errorf("the simulation did not come to its end: %w\n%s\n%s", errors.Join(runErr, err), out, running)
	}
	_ = os.Remove(file)
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read the simulation's report: %w", err)
	}
	if runErr != nil && r.Failed == 0 {
		return r, fmt.Errorf("no seed failed, but the simulation did: %w\n%s", runErr, out)
	}
	return r, nil
}

// printLine is the last one, alone on stdout.
func printLine(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(line))
	return err
}
