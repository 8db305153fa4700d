package decode

import (
	"cmp"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Position says how far the publication has come: the commit LSN of a
// transaction and how many of its rows are published. It is the only thing
// order and skipping are decided by: row LSNs repeat (COPY, multi-row INSERT)
// and do not rise, commit LSNs are unique and rise in the order sent within one
// server history.
type Position struct {
	CommitLSN pglogrepl.LSN
	// Ordinal of a row within its transaction, from 1.
	Ordinal uint32
}

// Compare orders positions: -1, 0 or +1.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.CommitLSN, q.CommitLSN); c != 0 {
		return c
	}
	return cmp.Compare(p.Ordinal, q.Ordinal)
}

func (p Position) String() string { return fmt.Sprintf("%s#%d", p.CommitLSN, p.Ordinal) }

// Header renders the position as the walstream-position header: timeline,
// commit LSN and ordinal in fixed-width hexadecimal, so that text order is
// position order within one server history.
func (p Position) Header(timeline uint32) string {
	return fmt.Sprintf("%08X-%016X-%08X", timeline, uint64(p.CommitLSN), p.Ordinal)
}

// AppendHeader appends what Header returns, without allocating.
func (p Position) AppendHeader(dst []byte, timeline uint32) []byte {
	dst = appendHex(dst, uint64(timeline), 8)
	dst = append(dst, '-')
	dst = appendHex(dst, uint64(p.CommitLSN), 16)
	dst = append(dst, '-')
	return appendHex(dst, uint64(p.Ordinal), 8)
}

func appendHex(dst []byte, v uint64, digits int) []byte {
	const alphabet = "0123456789ABCDEF"
	for shift := (digits - 1) * 4; shift >= 0; shift -= 4 {
		dst = append(dst, alphabet[v>>shift&0xF])
	}
	return dst
}
