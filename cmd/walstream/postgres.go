package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// connectionKeys are what people mistype most. pgconn takes any other key for a
// server setting, so a mistyped one would be refused by the server at best.
var connectionKeys = []string{
	"host", "port", "dbname", "user", "password", "passfile", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword",
	"target_session_attrs", "connect_timeout", "application_name", "options",
}

// parsePostgres reads the connection settings. An error holds nothing of the
// text itself: in a malformed one nobody can tell where the password ends.
func parsePostgres(text string) (*pgconn.Config, error) {
	config, err := pgconn.ParseConfig(text)
	if err != nil {
		return nil, postgresProblem(err)
	}
	hosts := []string{config.Host}
	for _, f := range config.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, host := range hosts {
		if strings.ContainsAny(host, "[]") {
			return nil, errors.New("has a host in brackets; a DSN wants host=::1 port=5432, a URL postgres://user@[::1]:5432/database")
		}
	}
	// pgconn reads a password with a slash as port and database, which then stand
	// in names and messages.
	if _, _, rest, isURL := cutURL(text); isURL && strings.Contains(rest, "@") {
		return nil, errors.New("has an @ behind the host; in a password / is written %2F, in a parameter @ is %40")
	}
	for key := range config.RuntimeParams {
		near := nearest(key, connectionKeys)
		if near != "" && distance(key, near) <= 2 && !slices.Contains(connectionKeys, key) {
			return nil, fmt.Errorf("has %s, which is no parameter of a connection; nearest: %s", key, near)
		}
	}
	return config, nil
}

// databaseOf is the database the server will choose: libpq's rule is the user's
// name where none is given.
func databaseOf(config *pgconn.Config) string {
	if config.Database != "" {
		return config.Database
	}
	return config.User
}

var badParameter = regexp.MustCompile(`^(?:unknown|invalid) ([a-z_]+)`)

// postgresProblem keeps of pgconn's error what cannot hold a piece of the text.
func postgresProblem(err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	switch {
	case strings.HasPrefix(text, "failed to parse as URL"):
		return errors.New("is no URL such as postgres://user:password@host:5432/database; in a password @ : / % ? # are written %40 %3A %2F %25 %3F %23, and a Unix socket is postgres:///database?host=/directory")
	case strings.HasPrefix(text, "failed to parse as keyword/value"):
		return errors.New("is neither a URL postgres://user:password@host:5432/database nor a DSN host=... user=... dbname=...; a value with blanks or quotes is put in single quotes")
	case strings.HasPrefix(text, "invalid port"):
		return errors.New("has a port that is not a number from 1 to 65535; in a password : and / are written %3A and %2F")
	case strings.HasPrefix(text, "could not match"), strings.HasPrefix(text, "min_protocol_version cannot"):
		return errors.New(text)
	case strings.HasPrefix(text, "failed to configure TLS"), strings.HasPrefix(text, "failed to read service"):
		return cause(err) // names a file, a service or sslmode
	}
	if m := badParameter.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("has a value of %s that is not known", m[1])
	}
	return errors.New("cannot be understood as a URL or DSN")
}

// dsnPassword finds sslpassword and every key that may be meant to be password.
var dsnPassword = regexp.MustCompile(`(?is)(pass[a-z]*[\s\v]*=[\s\v]*)('(?:[^'\\]|\\.)*'|(?:[^\s\v\\]|\\.)*)`)

// maskPostgres hides the passwords of a URL or DSN that can be used; of any
// other nothing is shown.
func maskPostgres(text string) string {
	if _, err := parsePostgres(text); err != nil {
		return masked
	}
	scheme, user, rest, isURL := cutURL(text)
	if !isURL {
		return dsnPassword.ReplaceAllString(text, "${1}"+masked)
	}
	if name, _, hasPassword := strings.Cut(user, ":"); hasPassword {
		user = name + ":" + masked + "@"
	}
	address, query, hasQuery := strings.Cut(rest, "?")
	shown := scheme + user + address
	if !hasQuery {
		return shown
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		key, _, _ := strings.Cut(pair, "=")
		if name, err := url.PathUnescape(key); err != nil || strings.Contains(strings.ToLower(name), "pass") {
			pairs[i] = key + "=" + masked
		}
	}
	return shown + "?" + strings.Join(pairs, "&")
}

// cutURL splits a URL as libpq does: the user ends with the first @ before a
// slash. Put together again the parts are the text.
func cutURL(text string) (scheme, user, rest string, isURL bool) {
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		rest, ok := strings.CutPrefix(text, scheme)
		if !ok {
			continue
		}
		if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
			return scheme, rest[:i+1], rest[i+1:], true
		}
		return scheme, "", rest, true
	}
	return "", "", "", false
}
