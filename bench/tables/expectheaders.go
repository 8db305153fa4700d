package main

import (
	"fmt"
	"strings"

	"github.com/walstream/walstream/internal/pgtypes"
)

// expectedHeader is one that a record has when the condition holds, in SQL.
type expectedHeader struct{ name, value, when string }

// expectedHeaders are the names and the values of the headers behind walstream's
// own.
func (t *table) expectedHeaders() (names, values string) {
	var list []expectedHeader
	always := func(name, value string) { list = append(list, expectedHeader{pgtypes.Literal(name), value, ""}) }
	if t.idHeader != "" {
		always(t.idHeader, t.find(idRole).formatted(t.headerFormat))
	}
	for n, name := range t.headers {
		always(fmt.Sprintf("h%d", n), t.named(name).formatted(t.headerFormat))
	}
	always("table", fmt.Sprintf("'%d'::bytea", t.number))
	if t.idempotency != "" {
		list = append(list, t.idempotencyHeader())
	}
	spreadNames, spreadValues := "'{}'::text[]", "'{}'::bytea[]"
	if c := t.find(spreadRole); c != nil {
		spreadNames, spreadValues = c.spread(t.cloud != nil)
	}
	names, values = join(list, "text", expectedHeader.inNames), join(list, "bytea", expectedHeader.inValues)
	names, values = names+" || "+spreadNames, values+" || "+spreadValues
	list = nil
	if c := t.find(traceRole); c != nil {
		list = append(list, expectedHeader{"'traceparent'", c.bytes(), c.in() + " IS NOT NULL AND array_position(" + spreadNames + ", 'traceparent') IS NULL"})
	}
	if t.cloud != nil {
		list = append(list, t.cloudHeaders()...)
	}
	if list == nil {
		return names, values
	}
	return names + " || " + join(list, "text", expectedHeader.inNames), values + " || " + join(list, "bytea", expectedHeader.inValues)
}

func (h expectedHeader) inNames() string  { return h.name }
func (h expectedHeader) inValues() string { return h.value }

func join(list []expectedHeader, kind string, of func(expectedHeader) string) string {
	words := make([]string, len(list))
	for i, h := range list {
		words[i] = fmt.Sprintf("ARRAY[%s]::%s[]", of(h), kind)
		if h.when != "" {
			words[i] = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '{}' END", h.when, words[i])
		}
	}
	return strings.Join(words, " || ")
}

func (t *table) idempotencyHeader() expectedHeader {
	h := expectedHeader{name: pgtypes.Literal(t.idempotency), value: t.bytesOf(idempotencyRole)}
	if t.derived {
		h.value = "coalesce(" + h.value + ", convert_to(encode(sha256(a.id || '|'::bytea || " + utf8Of("a.topic") +
			" || '|'::bytea || coalesce(a.key, ''::bytea)), 'hex'), 'UTF8'))"
		return h
	}
	h.when = h.value + " IS NOT NULL"
	return h
}

// spread is a column of headers: names and values, those that are walstream's own
// or the CloudEvent's left out.
func (c *column) spread(cloud bool) (names, values string) {
	var members string
	switch c.base {
	case "public.hstore":
		members = "SELECT k, v, o FROM public.each(" + c.in() + "::public.hstore) WITH ORDINALITY s(k, v, o)"
	case pairs:
		all := "unnest(" + c.in() + "::text[]) WITH ORDINALITY"
		members = "SELECT n.e AS k, m.e AS v, n.o FROM " + all + " n(e, o) JOIN " + all + " m(e, o) ON m.o = n.o + 1 WHERE n.o % 2 = 1"
	default:
		members = "SELECT k, CASE json_typeof(v) WHEN 'null' THEN NULL WHEN 'string' THEN v #>> '{}' ELSE v::text END AS v, o FROM json_each(" +
			c.text() + "::json) WITH ORDINALITY s(k, v, o)"
	}
	where := "k NOT LIKE 'walstream-%'"
	if cloud {
		where += ` AND lower(k) <> 'content-type' AND lower(k) NOT LIKE 'ce\_%'`
	}
	const all = "(SELECT coalesce(array_agg(%s ORDER BY o), '{}') FROM (%s) s WHERE %s)"
	return fmt.Sprintf(all, "k", members, where), fmt.Sprintf(all, utf8Of("v"), members, where)
}

// eventID and eventTime as texts.
func (t *table) eventID() string {
	return "coalesce(convert_from(a.id, 'UTF8'), " + pgtypes.Literal(positionHere) + ")"
}

func (t *table) eventTime() string {
	c := t.find(timestampRole)
	if c == nil {
		return pgtypes.Literal(timeHere)
	}
	return fmt.Sprintf(`coalesce(rtrim(rtrim(to_char(%s::timestamp, 'YYYY-MM-DD"T"HH24:MI:SS.US'), '0'), '.') || 'Z', %s)`, c.in(), pgtypes.Literal(timeHere))
}

// contentType of the data.
func (t *table) contentType() string {
	base := t.find(valueRole).base
	switch {
	case t.cloud.contentType != "":
		return t.cloud.contentType
	case base == "json" || base == "jsonb" || t.valueFormat == "json":
		return "application/json"
	case base == "bytea":
		return "application/octet-stream"
	}
	return "text/plain"
}

// cloudHeaders of a CloudEvent: all in binary mode, in structured mode what it is.
func (t *table) cloudHeaders() (list []expectedHeader) {
	always := func(name, text string) { list = append(list, expectedHeader{pgtypes.Literal(name), utf8Of(text), ""}) }
	if t.cloud.structured {
		return []expectedHeader{{"'content-type'", "'application/cloudevents+json; charset=UTF-8'::bytea", "NOT (" + t.isTombstone() + ")"}}
	}
	always("ce_specversion", "'1.0'")
	always("ce_id", t.eventID())
	always("ce_time", t.eventTime())
	for _, a := range t.cloud.attributes {
		text := t.template(a.text)
		list = append(list, expectedHeader{pgtypes.Literal("ce_" + a.name), utf8Of(text), text + " <> ''"})
	}
	return append(list, expectedHeader{"'content-type'", utf8Of(pgtypes.Literal(t.contentType())), "v.value IS NOT NULL"})
}

// structured is a CloudEvent in its JSON format.
func (t *table) structured() string {
	quoted := func(text string) string { return "to_json((" + text + ")::text)::text" }
	event := `'{"specversion":"1.0","id":' || ` + quoted(t.eventID()) + ` || ',"time":' || ` + quoted(t.eventTime())
	for _, a := range t.cloud.attributes {
		event += fmt.Sprintf(` || coalesce(',"%s":' || %s, '')`, a.name, quoted("nullif("+t.template(a.text)+", '')"))
	}
	c := t.find(valueRole)
	data := c.text()
	if t.valueFormat == "json" {
		data = c.json("string")
	}
	member := `',"data":' || `
	switch {
	case t.contentType() == "application/json":
		member += data
	case c.base == "bytea" && t.valueFormat != "json":
		member = `',"data_base64":' || ` + c.json("")
	default:
		member += quoted(data)
	}
	return event + ` || CASE WHEN p.plain IS NULL THEN '' ELSE ',"datacontenttype":"` + t.contentType() + `"' || ` + member + ` END || '}'`
}
