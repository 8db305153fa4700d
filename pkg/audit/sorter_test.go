package audit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func numberCodec() codec[uint64] {
	return codec[uint64]{
		size:    8,
		put:     func(b []byte, v *uint64) { binary.LittleEndian.PutUint64(b, *v) },
		get:     func(b []byte, v *uint64) { *v = binary.LittleEndian.Uint64(b) },
		compare: cmp.Compare[uint64],
	}
}

// Whatever the budget, the order is that of a sorted slice, and nothing is lost.
func TestSorterAgainstSlices(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Uint64Range(0, 99), 0, 600).Draw(t, "values")
		s := newSorter(numberCodec(), dir, rapid.SampledFrom([]int{1, 400, 1 << 20}).Draw(t, "budget"))
		for _, v := range want {
			if err := s.add(v); err != nil {
				t.Fatal(err)
			}
		}
		var got []uint64
		if err := s.each(func(v *uint64) error { got = append(got, *v); return nil }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A small budget makes more runs than are merged at once.
func TestSorterMergesInPasses(t *testing.T) {
	const n, budget = 300_000, 3 * leastRead
	s := newSorter(numberCodec(), t.TempDir(), budget)
	for range n {
		if err := s.add(rand.Uint64()); err != nil {
			t.Fatal(err)
		}
		if cap(s.buf)*8 > budget {
			t.Fatalf("%d bytes held, the budget is %d", cap(s.buf)*8, budget)
		}
	}
	if len(s.runs) < 10 {
		t.Fatalf("%d runs: this proves nothing", len(s.runs))
	}
	var last uint64
	got := 0
	if err := s.each(func(v *uint64) error {
		if *v < last {
			t.Fatalf("%d after %d", *v, last)
		}
		last = *v
		got++
		return nil
	}); err != nil || got != n {
		t.Fatalf("%d of %d values, %v", got, n, err)
	}
	if s.spill < 3*n*8 {
		t.Errorf("%d bytes spilled: there was one pass only", s.spill)
	}
}

func TestSorterStopsAtAnError(t *testing.T) {
	stop := errors.New("stop")
	for _, budget := range []int{1, 1 << 20} {
		s := newSorter(numberCodec(), t.TempDir(), budget)
		for v := range uint64(100) {
			if err := s.add(v); err != nil {
				t.Fatal(err)
			}
		}
		calls := 0
		if err := s.each(func(*uint64) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
			t.Errorf("budget %d: %v after %d calls", budget, err, calls)
		}
	}
}
