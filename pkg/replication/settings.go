package replication

// SessionSettings are the settings of our sessions, as startup parameters: they
// win over what a role or database was given, and RESET comes back to them.
//
// The first group fixes how values are printed, so that the bytes published are
// the same everywhere. The second bounds what an ordinary session may wait for,
// whatever was set for people's sessions: preflight must not hang behind a lock
// on the outbox, and the session that sits beside the stream must not be ended
// for being idle. The walsender ignores them while it streams.
func SessionSettings() map[string]string {
	return map[string]string{
		"client_encoding":    "UTF8",
		"DateStyle":          "ISO",
		"IntervalStyle":      "postgres",
		"TimeZone":           "UTC",
		"bytea_output":       "hex",
		"extra_float_digits": "1",

		"statement_timeout":                   "30s",
		"lock_timeout":                        "10s",
		"idle_in_transaction_session_timeout": "60s",
		"idle_session_timeout":                "0",
	}
}
