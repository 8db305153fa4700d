package main

import (
	"strings"
	"testing"
)

const printed = `goos: linux
pkg: github.com/walstream/walstream/pkg/sink
BenchmarkArena     	   10000	      6452 ns/op	 158.70 MB/s	    1664 B/op	       0 allocs/op
BenchmarkMap/text  	   10000	      7417 ns/op	       2 B/op	       3 allocs/op
PASS
ok  	github.com/walstream/walstream/pkg/sink	0.180s
`

func TestGate(t *testing.T) {
	was := read([]byte(printed))
	if len(was) != 2 || was["sink.BenchmarkArena"] != (figures{1664, 0}) || was["sink.BenchmarkMap/text"] != (figures{2, 3}) {
		t.Fatalf("read %v", was)
	}
	for name, c := range map[string]struct {
		change       func(map[string]figures)
		beyond, less string
	}{
		"the same":         {func(map[string]figures) {}, "", ""},
		"within the slack": {func(m map[string]figures) { m["sink.BenchmarkArena"] = figures{1690, 0} }, "", ""},
		"more bytes":       {func(m map[string]figures) { m["sink.BenchmarkArena"] = figures{1720, 0} }, "1720 bytes", ""},
		"one allocation":   {func(m map[string]figures) { m["sink.BenchmarkArena"] = figures{1664, 1} }, "1 allocations", ""},
		"fewer":            {func(m map[string]figures) { m["sink.BenchmarkMap/text"] = figures{2, 2} }, "", "2 allocations"},
		"gone":             {func(m map[string]figures) { delete(m, "sink.BenchmarkArena") }, "no such benchmark", ""},
		"new":              {func(m map[string]figures) { m["sink.BenchmarkX"] = figures{} }, "not recorded", ""},
	} {
		now := read([]byte(printed))
		c.change(now)
		beyond, less := compare(was, now)
		for _, pair := range [][2]string{{strings.Join(beyond, "\n"), c.beyond}, {strings.Join(less, "\n"), c.less}} {
			if got, want := pair[0], pair[1]; (want == "") != (got == "") || !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}
