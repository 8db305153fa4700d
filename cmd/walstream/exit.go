package main

import "errors"

// Exit codes. Each has a line in the README.
const (
	exitClean          = 0 // stopped cleanly, everything accepted was acknowledged
	exitBug            = 1 // a bug, or an error nobody has classified
	exitConfig         = 2 // the configuration is refused
	exitPreflight      = 3 // something needed on the servers is missing: walstream check names it
	exitGap            = 4 // a gap, or another server: going on would lose or double rows
	exitSlotLost       = 5 // the slot is gone or invalidated
	exitRefusedRecord  = 6 // Kafka refuses a record for good
	exitUnacknowledged = 7 // stopped with records unacknowledged; they are sent again at the next start
	exitRights         = 8 // a right is missing in PostgreSQL or Kafka

	exitDifference = 9  // audit: table and topics differ where they must not
	exitUndecided  = 10 // audit: nothing is wrong with what could be checked, and not everything could

	exitNotStreaming = 11 // status: no instance streams, and nothing else is wrong
)

// codedError carries the exit code of an error that ends the process.
type codedError struct {
	code   int
	err    error
	logged bool // it is in the log already
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode makes err end the process with code.
func withCode(code int, err error) error { return &codedError{code: code, err: err} }

// exitCode is the code of the outermost withCode; of an unclassified error 1.
func exitCode(err error) int {
	if err == nil {
		return exitClean
	}
	var coded *codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitBug
}

// logged marks an error that was written to the log: the terminal need not repeat
// it.
func logged(err error) error { return &codedError{code: exitCode(err), err: err, logged: true} }

func isLogged(err error) bool {
	var coded *codedError
	return errors.As(err, &coded) && coded.logged
}
