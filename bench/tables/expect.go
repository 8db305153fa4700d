package main

import (
	"fmt"
	"strings"

	"github.com/walstream/walstream/internal/pgtypes"
)

// What a record must be, in SQL: PostgreSQL computes it of the row, without
// anything of package outbox. Two texts stand for what it cannot know.
const (
	positionHere = "(the position)"
	timeHere     = "(the commit time)"
)

// oracleTable holds what must be in Kafka, in the order in which each table's rows
// were written. is_document: PostgreSQL 15 has no IS JSON.
const oracleTable = `CREATE TABLE public.oracle (
	n bigserial PRIMARY KEY, tab int NOT NULL, written timestamptz NOT NULL DEFAULT clock_timestamp(),
	topic text NOT NULL, key bytea, value bytea, part int, at bigint, id bytea, names text[] NOT NULL, headers bytea[] NOT NULL);
CREATE FUNCTION public.is_document(t text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	PERFORM t::json;
	RETURN ltrim(t, E' \t\r\n') ~ '^[{[]';
EXCEPTION WHEN invalid_text_representation THEN
	RETURN false;
END $$;`

// writerSettings are those that the records are promised in.
var writerSettings = map[string]string{
	"datestyle": "ISO, MDY", "intervalstyle": "postgres", "timezone": "UTC", "bytea_output": "hex", "extra_float_digits": "1",
}

// oddSettings of the database must not show in any record.
var oddSettings = []string{
	"datestyle = 'German, DMY'", "intervalstyle = 'sql_standard'", "timezone = 'Asia/Kolkata'", "bytea_output = 'escape'", "extra_float_digits = -3",
}

// expected is the SELECT of the records of the rows that were inserted.
func (t *table) expected() string {
	names, headers := t.expectedHeaders()
	return fmt.Sprintf("SELECT %d, a.topic, a.key, v.value, %s, %s, a.id, %s, %s FROM i %s",
		t.number, t.part(partitionRole, "%s::int", "NULL::int"), t.part(timestampRole, "floor(extract(epoch FROM %s) * 1000)::bigint", "NULL::bigint"),
		names, headers, t.laterals())
}

// laterals are the parts that others are made of.
func (t *table) laterals() string {
	return fmt.Sprintf(`
		CROSS JOIN LATERAL (SELECT %s AS topic, %s AS key, %s AS id) a
		CROSS JOIN LATERAL (SELECT %s AS plain) p
		CROSS JOIN LATERAL (SELECT %s AS value) v`,
		t.expectedTopic(), t.expectedKey(), t.bytesOf(idRole), t.expectedPlain(), t.expectedValue())
}

// in a row that was inserted.
func (c *column) in() string { return "i." + c.quoted() }

// text is col::text; but of xml it is what its own output is.
func (c *column) text() string {
	if c.base == "xml" {
		return fmt.Sprintf("CASE WHEN %[1]s IS NOT NULL THEN format('%%s', %[1]s) END", c.in())
	}
	return c.in() + "::text"
}

// bytes is what a column is in a record.
func (c *column) bytes() string {
	if c.base == "bytea" {
		return c.in() + "::bytea"
	}
	return utf8Of(c.text())
}

func utf8Of(text string) string { return "convert_to(" + text + ", 'UTF8')" }

// json is a column as a value of JSON. form is that of envelope-payload.
func (c *column) json(form string) string {
	text := c.text()
	quoted := "to_json(" + text + ")::text"
	if form == "string" { // as Connect writes it
		quoted = "replace(" + quoted + `, '😀', '\uD83D\uDE00')`
	}
	switch c.base {
	case "bytea":
		quoted = fmt.Sprintf(`'"' || replace(encode(%s::bytea, 'base64'), E'\n', '') || '"'`, c.in())
	case "bool":
		quoted = text
	case "int2", "int4", "int8", "float4", "float8", "numeric":
		quoted = fmt.Sprintf("CASE WHEN %[1]s ~ '[0-9]$' THEN %[1]s ELSE to_json(%[1]s)::text END", text)
	case "json", "jsonb":
		if form != "string" {
			quoted = text
		}
	case "text", "varchar", "char", "bpchar", "name", "public.citext":
		if form == "json" {
			quoted = fmt.Sprintf("CASE WHEN public.is_document(%[1]s) THEN %[1]s ELSE %[2]s END", text, quoted)
		}
	}
	return "coalesce(" + quoted + ", 'null')"
}

// formatted by one of the format settings.
func (c *column) formatted(format string) string {
	if format == "json" {
		return utf8Of(c.json("string"))
	}
	return c.bytes()
}

func (t *table) part(r role, format, none string) string {
	c := t.find(r)
	if c == nil {
		return none
	}
	return fmt.Sprintf(format, c.in())
}

func (t *table) bytesOf(r role) string {
	if c := t.find(r); c != nil {
		return c.bytes()
	}
	return "NULL::bytea"
}

// template is a setting's text with the columns in it; NULL when one is.
func (t *table) template(text []piece) string {
	words := make([]string, 0, 2*len(text))
	for _, p := range text {
		words = append(words, pgtypes.Literal(p.text))
		if p.column != "" {
			words = append(words, t.named(p.column).text())
		}
	}
	return "(" + strings.Join(words, " || ") + ")"
}

func (t *table) expectedTopic() string {
	topic := pgtypes.Literal(t.fixedTopic)
	switch {
	case t.pattern != nil:
		topic = t.template(t.pattern)
	case t.route != nil:
		topic = "CASE " + t.find(routeRole).text()
		for _, pair := range t.route.topics {
			topic += " WHEN " + pgtypes.Literal(pair[0]) + " THEN " + pgtypes.Literal(pair[1])
		}
		topic += " END"
	}
	if c := t.find(topicRole); c != nil {
		return "coalesce(" + c.text() + ", " + topic + ")"
	}
	return topic
}

func (t *table) expectedKey() string {
	c, none := t.find(keyRole), "NULL::bytea"
	switch {
	case t.fallbackKey != "":
		none = utf8Of(pgtypes.Literal(t.fallbackKey))
	case t.keyFormat == "json":
		none = "'null'::bytea"
	}
	if c == nil {
		return none
	}
	return "CASE WHEN " + c.bytes() + " IS NULL THEN " + none + " ELSE " + c.formatted(t.keyFormat) + " END"
}

// expectedPlain is the value's bytes; NULL when it is NULL or counts as such.
func (t *table) expectedPlain() string {
	c := t.find(valueRole)
	blank := "false"
	switch {
	case t.tombstone != "on-empty" && t.tombstone != "on-blank":
	case c.base == "bytea" && t.tombstone == "on-empty":
		blank = "length(" + c.in() + "::bytea) = 0"
	case c.base != "bytea":
		blank = c.text() + ` ~ '^[\x01- ]*$'`
	}
	// Of a composite IS NULL is true when its members are.
	return "CASE WHEN NOT coalesce(" + blank + ", false) THEN " + c.bytes() + " END"
}

func (t *table) isTombstone() string {
	if t.tombstone == "never" {
		return "false"
	}
	return "p.plain IS NULL"
}

func (t *table) expectedValue() string {
	c := t.find(valueRole)
	value := "p.plain"
	switch {
	case t.cloud != nil && t.cloud.structured:
		value = utf8Of(t.structured())
	case t.envelope != nil:
		form := ""
		if t.payload == "string" {
			form = t.payload
		}
		object := `'{"payload":' || ` + c.json(t.payload)
		for n, name := range t.envelope {
			object += fmt.Sprintf(` || ',"e%d":' || `, n) + t.named(name).json(form)
		}
		value = utf8Of(object + ` || '}'`)
	case t.valueFormat == "json":
		value = utf8Of(c.json("string"))
	}
	return "CASE WHEN " + t.isTombstone() + " THEN NULL ELSE " + value + " END"
}
