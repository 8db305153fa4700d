package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// shape is how a table's rows become records, beside the columns that are one
// part each. What is empty has no setting.
type shape struct {
	fixedTopic  string
	pattern     []piece
	route       *route
	fallbackKey string // of rows whose key is NULL
	tombstone   string
	headers     []string // columns, in the order of the settings
	idHeader    string
	derived     bool // an idempotency key for rows without one
	idempotency string
	envelope    []string // columns
	payload     string
	cloud       *cloud

	keyFormat, valueFormat, headerFormat string
}

// piece of a text with columns in it: a text, then a column's value.
type piece struct{ text, column string }

func settingOf(text []piece) (all string) {
	for _, p := range text {
		all += p.text
		if p.column != "" {
			all += "{" + p.column + "}"
		}
	}
	return all
}

// cloud makes CloudEvents of the records.
type cloud struct {
	structured  bool
	contentType string
	attributes  []attribute // as they are written
}

// attribute of a CloudEvent. Those without a setting are extensions.
type attribute struct {
	setting, name string
	text          []piece
}

// route makes a topic of a column. What comes of its values is written down here,
// and not computed: it is what Java's RegexRouter makes of them.
type route struct {
	regex, replacement string
	topics             [][2]string // value, topic
}

// routes: every topic that comes of them has base in its name.
func routes(base string) []route {
	same := func(value string) [2]string { return [2]string{value, value} }
	return []route{
		{"", "", [][2]string{{base + ".order", "outbox.event." + base + ".order"}, {base, "outbox.event." + base}}},
		{`(.*)\.T([0-9])`, `$1.R$2`, [][2]string{{base + ".T1", base + ".R1"}, same(base + ".T23"), same(base + ".t1")}},
		// The whole of the value is matched first; then what is replaced is looked for anew.
		{
			`(?<head>[a-z0-9_]+)\.(?:x|xy)`, `${head}.Z`,
			[][2]string{{base + ".x", base + ".Z"}, {base + ".xy", base + ".Zy"}, same(base + ".xyz")},
		},
		{`.*\.Order(.+)`, base + `.orders.$1`, [][2]string{{"com.acme.OrderPaid", base + ".orders.Paid"}, {"x.Order.Order.y", base + ".orders..y"}}},
		{`(\w+)\.(opt)?end`, `$1.e$2`, [][2]string{{base + ".end", base + ".e"}, {base + ".optend", base + ".eopt"}}},
	}
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// drawShape says what becomes of the columns that are drawn, and draws more.
func (d *draft) drawShape(base string) {
	r := d.rand
	d.keyFormat, d.headerFormat = oneOf(r, "", "", "json"), oneOf(r, "", "", "json")
	d.valueFormat = oneOf(r, "", "", "", "json")
	d.tombstone = oneOf(r, "", "on-null", "on-empty", "on-blank", "never")
	d.drawTopic(base)
	switch r.IntN(4) {
	case 0:
		d.drawCloud()
	case 1:
		d.valueFormat = ""
		d.payload = oneOf(r, "", "auto", "json", "string")
		for range 1 + r.IntN(3) {
			d.envelope = append(d.envelope, d.anything(envelopeRole).name)
		}
	}
	if d.tombstone == "never" && d.valueFormat == "" && d.envelope == nil && (d.cloud == nil || !d.cloud.structured) {
		d.find(valueRole).required = true
	}
	if r.IntN(2) == 0 {
		d.one(spreadForms(d.binary), spreadRole)
	}
	if r.IntN(4) == 0 {
		d.one(texts(d.binary, traceparent, ""), traceRole).name = "traceparent"
	}
	d.drawIdempotency()
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (d *draft) drawTopic(base string) {
	switch r := d.rand; r.IntN(4) {
	case 0:
		d.pattern = []piece{{base + ".P.", d.fit(fitTypes, patternRole)}}
		if r.IntN(2) == 0 {
			d.pattern = append(d.pattern, piece{"_", d.fit(fitTypes[:2], patternRole)})
		}
		if r.IntN(2) == 0 {
			d.pattern = append(d.pattern, piece{text: ".end"})
		}
	case 1:
		one := oneOf(r, routes(base)...)
		var values []string
		for _, pair := range one.topics {
			values = append(values, pair[0])
		}
		c := d.one(texts(d.binary, values...), routeRole)
		c.required = true
		d.route = &one
	}
}

// drawCloud: an attribute that must be there comes of columns that always are.
func (d *draft) drawCloud() {
	r := d.rand
	c := &cloud{structured: r.IntN(2) == 0, contentType: oneOf(r, "", "", "text/csv")}
	d.cloud = c
	if id := d.find(idRole); id != nil { // fit to be the event's
		id.columnType, id.as, id.required = fitTypes[0], fitTypes, true
	}
	source, kind := []piece{{text: "/fuzz"}}, []piece{{text: "made"}}
	if r.IntN(2) == 0 {
		source = []piece{{"/fuzz/", d.fit(fitTypes, ceRole)}, {text: "/x"}}
	}
	if r.IntN(2) == 0 {
		kind = []piece{{"", d.fit(fitTypes, ceRole)}}
	}
	c.attributes = []attribute{{"ce-source", "source", source}, {"ce-type", "type", kind}}
	free := func() string {
		all := fitTypes
		if !d.binary {
			all = attributeTypes
		}
		return d.plain(all, ceRole).name
	}
	if r.IntN(2) == 0 {
		c.attributes = append(c.attributes, attribute{"ce-subject", "subject", []piece{{"", free()}}})
	}
	if r.IntN(3) == 0 {
		c.attributes = append(c.attributes, attribute{"ce-dataschema", "dataschema", []piece{{"https://example.com/", d.fit(fitTypes, ceRole)}}})
	}
	for i := range r.IntN(3) {
		c.attributes = append(c.attributes, attribute{"", fmt.Sprintf("x%d", i), []piece{{"v ", free()}, {" and ", free()}}})
	}
}

// drawIdempotency: a derived key needs an event id.
func (d *draft) drawIdempotency() {
	id := d.find(idRole)
	if id != nil && d.rand.IntN(3) == 0 {
		d.idHeader = "the id"
	}
	if d.rand.IntN(3) > 0 {
		return
	}
	d.idempotency = oneOf(d.rand, "idempotency-key", "once")
	if id != nil && d.rand.IntN(2) == 0 {
		id.required, d.derived = true, true
	}
	if !d.derived || d.rand.IntN(2) == 0 {
		d.anything(idempotencyRole)
	}
}

// settings of the shape.
func (s *shape) settings() map[string]any {
	all := map[string]any{}
	for name, value := range map[string]string{
		"topic-pattern": settingOf(s.pattern), "key": s.fallbackKey, "tombstone": s.tombstone, "id-header": s.idHeader, "envelope-payload": s.payload,
		"key-format": s.keyFormat, "value-format": s.valueFormat, "header-format": s.headerFormat,
	} {
		if value != "" {
			all[name] = value
		}
	}
	switch {
	case s.route != nil && s.route.regex != "":
		all["route-regex"], all["route-replacement"] = s.route.regex, s.route.replacement
	case s.route == nil && s.pattern == nil:
		all["topic"] = s.fixedTopic
	}
	if s.derived {
		all["idempotency-key"] = "derived"
	}
	if s.idempotency != "" && s.idempotency != "idempotency-key" {
		all["idempotency-header"] = s.idempotency
	}
	for setting, columns := range map[string][]string{"header-columns": s.headers, "envelope-columns": s.envelope} {
		for i, name := range columns {
			before, _ := all[setting].([]string)
			all[setting] = append(before, fmt.Sprintf("%c%d=%s", setting[0], i, name))
		}
	}
	if s.cloud != nil {
		maps.Copy(all, s.cloud.settings())
	}
	return all
}

func (c *cloud) settings() map[string]any {
	all := map[string]any{"envelope": "cloudevents-binary"}
	if c.structured {
		all["envelope"] = "cloudevents-structured"
	}
	if c.contentType != "" {
		all["ce-datacontenttype"] = c.contentType
	}
	var extensions []string
	for _, a := range c.attributes {
		if a.setting == "" {
			extensions = append(extensions, a.name+"="+settingOf(a.text))
		} else {
			all[a.setting] = settingOf(a.text)
		}
	}
	if extensions != nil {
		all["ce-extensions"] = extensions
	}
	return all
}

// templated: its name can stand in braces in a setting.
func templated(name string) bool { return !strings.ContainsAny(name, "{}") }
