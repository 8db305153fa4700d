package outbox

import (
	"errors"
	"fmt"

	"github.com/walstream/walstream/pkg/decode"
)

// ErrTextNeeded is wrapped by the ColumnError of a value that came in binary
// though its type has no text we can write: the column's type was changed since
// the session chose its format. The next start chooses anew.
var ErrTextNeeded = errors.New("the column's type needs the text format")

// ColumnError is a table that cannot be mapped: a column the mapping needs is
// not there, or not of a fitting type. It holds the position until table or
// settings are mended.
type ColumnError struct {
	Table   string // schema.name
	Column  string
	Setting string // the setting that names, or could name, the column
	Reason  string
	Err     error // ErrTextNeeded, or nil
}

func (e *ColumnError) Error() string {
	return fmt.Sprintf("outbox %s, column %q (%s): %s", e.Table, e.Column, e.Setting, e.Reason)
}

func (e *ColumnError) Unwrap() error { return e.Err }

// RowError is a row that cannot become a record: the poison policy decides. It
// names the row and the column, never the value.
type RowError struct {
	Table       string // schema.name
	RowID       string // text of the id column, may be empty
	Position    decode.Position
	Column      string // empty: no one column's fault
	ValueLength int    // bytes as PostgreSQL sent them
	Reason      string
}

func (e *RowError) Error() string {
	row := "row"
	if e.RowID != "" {
		row = "row " + e.RowID
	}
	if e.Column == "" {
		return fmt.Sprintf("outbox %s, %s at %s: %s", e.Table, row, e.Position, e.Reason)
	}
	return fmt.Sprintf("outbox %s, %s at %s, column %q (%d bytes): %s",
		e.Table, row, e.Position, e.Column, e.ValueLength, e.Reason)
}
