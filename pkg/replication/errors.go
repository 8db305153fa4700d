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
	// ErrLapsed: this process was paused for so long that the slot may be another
	// instance's by now.
	ErrLapsed = errors.New("walstream was paused, or starved, beyond wal_sender_timeout")
	// ErrUnreachable: no connection to the server could be made or kept.
	ErrUnreachable = errors.New("PostgreSQL cannot be reached")
	// ErrWALRemoved: the server no longer has the WAL or row versions.
	ErrWALRemoved = errors.New("the WAL the slot needs is gone")
	// ErrEncoding: the server cannot send a text of a row, which it does not know to
	// be UTF-8.
	ErrEncoding = errors.New("a row has a text that is no UTF-8, and PostgreSQL cannot send it. A session with client_encoding SQL_ASCII " +
		"can look at it: pg_logical_slot_peek_binary_changes; pg_replication_slot_advance passes its transaction over, " +
		"and the next start names the --accept-gap for it; such bytes belong in a bytea column")
	// ErrAuthentication: the server refused the login.
	ErrAuthentication = errors.New("PostgreSQL refused the login")
	// ErrNoDatabase: the database of the address is not on the server.
	ErrNoDatabase = errors.New("the database is not there: create it, or name another in the PostgreSQL address")
	// ErrAddress: the server refuses a parameter of the address.
	ErrAddress = errors.New("PostgreSQL refuses a parameter of the address")
	// ErrCredentials: a file of passwords, keys or certificates cannot be used at the
	// moment. It may be about to be replaced.
	ErrCredentials = errors.New("the credentials for PostgreSQL cannot be read")
	// ErrPooler: what answers is not PostgreSQL, but a pooler that passes neither
	// replication nor a session's settings on.
	ErrPooler = errors.New("a pooler such as PgBouncer seems to be in the path: --postgres must lead to PostgreSQL itself, its own host and port")
	// ErrInRecovery: the server is a standby, from which nothing can be streamed.
	ErrInRecovery = errors.New("the server is in recovery")
	// ErrPromoted: the standby server that is streamed from has become a primary, on
	// a timeline of its own.
	ErrPromoted = errors.New("the standby server was promoted")
	// ErrBehind: a standby server has not replayed what is published.
	ErrBehind = errors.New("the standby server has not replayed yet what is published")
	// ErrTLS: the address asks for TLS in a way that the server has not.
	ErrTLS = errors.New("no TLS with PostgreSQL")
)

// SQLSTATEs that decide something.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	stateProtocolViolation    = "08P01"
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
	stateNotInEncoding        = "22021"
	stateUntranslatable       = "22P05"
	stateReadOnly             = "25006" // a server in recovery
	stateSyntaxError          = "42601"
	stateStatementExists      = "42P05" // a prepared one
	stateNoStatement          = "26000"
)

// Classify puts the sentinel for an error of the connection or of the server in
// front of it, for queries of others on a Session.
func Classify(err error) error { return classify(err) }

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
	case stateStatementExists, stateNoStatement: // the server's session is lent to several clients in turn
		return fmt.Errorf("%w: %w", ErrPooler, err)
	case stateAdminShutdown, stateCrashShutdown, stateCannotConnectNow:
		return fmt.Errorf("%w: %w", ErrServerStopping, err)
	case stateInvalidPassword, stateInvalidAuthorization:
		return fmt.Errorf("%w: %w", ErrAuthentication, err)
	case stateNotInEncoding, stateUntranslatable:
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	case stateUndefinedFile:
		return fmt.Errorf("%w: %w", ErrWALRemoved, err)
	case stateNotInPrerequisite:
		if strings.Contains(pg.Message, "no longer") || strings.Contains(pg.Message, "can no longer") {
			return fmt.Errorf("%w: %w", ErrWALRemoved, err)
		}
	}
	return err
}

// LockTimeout reports that a statement waited longer for a lock than lock_timeout.
func LockTimeout(err error) bool { return sqlState(err) == stateLockNotAvailable }

// Transient reports an error that another attempt may not meet again: the
// network, a server that restarts, or one that is full.
func Transient(err error) bool {
	for _, target := range []error{ErrServerStopping, ErrStreamEnded, ErrSilent, ErrUnreachable, ErrCredentials, ErrTwoServers, ErrPromoted, ErrBehind} {
		if errors.Is(err, target) {
			return true
		}
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || errors.Is(err, ErrAuthentication) || errors.Is(err, ErrPooler) {
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
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) // it broke unnoticed, and pgconn has closed it
}
