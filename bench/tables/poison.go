package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/walstream/walstream/internal/pgtypes"
)

// Rows that no record can be made of, in rounds that skip them or put them aside
// (on-poison). What makes a row bad is written down here by hand; whether a row is
// bad is asked of PostgreSQL.

// lettersTable holds the rows that must become dead letters, or be left out.
const lettersTable = `CREATE TABLE public.letters (n bigserial PRIMARY KEY, tab int NOT NULL, known bool NOT NULL, value bytea, id bytea);`

// spoil draws how often a value is a bad one.
func spoil(r *rand.Rand, bad []string) (string, bool) {
	if len(bad) == 0 || r.IntN(20) > 0 {
		return "", false
	}
	if text := oneOf(r, bad...); text != null {
		return pgtypes.Literal(text), true
	}
	return null, true
}

const null = "NULL"

// bad values of a column, as PostgreSQL prints them, or NULL.
func (t *table) bad(c *column) (all []string) {
	words := c.base == "text" || c.base == "varchar" || c.base == "public.citext"
	switch {
	case c.is(topicRole):
		return []string{"bad topic", "x/y", "..", ""}
	case c.is(routeRole):
		return []string{null, "no topic"}
	case c.is(patternRole):
		if all = []string{null}; words {
			all = append(all, "a b", "größe")
		}
	case c.is(partitionRole):
		return []string{"7", "-1"}
	case c.is(timestampRole):
		return []string{"infinity", "-infinity", "1969-12-31 23:59:59"}
	case c.is(spreadRole):
		return badHeaders(c.base)
	case c.is(valueRole):
		if c.required {
			return []string{null}
		}
	case c.is(idRole):
		if t.cloud != nil && words {
			return []string{"", "a\nb"}
		}
	case c.is(ceRole):
		return t.badAttribute(c, words)
	}
	return all
}

func badHeaders(base string) []string {
	switch base {
	case "public.hstore":
		return nil
	case pairs:
		return []string{"{a}", "{NULL,b}", "{{a,b,c}}", "{{a},{b}}"}
	case "json", "jsonb":
		return []string{"[]", `"x"`, "7", "null"}
	}
	return []string{"[]", `{"a":`, "", `{"a"}`, `{"a":1} x`}
}

// badAttribute: source and type must be there, and source and dataschema be
// written as a URI.
func (t *table) badAttribute(c *column, words bool) (all []string) {
	for _, a := range t.cloud.attributes {
		if !slices.ContainsFunc(a.text, func(p piece) bool { return p.column == c.name }) {
			continue
		}
		if a.required() {
			all = append(all, null)
		}
		if words {
			all = append(all, a.badTexts()...)
		}
	}
	return all
}

func (a *attribute) required() bool { return a.name == "source" || a.name == "type" }

func (a *attribute) badTexts() []string {
	switch a.name {
	case "source", "dataschema":
		return []string{"a\x01b", "a b", "größe", "50%"}
	case "type":
		return []string{"a\x01b", ""}
	}
	return []string{"a\x01b"}
}

// among is a condition in SQL: the column is one of the texts, or NULL.
func (c *column) among(all []string) string {
	is, texts := "false", []string{"NULL"}
	for _, text := range all {
		if text == null {
			is = c.bytes() + " IS NULL"
			continue
		}
		texts = append(texts, pgtypes.Literal(text), pgtypes.Literal(text+"+00")) // a timestamptz has a zone
	}
	return fmt.Sprintf("(%s OR coalesce(%s IN (%s), false))", is, c.text(), strings.Join(texts, ", "))
}

// isBad is a condition in SQL: a record cannot be made of the row.
func (t *table) isBad() string {
	here, elsewhere, events := []string{"false"}, []string{"false"}, []string{"false"}
	for i := range t.columns {
		c := &t.columns[i]
		all := t.bad(c)
		switch {
		case len(all) == 0, c.is(ceRole):
		case c.is(routeRole), c.is(patternRole):
			elsewhere = append(elsewhere, c.among(all))
		case c.is(idRole):
			events = append(events, c.among(all))
		default:
			here = append(here, c.among(all))
		}
	}
	where := strings.Join(elsewhere, " OR ")
	if c := t.find(topicRole); c != nil { // the column says where, and nothing else is asked
		where = c.in() + " IS NULL AND (" + where + ")"
	}
	event := strings.Join(events, " OR ")
	if t.cloud != nil {
		for i := range t.cloud.attributes {
			event += " OR " + t.isBadAttribute(&t.cloud.attributes[i])
		}
	}
	if t.cloud != nil && t.cloud.structured { // a tombstone is no event
		event = "NOT (" + t.isTombstone() + ") AND (" + event + ")"
	}
	return "(" + strings.Join(here, " OR ") + " OR (" + where + ") OR (" + event + "))"
}

// isBadAttribute: one that NULL leaves out is not looked at.
func (t *table) isBadAttribute(a *attribute) string {
	text := t.template(a.text)
	if is := "coalesce(" + text + ", '') = ''"; a.required() {
		return "(" + is + t.orBad(a) + ")"
	}
	return "(" + text + " IS NOT NULL AND (false" + t.orBad(a) + "))"
}

func (t *table) orBad(a *attribute) (or string) {
	for _, p := range a.text {
		if p.column != "" {
			or += " OR " + t.named(p.column).among(a.badTexts())
		}
	}
	return or
}

// expect writes down what must come of the rows i.
func (t *table) expect() string {
	good := "INSERT INTO public.oracle (tab, topic, key, value, part, at, id, names, headers) " + t.expected()
	if !t.poison {
		return good
	}
	known, value := "true", "v.value"
	if t.cloud != nil { // as far as it got
		known, value = "false", "NULL::bytea"
	}
	return fmt.Sprintf(`, good AS (%s WHERE NOT %s)
		INSERT INTO public.letters (tab, known, value, id) SELECT %d, %s, %s, a.id FROM i %s WHERE %s`,
		good, t.isBad(), t.number, known, value, t.laterals(), t.isBad())
}
