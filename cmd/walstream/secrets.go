package main

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

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
	case kind == "url":
		return urlUser.ReplaceAllString(text, "//"+masked+"@")
	case strings.Contains(text, "-----BEGIN"): // a key pasted where its file belongs
		return masked
	}
	return text
}

// urlUser is who a URL logs in as, and by which password.
var urlUser = regexp.MustCompile(`//[^/,]*@`)

// Redact returns text without the secrets of this configuration, plain or in
// any spelling that a URL or DSN gives them. It is the last line of defence for
// errors of libraries: a secret that is also an ordinary word of the
// configuration (user, database, host) is left alone, since hiding it would
// both garble the message and give it away. A short one is hidden where it stands
// for itself only: a piece of a word tells nobody anything, and hiding it would
// break the words, and the keys of JSON, that hold it.
func (c *Config) Redact(text string) string {
	for _, s := range c.vault.list() {
		for _, spelling := range s.spellings {
			if s.short {
				text = replaceTokens(text, spelling)
			} else {
				text = strings.ReplaceAll(text, spelling, masked)
			}
		}
	}
	return text
}

// vault holds what Redact hides. Secrets are learned while others log: a renewed
// password is one from the moment it is read.
type vault struct {
	mu      sync.RWMutex
	secrets []secret
}

type secret struct {
	text      string
	short     bool
	spellings []string
}

// vaultLimit bounds what renewing leaves behind: tokens of an hour fill it in days,
// and the oldest of them are worth nothing any more.
const vaultLimit = 64

func (v *vault) add(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// The list is never written in place: readers may be at the old one. What is
	// used again goes to its end, and is the last to be forgotten.
	kept := slices.DeleteFunc(slices.Clone(v.secrets), func(s secret) bool { return s.text == text })
	v.secrets = append(kept[max(0, len(kept)-vaultLimit+1):],
		secret{text: text, short: len(text) < shortSecret, spellings: spellings(text)})
}

func (v *vault) list() []secret {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.secrets
}

// shortSecret is the length from which a secret is not found in other words by
// chance.
const shortSecret = 8

// replaceTokens masks token where neither a letter, a digit nor _ adjoins it.
func replaceTokens(text, token string) string {
	var b strings.Builder
	for from := 0; ; {
		at := strings.Index(text[from:], token)
		if at < 0 {
			b.WriteString(text[from:])
			return b.String()
		}
		at += from
		_, first := utf8.DecodeRuneInString(token)
		if end := at + len(token); endsWord(text[:at]) || startsWord(text[end:]) || isKey(text[:at], text[end:]) {
			b.WriteString(text[from : at+first])
			from = at + first
		} else {
			b.WriteString(text[from:at] + masked)
			from = end
		}
	}
}

// isKey: the keys of a line of JSON are ours.
func isKey(before, behind string) bool {
	return strings.HasPrefix(behind, `":`) && (strings.HasSuffix(before, `{"`) || strings.HasSuffix(before, `,"`))
}

// escaped is a character that ends in letters or digits only as it is written:
// %3A, \n, \u003c.
var escaped = regexp.MustCompile(`(?:%[0-9A-Fa-f]{2}|\\[abfnrtv]|\\u[0-9A-Fa-f]{4})$`)

func endsWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return isWord(r) && !escaped.MatchString(text[max(0, len(text)-len(`\u0000`)):])
}

func startsWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return isWord(r)
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// keepSecret has Redact hide the secret from now on.
func (c *Config) keepSecret(secret string, ordinary ...string) {
	if secret != "" && !slices.Contains(ordinary, secret) {
		c.vault.add(secret)
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
	all = append(all, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret)))
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
