package decode

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
)

// ParseHeader reads what Header renders.
func ParseHeader(text []byte) (timeline uint32, p Position, err error) {
	const layout = "TTTTTTTT-LLLLLLLLLLLLLLLL-OOOOOOOO"
	if len(text) != len(layout) || text[8] != '-' || text[25] != '-' {
		return 0, p, fmt.Errorf("%q is no position: it is written %s, in hexadecimal", text, layout)
	}
	var numbers [3]uint64
	for i, part := range [3][]byte{text[:8], text[9:25], text[26:]} {
		if numbers[i], err = strconv.ParseUint(string(part), 16, 64); err != nil {
			return 0, p, fmt.Errorf("%q is no position: %w", text, err)
		}
	}
	return uint32(numbers[0]), Position{CommitLSN: pglogrepl.LSN(numbers[1]), Ordinal: uint32(numbers[2])}, nil
}

// ParsePosition reads what String or Header renders.
func ParsePosition(text string) (p Position, err error) {
	lsn, ordinal, found := strings.Cut(text, "#")
	if !found {
		if _, p, err = ParseHeader([]byte(text)); err != nil {
			return Position{}, fmt.Errorf("%q is no position: it is written as in a message, such as 0/15D3F20#3, or as in the header walstream-position", text)
		}
		return p, nil
	}
	n, err := strconv.ParseUint(ordinal, 10, 32)
	if err == nil {
		p.Ordinal = uint32(n)
		p.CommitLSN, err = pglogrepl.ParseLSN(lsn)
	}
	if err != nil || p.Ordinal == 0 {
		return Position{}, fmt.Errorf("%q is no position: it is written as in a message, such as 0/15D3F20#3", text)
	}
	return p, nil
}
