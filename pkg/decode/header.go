package decode

import (
	"fmt"
	"strconv"

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
