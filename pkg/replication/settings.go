package replication

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SessionSettings are the settings of both our connections, as startup
// parameters: they win over what the role or the database was given, and RESET
// comes back to them. Use them together with NewerSettings.
//
// The first group fixes how values are printed, so that the bytes published are
// the same everywhere. client_min_messages lets through the warning that a
// publication was passed over (Reader.notice). The last bounds what the ordinary session may wait for,
// whatever was set for people's sessions: preflight must not hang behind a lock,
// and who sits beside the stream must not be ended for being idle. A walsender
// is not touched by them while it streams (seen on 15 and 18, with 1 s each).
func SessionSettings() map[string]string {
	return map[string]string{
		"client_encoding":    "UTF8",
		"DateStyle":          "ISO",
		"IntervalStyle":      "postgres",
		"TimeZone":           "UTC",
		"bytea_output":       "hex",
		"extra_float_digits": "1",

		"client_min_messages": "warning",

		"statement_timeout":                   "30s",
		"lock_timeout":                        "10s",
		"idle_in_transaction_session_timeout": "60s",
		"idle_session_timeout":                "0",
		"default_transaction_read_only":       "off",
	}
}

// NewerSettings sets what older servers would refuse as a startup parameter. It
// is a pgconn.Config.AfterConnect.
//
// transaction_timeout (17+) ends a walsender in the middle of a large
// transaction, at every new try (seen on 18).
func NewerSettings(ctx context.Context, conn *pgconn.PgConn) error {
	if serverMajor(conn.ParameterStatus("server_version")) < 17 {
		return nil
	}
	if _, err := conn.Exec(ctx, "SET transaction_timeout = 0").ReadAll(); err != nil {
		return fmt.Errorf("lift transaction_timeout: %w", classify(err))
	}
	return nil
}

// serverMajor reads "18.6", "15.19 (Debian 15.19-1)", "19beta1"; 0 when it
// cannot.
func serverMajor(version string) int {
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		version = version[:end]
	}
	major, err := strconv.Atoi(version)
	if err != nil {
		return 0
	}
	return major
}
