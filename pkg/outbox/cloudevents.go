package outbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// CloudEvents 1.0 in the binding for Kafka.
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
const (
	headerContentType     = "content-type"
	cloudPrefix           = "ce_"
	structuredContentType = "application/cloudevents+json; charset=UTF-8"
)

// isCloudHeader: in a CloudEvent these names are the binding's own.
func isCloudHeader(name string) bool {
	const n = len(cloudPrefix)
	return strings.EqualFold(name, headerContentType) || len(name) >= n && strings.EqualFold(name[:n], cloudPrefix)
}

// inCloudEvent: the row being mapped becomes one.
func (m *Mapping) inCloudEvent() bool { return m.last != nil && m.last.table.cloud != nil }

// attribute of a CloudEvent that comes from a template.
type attribute struct {
	name, header string // type, ce_type
	text         *template
	required     bool
	kind         attributeKind
}

// attributeKind is what an attribute's text must look like beside being a String.
type attributeKind int

const (
	kindString attributeKind = iota
	kindURIReference
	kindURI
)

// cloudEvent is a table's mapping to CloudEvents.
type cloudEvent struct {
	structured  bool
	attributes  []attribute // in the order they are written, without specversion, id and time
	contentType *template   // nil: by the type of the value column
}

// reservedAttributes are the context attributes of the specification, and data.
var reservedAttributes = []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data"}

func (b *builder) addCloudEvent() {
	c := b.config
	if c.Envelope == "" || c.Envelope == EnvelopeNone {
		for _, s := range []struct{ name, value string }{
			{"ce-source", c.CESource},
			{"ce-type", c.CEType},
			{"ce-subject", c.CESubject},
			{"ce-datacontenttype", c.CEDataContentType},
			{"ce-dataschema", c.CEDataSchema},
			{"ce-extensions", strings.Join(c.CEExtensions, ",")},
		} {
			if s.value != "" {
				b.fault(errors.New(s.name + " has no effect without envelope"))
			}
		}
		return
	}
	if len(c.EnvelopeColumns) > 0 {
		b.fault(errors.New("envelope-columns make an envelope of their own and do not go with envelope " + c.Envelope))
	}
	b.cloud = &cloudEvent{structured: c.Envelope == CloudEventsStructured, contentType: b.template("ce-datacontenttype", c.CEDataContentType)}
	kind, source := c.CEType, c.CESource
	if kind == "" {
		kind = b.shape.eventType
	}
	if kind == "" {
		b.fault(errors.New("ce-type is required: a CloudEvent names the type of what happened, by a constant or a {column}"))
	}
	if source == "" {
		source = "/walstream/" + c.Pipeline
	}
	b.addAttribute("ce-source", "source", source, kindURIReference)
	b.addAttribute("ce-type", "type", kind, kindString)
	b.addAttribute("ce-subject", "subject", c.CESubject, kindString)
	b.addAttribute("ce-dataschema", "dataschema", c.CEDataSchema, kindURI)
	for _, text := range c.CEExtensions {
		name, value, found := strings.Cut(text, "=")
		switch {
		case !found || value == "" || !isAttributeName(name):
			b.fault(fmt.Errorf("ce-extensions: %q is not NAME=TEXT with a name of a-z and 0-9, at most 20", text))
		case slices.Contains(reservedAttributes, name):
			b.fault(fmt.Errorf("ce-extensions: %s is an attribute of the specification, and no extension", name))
		case slices.ContainsFunc(b.cloud.attributes, func(a attribute) bool { return a.name == name }):
			b.fault(fmt.Errorf("ce-extensions: %q is named twice", name))
		default:
			b.addAttribute("ce-extensions", name, value, kindString)
		}
	}
	b.checkCloud()
}

func (b *builder) addAttribute(setting, name, text string, kind attributeKind) {
	if t := b.template(setting, text); t != nil {
		required := name == "source" || name == "type"
		b.cloud.attributes = append(b.cloud.attributes, attribute{name, cloudPrefix + name, t, required, kind})
	}
}

// checkCloud refuses constants that no row could mend, and headers in the way.
func (b *builder) checkCloud() {
	for i := range b.cloud.attributes {
		a := &b.cloud.attributes[i]
		if a.text.fixed == nil {
			continue
		}
		if reason := a.unfit(a.text.fixed); reason != nil {
			b.fault(fmt.Errorf("ce-%s %q: %w", a.name, a.text.fixed, reason))
		}
	}
	if t := b.cloud.contentType; t != nil && t.fixed != nil {
		if reason := unfitContentType(t.fixed); reason != nil {
			b.fault(fmt.Errorf("ce-datacontenttype %q: %w", t.fixed, reason))
		}
	}
	taken := func(setting, name string) {
		if isCloudHeader(name) {
			b.fault(fmt.Errorf("%s: header %q is the CloudEvent's own, and said by a setting that begins with ce-", setting, name))
		}
	}
	for _, h := range b.headers {
		taken("header-columns", h.name)
	}
	for _, h := range b.constants {
		taken("header-constants", h.Key)
	}
	taken("idempotency-header", b.idempotency)
}

func isAttributeName(name string) bool {
	return len(name) >= 1 && len(name) <= 20 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Reasons an attribute is refused.
var (
	errNoAttribute = errors.New("is NULL or empty, and a CloudEvent needs it")
	errControl     = errors.New("holds control characters or is not UTF-8, which no attribute of a CloudEvent may")
	errURI         = errors.New("is no absolute URI, which an attribute of the CloudEvent has to be")
	errURIRef      = errors.New("is no URI reference, which an attribute of the CloudEvent has to be: encode other characters as %XX")
	errContentType = errors.New("is no media type, such as application/json, that a CloudEvent's data could have")
	errNotJSON     = errors.New("is not JSON, as the datacontenttype of the CloudEvent says")
)

// unfit says why text cannot be the attribute.
func (a *attribute) unfit(text []byte) error {
	switch {
	case !isAttributeText(text):
		return errControl
	case a.kind != kindString && !isURIText(text):
		return errURIRef
	case a.kind == kindURI && !hasScheme(text):
		return errURI
	}
	return nil
}

// isAttributeText: a String of the specification's type system.
func isAttributeText(text []byte) bool {
	ascii := true
	for _, c := range text {
		if c < ' ' || c == 0x7F {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if ascii {
		return true
	}
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1, r >= 0x80 && r <= 0x9F, r&0xFFFE == 0xFFFE, r >= 0xFDD0 && r <= 0xFDEF:
			return false
		}
		text = text[size:]
	}
	return true
}

// isURIText: nothing but what RFC 3986 lets stand in a URI.
func isURIText(text []byte) bool {
	for i, c := range text {
		switch {
		case c <= ' ' || c >= 0x7F || strings.IndexByte("\"<>\\^`{|}", c) >= 0:
			return false
		case c == '%' && (len(text) < i+3 || !isHex(text[i+1]) || !isHex(text[i+2])):
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func hasScheme(text []byte) bool {
	for i, c := range text {
		switch letter := c|0x20 >= 'a' && c|0x20 <= 'z'; {
		case c == ':':
			return i > 0
		case !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.'):
			return false
		}
	}
	return false
}

// unfitContentType: of a CloudEvent inside a CloudEvent a reader would see one.
func unfitContentType(text []byte) error {
	slash := bytes.IndexByte(text, '/')
	switch {
	case !isAttributeText(text):
		return errControl
	case slash <= 0 || slash == len(text)-1 || hasPrefixFold(text, "application/cloudevents"):
		return errContentType
	}
	return nil
}

func hasPrefixFold(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(string(text[:len(prefix)]), prefix)
}

// isJSONType: */json or */*+json, whatever its parameters.
func isJSONType(contentType []byte) bool {
	media, _, _ := bytes.Cut(contentType, []byte(";"))
	media = bytes.TrimRight(media, " ")
	if len(media) < len("/json") {
		return false
	}
	end := media[len(media)-len("/json"):]
	return (end[0] == '/' || end[0] == '+') && strings.EqualFold(string(end[1:]), "json")
}

var (
	specVersion       = []byte("1.0")
	structuredHeader  = []byte(structuredContentType)
	contentTypeJSON   = []byte("application/json")
	contentTypeBinary = []byte("application/octet-stream")
	contentTypeText   = []byte("text/plain")
)

// fillCloudEvent makes a CloudEvent of the record: of its headers in binary mode,
// of its value in structured mode, where a tombstone stays one.
func (r *rowMapper) fillCloudEvent(e *Event) error {
	c := r.plan.table.cloud
	if c.structured && e.Value == nil && r.plan.table.tombstone != Never {
		return nil
	}
	id := e.Headers[1].Value // walstream-event-id
	if len(id) == 0 || !isAttributeText(id) {
		return r.badID()
	}
	contentType, err := r.dataContentType(c)
	if err != nil {
		return err
	}
	start := len(r.scratch)
	r.scratch = e.Timestamp.UTC().AppendFormat(r.scratch, time.RFC3339Nano)
	at := since(r.scratch, start)
	if c.structured {
		if err := r.fillStructured(e, id, at, contentType); err != nil {
			return err
		}
		e.Headers = append(e.Headers, Header{headerContentType, structuredHeader})
		return nil
	}
	e.Headers = append(e.Headers, Header{"ce_specversion", specVersion}, Header{"ce_id", id}, Header{"ce_time", at})
	for i := range c.attributes {
		text, err := r.attribute(&c.attributes[i], e)
		if err != nil {
			return err
		}
		if len(text) > 0 {
			e.Headers = append(e.Headers, Header{c.attributes[i].header, text})
		}
	}
	if contentType != nil && e.Value != nil {
		e.Headers = append(e.Headers, Header{headerContentType, contentType})
	}
	return nil
}

func (r *rowMapper) badID() error {
	if at := r.plan.column(r.plan.table.single[partEventID]); at >= 0 {
		return r.bad(at, errNoAttribute)
	}
	panic("walstream: bug: a position that is no text")
}

// attribute is its text, empty when the row has none.
func (r *rowMapper) attribute(a *attribute, e *Event) ([]byte, error) {
	text, null, err := r.fillTemplate(a.text, e.Topic)
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0 && a.required && null >= 0:
		return nil, r.bad(null, errNoAttribute)
	case len(text) == 0 && a.required:
		return nil, r.badTemplate(a.text, errNoAttribute)
	case a.text.fixed != nil: // checked when it was set
		return text, nil
	}
	if reason := a.unfit(text); reason != nil {
		return nil, r.badTemplate(a.text, reason)
	}
	return text, nil
}

// dataContentType is the setting's, else what the value column's type says.
func (r *rowMapper) dataContentType(c *cloudEvent) ([]byte, error) {
	if c.contentType != nil {
		text, _, err := r.fillTemplate(c.contentType, "")
		if err != nil || len(text) == 0 || c.contentType.fixed != nil {
			return text, err
		}
		if reason := unfitContentType(text); reason != nil {
			return nil, r.badTemplate(c.contentType, reason)
		}
		return text, nil
	}
	t := r.plan.table
	switch oid := r.plan.types[r.plan.column(t.single[partValue])]; {
	case isJSON(oid) || t.valueFormat == FormatJSON:
		return contentTypeJSON, nil
	case oid == oidBytea:
		return contentTypeBinary, nil
	}
	return contentTypeText, nil
}

// fillStructured makes the value the event in its JSON format.
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
func (r *rowMapper) fillStructured(e *Event, id, at, contentType []byte) error {
	c := r.plan.table.cloud
	if cap(r.envelope) > scratchKept {
		r.Mapping.envelope = nil
	}
	out, err := appendMember(append(r.envelope[:0], `{"specversion":"1.0"`...), "id", id)
	if err == nil {
		out, err = appendMember(out, "time", at)
	}
	for i := 0; err == nil && i < len(c.attributes); i++ {
		var text []byte
		if text, err = r.attribute(&c.attributes[i], e); err == nil {
			out, err = appendMember(out, c.attributes[i].name, text)
		}
	}
	if err == nil && e.Value != nil {
		if out, err = appendMember(out, "datacontenttype", contentType); err == nil {
			out, err = r.appendData(out, e.Value, contentType)
		}
	}
	if err != nil {
		return err
	}
	r.Mapping.envelope = append(out, '}')
	e.Value = r.envelope
	return nil
}

func appendMember(out []byte, name string, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return out, nil
	}
	out = append(out, `,"`...)
	out = append(out, name...)
	out = append(out, `":`...)
	return appendString(out, text, false)
}

// appendData: JSON as it stands, bytes in base64, other text as a string.
func (r *rowMapper) appendData(out, value, contentType []byte) ([]byte, error) {
	t := r.plan.table
	at := r.plan.column(t.single[partValue])
	oid := r.plan.types[at]
	known := isJSON(oid) || t.valueFormat == FormatJSON
	switch {
	case isJSONType(contentType) && !known && !json.Valid(value):
		return out, r.bad(at, errNotJSON)
	case isJSONType(contentType), contentType == nil && known:
		return append(append(out, `,"data":`...), value...), nil
	case oid == oidBytea && t.valueFormat != FormatJSON:
		out = base64.StdEncoding.AppendEncode(append(out, `,"data_base64":"`...), value)
		return append(out, '"'), nil
	}
	out, err := appendString(append(out, `,"data":`...), value, false)
	if err != nil {
		return out, r.bad(at, err)
	}
	return out, nil
}
