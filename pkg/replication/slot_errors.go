package replication

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// ErrSlotLost: the slot was invalidated, its WAL or row versions are gone. It
	// can never be used again. Wrapped by *SlotError.
	ErrSlotLost = errors.New("slot is lost")
	// ErrSlotUnusable: the slot is not one that walstream may stream from: of
	// another kind, plugin or database, temporary, or two-phase. Wrapped by
	// *SlotError.
	ErrSlotUnusable = errors.New("slot cannot be used")
	// ErrSlotExists: somebody else made a slot of that name first.
	ErrSlotExists = errors.New("slot exists already")
	// ErrMissingRight: the role lacks a right. Wrapped by *RightError.
	ErrMissingRight = errors.New("right is missing")
)

// SlotError is a slot that walstream refuses.
type SlotError struct {
	Slot   string
	Reason string
	Remedy string // what a person can do about it
	Err    error  // ErrSlotLost or ErrSlotUnusable
}

func (e *SlotError) Error() string {
	return fmt.Sprintf("slot %q: %s: %s", e.Slot, e.Reason, e.Remedy)
}

func (e *SlotError) Unwrap() error { return e.Err }

// RightError is a right that the role lacks, with the SQL that grants it.
type RightError struct {
	What string // "the REPLICATION attribute"
	SQL  string
	Err  error // the server's own words; may be nil
}

func (e *RightError) Error() string {
	text := fmt.Sprintf("the role lacks %s; let an administrator run: %s", e.What, e.SQL)
	if e.Err != nil {
		text += fmt.Sprintf(" (the server said: %v)", e.Err)
	}
	return text
}

// Is makes every RightError an ErrMissingRight.
func (e *RightError) Is(target error) bool { return target == ErrMissingRight }

func (e *RightError) Unwrap() error { return e.Err }

// sqlState is the SQLSTATE of a PostgreSQL error, empty for any other.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
