package main

import (
	"cmp"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const masked = "***"

// mask returns text as it may be shown; kind is the setting's secret tag.
func mask(kind, text string) string {
	switch {
	case text == "":
		return ""
	case kind == "yes":
		return masked
	case kind == "postgres":
		return maskPostgres(text)
	case strings.Contains(text, "-----BEGIN"): // a key pasted where its file belongs
		return masked
	}
	return text
}

// Redact returns text without the secrets of this configuration, plain or in
// any spelling that a URL or DSN gives them. It is the last line of defence for
// errors of libraries: a secret that is also an ordinary word of the
// configuration (user, database, host) is left alone, since hiding it would
// both garble the message and give it away.
func (c *Config) Redact(text string) string {
	for _, secret := range c.secrets {
		for _, spelling := range spellings(secret) {
			text = strings.ReplaceAll(text, spelling, masked)
		}
	}
	return text
}

// keepSecret has Redact hide the secret from now on.
func (c *Config) keepSecret(secret string, ordinary ...string) {
	if secret != "" && !slices.Contains(ordinary, secret) {
		c.secrets = append(c.secrets, secret)
	}
}

// spellings of a secret, the longest first, so that none leaves a tail.
func spellings(secret string) []string {
	query := url.QueryEscape(secret)
	all := []string{
		secret, query, url.PathEscape(secret),
		strings.ReplaceAll(query, "+", "%20"),
		strings.TrimPrefix(url.UserPassword("", secret).String(), ":"),
		strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(secret), // in a DSN
		strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(secret), // in JSON, or by %q
	}
	for _, s := range all[1:5] {
		all = append(all, lowerEscapes(s))
	}
	if text, err := json.Marshal(secret); err == nil { // \u0026 for &
		all = append(all, strings.Trim(string(text), `"`))
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return slices.Compact(all)
}

var escape = regexp.MustCompile(`%[0-9A-F]{2}`)

// lowerEscapes writes %2f for %2F.
func lowerEscapes(text string) string { return escape.ReplaceAllStringFunc(text, strings.ToLower) }

// keepPostgresSecrets registers what pgconn found in DSN, variables, password
// file or service file.
func (c *Config) keepPostgresSecrets(config *pgconn.Config) {
	c.keepSecret(config.Password, config.User, config.Database, config.Host, "postgres")
}
