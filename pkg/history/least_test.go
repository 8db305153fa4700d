package history

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func TestLeast(t *testing.T) {
	first, second, third := bucket("7", 10, 20, 5, 9, noon), bucket("7", 20, 30, 3, 12, noon.Add(time.Minute)), bucket("7", 30, 40, 11, 15, noon.Add(2*time.Minute))
	after, other := bucket("8", 40, 50, 16, 18, noon), bucket("8", 15, 30, 1, 2, noon)
	for _, c := range []struct {
		name    string
		buckets []Bucket
		lsn     pglogrepl.LSN
		least   int64 // 0: none
		refused string
	}{
		{"an id committed late counts for what comes before it", []Bucket{first, second, third}, 10, 3, ""},
		{"within a bucket", []Bucket{first, second, third}, 25, 3, ""},
		{"what ends at the LSN was committed before it", []Bucket{first, second, third}, 30, 11, ""},
		{"nothing was published so far", []Bucket{first, second, third}, 40, 0, ""},
		{"before the oldest", []Bucket{first, second, third}, 9, 0, "reaches back to 0/A (2026-03-01T12:00:00Z), not to 0/9"},
		{"a hole", []Bucket{first, third}, 15, 0, "reaches back to 0/1E"},
		{"behind the hole", []Bucket{first, third}, 30, 11, ""},
		{"a tail that was lost, and its LSNs used again", []Bucket{first, second, bucket("7", 25, 40, 7, 8, noon)}, 26, 3, ""},
		{"another server that goes on with the LSNs", []Bucket{first, second, third, after}, 25, 3, ""},
		{"another server", []Bucket{first, other}, 21, 1, ""},
		{"of another server nothing is known", []Bucket{first, other}, 14, 0, "reaches back to 0/F"},
		{"no history", nil, 15, 0, "there is no history"},
	} {
		bounds, err := Least(c.buckets, c.lsn)
		switch {
		case c.refused != "":
			if _, ok := errors.AsType[*UncoveredError](err); !ok || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", c.name, err, c.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.least == 0 && len(bounds) > 0, c.least != 0 && (len(bounds) != 1 || !bounds[0].HasIDs || bounds[0].Least != c.least):
			t.Errorf("%s: %+v, want %d", c.name, bounds, c.least)
		}
	}
}

func TestLeastSaysWhatItDoesNotKnow(t *testing.T) {
	b := bucket("7", 10, 20, 5, 9, noon)
	b.Add(&Row{Table: "public.outbox", Bytes: 1}) // its id could not be read
	b.Add(&Row{Table: "public.uuids", Created: noon, Timed: true})
	b.Add(&Row{Table: "public.uuids", Created: noon.Add(-time.Hour), Timed: true})
	bounds, err := Least([]Bucket{b}, 12)
	if err != nil || len(bounds) != 2 || bounds[0].HasIDs || bounds[0].HasTimes || bounds[1].HasIDs ||
		!bounds[1].HasTimes || !bounds[1].Created.Equal(noon.Add(-time.Hour)) {
		t.Fatalf("%v %+v", err, bounds)
	}
}

func TestSince(t *testing.T) {
	buckets := []Bucket{bucket("7", 10, 20, 5, 9, noon), bucket("7", 20, 30, 3, 12, noon.Add(time.Minute)), bucket("7", 30, 40, 11, 15, noon.Add(2*time.Minute))}
	for _, c := range []struct {
		after time.Duration
		want  pglogrepl.LSN
	}{{0, 10}, {time.Second, 10}, {2 * time.Second, 20}, {time.Minute + time.Second, 20}, {90 * time.Second, 30}, {time.Hour, 40}} {
		if lsn, err := Since(buckets, noon.Add(c.after)); err != nil || lsn != c.want {
			t.Errorf("%s: %s %v, want %s", c.after, lsn, err, c.want)
		}
	}
	if _, err := Since(buckets, noon.Add(-time.Second)); err == nil || !strings.Contains(err.Error(), "reaches back to 0/A (2026-03-01T12:00:00Z), not to 2026-03-01T11:59:59Z") {
		t.Errorf("before the oldest: %v", err)
	}
	if _, err := Since(nil, noon); err == nil || !strings.Contains(err.Error(), "there is no history") {
		t.Errorf("no history: %v", err)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	var tally Tally
	row := Row{Table: "public.outbox", ID: 1, Numbered: true, Created: noon, Timed: true}
	tally.Add(&row)
	if n := testing.AllocsPerRun(1000, func() {
		row.ID++
		tally.Commit(5, noon)
		tally.Add(&row)
	}); n != 0 {
		t.Fatalf("%v allocations a row", n)
	}
}
