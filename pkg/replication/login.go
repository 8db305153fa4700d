package replication

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// classifyLogin names what the server, or its certificate, refuses at the door
// and will refuse at every try; nil for anything else. Statements are not meant:
// the same SQLSTATEs mean other things there.
func classifyLogin(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return nil
	}
	cfg := connect.Config
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return classifyTLS(cfg, err)
	}
	if isPooler(pg) {
		return fmt.Errorf("%w: %w", ErrPooler, err)
	}
	// A routine's name is not translated, as messages are. set_config_option and
	// set_config_with_handle judge the parameters of the address.
	if strings.HasPrefix(pg.Routine, "set_config") || pg.Code == stateUndefinedObject ||
		pg.Code == stateInvalidParameter || pg.Code == stateCannotChangeNow {
		return fmt.Errorf("%w; whatever is no parameter of a connection is passed on as a setting of the server: correct it or leave it out: %w", ErrAddress, err)
	}
	if pg.Code == stateInvalidAuthorization && strings.Contains(pg.Message, "not permitted to log in") {
		return &RightError{What: "the LOGIN attribute", SQL: fmt.Sprintf("ALTER ROLE %s LOGIN;", quoteIdentifier(cfg.User)), Err: err}
	}
	switch database := cfg.Database; {
	case pg.Code == stateInvalidPassword, pg.Code == stateInvalidAuthorization:
		return fmt.Errorf("%w%s: %w", ErrAuthentication, wayIn(cfg, pg), err)
	case pg.Code == stateUndefinedDatabase:
		return fmt.Errorf("%w: %w", ErrNoDatabase, err)
	case pg.Code != stateInsufficientRights:
		return nil
	case cfg.RuntimeParams["replication"] != "":
		return &RightError{
			What: "the REPLICATION attribute",
			SQL:  fmt.Sprintf("ALTER ROLE %s REPLICATION;", quoteIdentifier(cfg.User)), Err: err,
		}
	default:
		if database == "" {
			database = cfg.User // libpq's rule
		}
		return &RightError{
			What: "CONNECT on database " + database,
			SQL:  fmt.Sprintf("GRANT CONNECT ON DATABASE %s TO %s;", quoteIdentifier(database), quoteIdentifier(cfg.User)), Err: err,
		}
	}
}

// wayIn is what a person does about a login that is refused. A server does not say
// whether the password is wrong or the role is missing, but for methods without a
// password. Its routines are not translated, as its messages are.
func wayIn(cfg *pgconn.Config, pg *pgconn.PgError) string {
	role := quoteIdentifier(cfg.User)
	switch {
	case pg.Code == stateInvalidPassword:
		return fmt.Sprintf("; give the password of role %s (--postgres-password-file, PGPASSWORD, ~/.pgpass, or in --postgres), "+
			"or set it on the server: ALTER ROLE %s PASSWORD '...'; a role that does not exist is refused in the same words (CREATE ROLE %s LOGIN REPLICATION PASSWORD '...';)",
			role, role, role)
	case pg.Routine == "InitializeSessionUserId":
		return fmt.Sprintf("; name another role in --postgres (or PGUSER), or make it: CREATE ROLE %s LOGIN REPLICATION PASSWORD '...';", role)
	case pg.Routine == "auth_failed":
		return fmt.Sprintf("; the method that pg_hba.conf asks of role %s is not met: the name in the client certificate (sslcert), "+
			"or that of the operating system's user, must be the role's, or be mapped to it in pg_ident.conf; the server's log has the line", role)
	case strings.Contains(pg.Message, "client certificate"):
		return fmt.Sprintf("; pg_hba.conf asks role %s for a certificate of an authority in the server's ssl_ca_file: give it by sslcert and sslkey in --postgres", role)
	}
	// The keyword replication is for physical replication: ours takes the line of the database.
	return fmt.Sprintf("; no line of pg_hba.conf lets role %s in from here: add one for database %s (hostssl is for sslmode=require and stricter, hostnossl for sslmode=disable), "+
		"then SELECT pg_reload_conf();", role, cfg.Database)
}

// isRefusedCertificate: the server ends the session over the certificate that it was
// shown, which TLS 1.3 says only after the handshake.
func isRefusedCertificate(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error" && strings.Contains(alert.Error(), "certificate")
}

// isPooler: PostgreSQL names the routine of its code in every error, a pooler does
// not. What else a pooler says by this SQLSTATE, such as that the server is down,
// may pass.
func isPooler(pg *pgconn.PgError) bool {
	return pg.Code == stateProtocolViolation && pg.Routine == "" &&
		(strings.Contains(pg.Message, "startup parameter") || strings.Contains(pg.Message, "replication"))
}

// classifyTLS: without TLS on the server, or with a certificate that does not
// prove it, no try will do. Where a plain connection was allowed too, it is its
// error that counts; of several hosts another may be back soon.
func classifyTLS(cfg *pgconn.Config, err error) error {
	plain := cfg.TLSConfig == nil
	for _, f := range cfg.Fallbacks {
		plain = plain || f.TLSConfig == nil
	}
	if isRefusedCertificate(err) {
		return fmt.Errorf("%w; it does not take the client certificate (sslcert): give one that is valid now, "+
			"and signed by an authority in the server's ssl_ca_file: %w", ErrAuthentication, err)
	}
	tries := leaves(err)
	refused := 0
	for _, try := range tries {
		if isTLSRefusal(try) {
			refused++
		}
	}
	if plain || refused == 0 || hosts(cfg) > 1 && refused < len(tries) {
		return nil
	}
	way := "correct sslrootcert or the name of the host, or the server's certificate"
	if strings.Contains(err.Error(), noTLSThere) {
		way = "the server has none: set ssl = on there, or take sslmode=prefer if the network is trusted"
	}
	return fmt.Errorf("%w (sslmode=%s in the address or PGSSLMODE asks for it; %s): %w", ErrTLS, sslMode(cfg.TLSConfig), way, err)
}

// noTLSThere is all that pgconn says of a server that answers a request for TLS
// with no.
const noTLSThere = "server refused TLS connection"

func isTLSRefusal(err error) bool {
	switch err.(type) { //nolint:errorlint // a leaf wraps nothing
	case x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return true
	}
	return err.Error() == noTLSThere
}

// sslMode as pgconn has put it into a TLS configuration. With an sslrootcert,
// require is verify-ca.
func sslMode(c *tls.Config) string {
	switch {
	case !c.InsecureSkipVerify:
		return "verify-full"
	case c.VerifyPeerCertificate != nil:
		return "verify-ca"
	}
	return "require"
}

// leaves are the causes at the ends of a tree of errors.
func leaves(err error) (ends []error) {
	switch wrapped := err.(type) { //nolint:errorlint // the tree is walked by hand
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil {
			return leaves(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapped.Unwrap() {
			ends = append(ends, leaves(inner)...)
		}
		return ends
	}
	return []error{err}
}
