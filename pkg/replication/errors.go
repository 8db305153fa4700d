package replication

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Conditions the start order decides by.
var (
	// ErrSlotBusy: another walsender holds the slot. Wait for it.
	ErrSlotBusy = errors.New("slot is in use")
	// ErrServerStopping: the server shuts down or is not up yet.
	ErrServerStopping = errors.New("the server is stopping or starting, or ended our session")
	// ErrSynchronousStandby: the server treats us as a synchronous standby, so
	// commits of the application would wait for Kafka.
	ErrSynchronousStandby = errors.New("walstream's session matches synchronous_standby_names")
	// ErrStreamEnded: the server ended the stream or the connection broke.
	ErrStreamEnded = errors.New("replication stream ended")
	// ErrSilent: the server has sent nothing for too long, and its walsender is
	// gone or cannot be asked about.
	ErrSilent = errors.New("replication connection is silent")
	// ErrUnreachable: no connection to the server could be made or kept.
	ErrUnreachable = errors.New("PostgreSQL cannot be reached")
	// ErrWALRemoved: the server no longer has the WAL or row versions.
	ErrWALRemoved = errors.New("the WAL the slot needs is gone")
	// ErrAuthentication: the server refused the login.
	ErrAuthentication = errors.New("PostgreSQL refused the login")
	// ErrNoDatabase: the database of the address is not on the server.
	ErrNoDatabase = errors.New("the database is not there: create it, or name another in the PostgreSQL address")
	// ErrAddress: the server refuses a parameter of the address.
	ErrAddress = errors.New("PostgreSQL refuses a parameter of the address")
	// ErrTLS: the address asks for TLS in a way that the server has not.
	ErrTLS = errors.New("no TLS with PostgreSQL")
)

// SQLSTATEs that decide something.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	stateObjectInUse          = "55006"
	stateNotInPrerequisite    = "55000"
	stateUndefinedObject      = "42704"
	stateUndefinedFile        = "58P01"
	stateAdminShutdown        = "57P01"
	stateCrashShutdown        = "57P02"
	stateCannotConnectNow     = "57P03"
	stateTooManyConnections   = "53300"
	stateConfigLimitExceeded  = "53400"
	stateInsufficientRights   = "42501"
	stateInvalidPassword      = "28P01"
	stateInvalidAuthorization = "28000"
	stateUndefinedDatabase    = "3D000"
	stateInvalidParameter     = "22023"
	stateCannotChangeNow      = "55P02"
	stateLockNotAvailable     = "55P03"
	stateInternalError        = "XX000"
	stateReadOnly             = "25006" // a server in recovery
)

// classify puts the sentinel for an error of the connection or of the server in
// front of it.
func classify(err error) error {
	if refused := classifyLogin(err); refused != nil {
		return refused
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if isNetwork(err) {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return err
	}
	switch pg.Code {
	case stateObjectInUse:
		return fmt.Errorf("%w: %w", ErrSlotBusy, err)
	case stateAdminShutdown, stateCrashShutdown, stateCannotConnectNow:
		return fmt.Errorf("%w: %w", ErrServerStopping, err)
	case stateInvalidPassword, stateInvalidAuthorization:
		return fmt.Errorf("%w: %w", ErrAuthentication, err)
	case stateUndefinedFile:
		return fmt.Errorf("%w: %w", ErrWALRemoved, err)
	case stateNotInPrerequisite:
		if strings.Contains(pg.Message, "no longer") || strings.Contains(pg.Message, "can no longer") {
			return fmt.Errorf("%w: %w", ErrWALRemoved, err)
		}
	}
	return err
}

// Transient reports an error that another attempt may not meet again: the
// network, a server that restarts, or one that is full.
func Transient(err error) bool {
	for _, target := range []error{ErrServerStopping, ErrStreamEnded, ErrSilent, ErrUnreachable} {
		if errors.Is(err, target) {
			return true
		}
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || errors.Is(err, ErrAuthentication) {
		return false
	}
	// 08 connection, 40 rollback, 53 resources, 57 operator intervention, 58 system
	switch pg.Code[:2] {
	case "08", "40", "53", "57", "58":
		return true
	}
	return pg.Code == stateLockNotAvailable || pg.Code == stateInternalError || pg.Code == stateReadOnly
}

func isNetwork(err error) bool {
	var netErr net.Error
	var connectErr *pgconn.ConnectError
	return errors.As(err, &netErr) || errors.As(err, &connectErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
