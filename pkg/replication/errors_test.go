package replication

import (
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// What another attempt may not meet again must not stop walstream for good.
func TestTransient(t *testing.T) {
	for _, err := range []error{
		io.ErrUnexpectedEOF,
		// A connection that is reset between two statements (found in virtual time).
		fmt.Errorf("failed to send: %w", pgconn.ErrConnClosed),
		&pgconn.PgError{Code: stateAdminShutdown},
		&pgconn.PgError{Code: stateTooManyConnections},
		&pgconn.PgError{Code: "40001"},
	} {
		if !Transient(classify(err)) {
			t.Errorf("not transient: %v", err)
		}
	}
	for _, err := range []error{
		nil,
		fmt.Errorf("something else"),
		&pgconn.PgError{Code: "42P01"},
		&pgconn.PgError{Code: stateInsufficientRights},
		&pgconn.PgError{Code: stateStatementExists}, // a pooler's, at whatever statement
		&pgconn.PgError{Code: stateNoStatement},
	} {
		if Transient(classify(err)) {
			t.Errorf("transient: %v", err)
		}
	}
}
