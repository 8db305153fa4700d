package decode

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Error is a stream that cannot be read on: bytes that break the protocol, an
// order of messages that should not occur, or a message kind nobody told us
// about. It is permanent: the same bytes come again at every start.
type Error struct {
	LSN    pglogrepl.LSN // of the XLogData that carried the message; 0 when none is known
	Kind   byte          // first byte of the message; 0 for a frame
	Offset int           // byte of the message where reading stopped
	Reason string
}

func (e *Error) Error() string {
	kind := "frame"
	if e.Kind != 0 {
		kind = fmt.Sprintf("message %q", e.Kind)
	}
	return fmt.Sprintf("decode %s at LSN %s, byte %d: %s", kind, e.LSN, e.Offset, e.Reason)
}
