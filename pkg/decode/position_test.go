package decode_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"

	"github.com/walstream/walstream/pkg/decode"
)

func TestPositionOrder(t *testing.T) {
	rising := []decode.Position{
		{},
		{Ordinal: 1},
		{CommitLSN: 1},
		{CommitLSN: 1, Ordinal: 1},
		{CommitLSN: 1, Ordinal: math.MaxUint32},
		{CommitLSN: 2},
		{CommitLSN: 1 << 32},
		{CommitLSN: math.MaxUint64, Ordinal: math.MaxUint32},
	}
	for i, p := range rising {
		for j, q := range rising {
			if got := p.Compare(q); got != cmp.Compare(i, j) {
				t.Errorf("%v compared with %v: %d", p, q, got)
			}
		}
	}
}

func TestPositionText(t *testing.T) {
	p := decode.Position{CommitLSN: 0x16_B374D848, Ordinal: 300}
	if got, want := p.String(), "16/B374D848#300"; got != want {
		t.Errorf("String %q, want %q", got, want)
	}
	if got, want := p.Header(3), "00000003-00000016B374D848-0000012C"; got != want {
		t.Errorf("Header %q, want %q", got, want)
	}
}

// Headers sort as text in the order of their positions, and both ways to make
// one agree.
func TestPositionHeaderSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		position := rapid.Custom(func(t *rapid.T) decode.Position {
			return decode.Position{
				CommitLSN: pglogrepl.LSN(rapid.Uint64().Draw(t, "lsn")),
				Ordinal:   rapid.Uint32().Draw(t, "ordinal"),
			}
		})
		timeline := rapid.Uint32().Draw(t, "timeline")
		p, q := position.Draw(t, "p"), position.Draw(t, "q")
		if got := cmp.Compare(p.Header(timeline), q.Header(timeline)); got != p.Compare(q) {
			t.Fatalf("headers of %v and %v compare as %d", p, q, got)
		}
		if got := p.AppendHeader([]byte("x"), timeline); !slices.Equal(got, []byte("x"+p.Header(timeline))) {
			t.Fatalf("AppendHeader %q, Header %q", got, p.Header(timeline))
		}
	})
}
