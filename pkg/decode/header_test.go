package decode

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

func TestParseHeaderIsTheInverseOfHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		timeline := rapid.Uint32().Draw(t, "timeline")
		p := Position{CommitLSN: pglogrepl.LSN(rapid.Uint64().Draw(t, "lsn")), Ordinal: rapid.Uint32().Draw(t, "ordinal")}
		gotTimeline, got, err := ParseHeader([]byte(p.Header(timeline)))
		if err != nil || got != p || gotTimeline != timeline {
			t.Fatalf("%s: %d %v %v", p.Header(timeline), gotTimeline, got, err)
		}
	})
}

func TestParseHeaderRefuses(t *testing.T) {
	for _, text := range []string{
		"", "1", "00000001-0000000000000001-0000000", "00000001-0000000000000001-000000011",
		"00000001_0000000000000001-00000001", "00000001-00000000000000001-0000001", "0000000x-0000000000000001-00000001",
		"00000001-000000000000000g-00000001", "00000001-0000000000000001-+0000001",
	} {
		if _, p, err := ParseHeader([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}
