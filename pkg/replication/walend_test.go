package replication

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

// Behind the header of a page (24 bytes, 40 at the begin of a segment) there is no
// record yet: an idle server comes no further than the page's begin.
func TestBoundary(t *testing.T) {
	for lsn, want := range map[pglogrepl.LSN]pglogrepl.LSN{
		0x2000: 0x2000, 0x2018: 0x2000, 0x1000028: 0x1000000, 0x2048: 0x2048, 0x3FF8: 0x3FF8,
	} {
		if got := boundary(lsn, 8192); got != want {
			t.Errorf("%s: %s, want %s", lsn, got, want)
		}
	}
}
