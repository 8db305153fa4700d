package replication

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
