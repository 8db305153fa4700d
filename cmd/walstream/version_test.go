package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	var out strings.Builder
	if err := printVersion(&out); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); len(strings.Fields(first)) != 4 || !strings.HasPrefix(first, "walstream ") || !strings.Contains(first, " go1.") {
		t.Errorf("the first line is %q", first)
	}
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{{Key: "vcs.time", Value: "2026-11-30T20:00:00Z"}}, ""},
		{
			[]debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-30T20:00:00Z"}, {Key: "vcs.modified", Value: "false"}},
			"revision 0123abcd of 2026-11-30T20:00:00Z\n",
		},
		{
			[]debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.time", Value: "2026-11-30T20:00:00Z"}, {Key: "vcs.modified", Value: "true"}},
			"revision 0123abcd (changed since) of 2026-11-30T20:00:00Z\n",
		},
	} {
		if got := revisionOf(&debug.BuildInfo{Settings: c.settings}); got != c.want {
			t.Errorf("%v: %q, want %q", c.settings, got, c.want)
		}
	}
}
