package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/walstream/walstream/bench/internal/tool"
)

func main() { tool.Main("bench-gate", program) }

const (
	// pattern leaves out those that want a broker, and the library's parser.
	pattern = "^Benchmark(Row1KB|Parse|Assemble|Status|Ledger|Map|Arena|Encode|Core)[0-9A-Za-z]*$"
	skip    = "Pglogrepl"
)

var packages = []string{"./pkg/decode", "./pkg/checkpoint", "./pkg/outbox", "./pkg/sink", "./pkg/pipeline"}

func program(ctx context.Context) error {
	path := flag.String("recorded", "bench/results/micro-allocations.txt", "what is held against")
	record := flag.Bool("record", false, "record anew instead")
	long := flag.Bool("long", false, "print ten long runs for benchstat instead")
	flag.Parse()
	if *long {
		out, err := benchmark(ctx, "-count=10")
		fmt.Print(string(out))
		return err
	}
	out, err := benchmark(ctx, "-count=1", "-benchtime=10000x", "-cpu=1")
	if err != nil {
		return err
	}
	if *record {
		return os.WriteFile(*path, out, 0o644)
	}
	recorded, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	before, now := read(recorded), read(out)
	if len(before) == 0 {
		return fmt.Errorf("%s holds no benchmark: make bench-micro BASELINE=1 records them", *path)
	}
	beyond, less := compare(before, now)
	for _, line := range less {
		tool.Say("%s", line)
	}
	tool.Say("%d micro-benchmarks, %d beyond what is recorded", len(now), len(beyond))
	if len(beyond) > 0 {
		return errors.New(strings.Join(beyond, "\n"))
	}
	return nil
}

func benchmark(ctx context.Context, flags ...string) ([]byte, error) {
	args := slices.Concat([]string{"test", "-run", "^$", "-bench", pattern, "-skip", skip, "-benchmem"}, flags, packages)
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), said.String())
	}
	return out.Bytes(), nil
}

// figures of a benchmark, per operation.
type figures struct{ bytes, allocations float64 }

// read takes the figures from what go test prints, by package and name.
func read(text []byte) map[string]figures {
	found := map[string]figures{}
	pkg := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "pkg: "); ok {
			pkg = path[strings.LastIndexByte(path, '/')+1:]
			continue
		}
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		var f figures
		for i := 2; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			switch {
			case err != nil:
			case words[i+1] == "B/op":
				f.bytes = value
			case words[i+1] == "allocs/op":
				f.allocations = value
			}
		}
		found[pkg+"."+words[0]] = f
	}
	return found
}

// slack is for blocks that are shared by many operations, one of which may fall
// on either side of the run's end, and for what the runtime allocates meanwhile.
func slack(bytes float64) float64 { return bytes*0.02 + 8 }

// compare returns what is beyond the recorded figures, gone or new, and what is
// clearly below them.
func compare(before, now map[string]figures) (beyond, less []string) {
	for name, was := range before {
		is, ok := now[name]
		text := fmt.Sprintf("%s: %v allocations and %v bytes per operation, recorded are %v and %v", name, is.allocations, is.bytes, was.allocations, was.bytes)
		switch {
		case !ok:
			beyond = append(beyond, name+" is recorded, and there is no such benchmark")
		case is.allocations > was.allocations || is.bytes > was.bytes+slack(was.bytes):
			beyond = append(beyond, text)
		case is.allocations < was.allocations || is.bytes < was.bytes-slack(was.bytes):
			less = append(less, text)
		}
	}
	for name := range now {
		if _, ok := before[name]; !ok {
			beyond = append(beyond, name+" is not recorded: make bench-micro BASELINE=1")
		}
	}
	slices.Sort(beyond)
	slices.Sort(less)
	return beyond, less
}
