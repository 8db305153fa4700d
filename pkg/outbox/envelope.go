package outbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// envelopeField holds the value in an envelope, as in Debezium's.
const envelopeField = "payload"

var errNotUTF8 = errors.New("is not UTF-8, which JSON is written in")

// fillEnvelope makes the value an object of the value column and others.
func (r *rowMapper) fillEnvelope(e *Event) error {
	t := r.plan.table
	form := EnvelopeAuto // of the fields; what json says is of the payload
	if t.payload == EnvelopeString {
		form = EnvelopeString
	}
	if cap(r.envelope) > scratchKept {
		r.Mapping.envelope = nil
	}
	out := append(r.envelope[:0], `{"`+envelopeField+`":`...)
	at := r.plan.column(t.single[partValue])
	out, err := r.appendValue(out, e.Value, at, t.payload)
	if err != nil {
		return r.bad(at, err)
	}
	for _, field := range t.envelope {
		at := r.plan.column(field.at)
		if at < 0 {
			continue
		}
		text, err := r.value(at)
		if err != nil {
			return err
		}
		out = append(out, ',')
		if out, err = appendString(out, []byte(field.name), false); err == nil {
			out = append(out, ':')
			out, err = r.appendValue(out, text, at, form)
		}
		if err != nil {
			return r.bad(at, err)
		}
	}
	r.Mapping.envelope = append(out, '}')
	e.Value = r.envelope
	return nil
}

// appendValue writes a column's value as JSON: what is JSON stands as it is,
// numbers and bools as such, bytea in base64, all else as a string.
func (r *rowMapper) appendValue(out, text []byte, at int, form string) ([]byte, error) {
	oid := r.plan.types[at]
	switch {
	case text == nil:
		return append(out, "null"...), nil
	case oid == oidBytea:
		out = append(out, '"')
		return append(base64.StdEncoding.AppendEncode(out, text), '"'), nil
	case oid == oidBool, isNumber(oid) && isFinite(text):
		return append(out, text...), nil
	case isJSON(oid) && form != EnvelopeString, form == EnvelopeJSON && r.plan.textual[at] && isJSONText(text):
		return append(out, text...), nil
	}
	return appendString(out, text, form == EnvelopeString)
}

// formatted is a column's value in a format.
func (r *rowMapper) formatted(text []byte, at int, format string) ([]byte, error) {
	if format != FormatJSON {
		return text, nil
	}
	start := len(r.scratch)
	out, err := r.appendValue(r.scratch, text, at, EnvelopeString)
	if err != nil {
		return nil, r.bad(at, err)
	}
	r.scratch = out
	return since(out, start), nil
}

func isNumber(oid uint32) bool {
	return isInt(oid) || oid == oidFloat4 || oid == oidFloat8 || oid == oidNumeric
}

// isFinite: NaN and Infinity are no numbers of JSON.
func isFinite(text []byte) bool {
	last := text[len(text)-1]
	return last >= '0' && last <= '9'
}

// isJSONText: an object or an array. A text that is only a number or a word was
// hardly meant as JSON.
func isJSONText(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid(text)
}

// appendString writes a JSON string; with pairs, characters beyond U+FFFF are two
// escapes, as Jackson, Connect's writer, has them.
func appendString(out, text []byte, pairs bool) ([]byte, error) {
	if !utf8.Valid(text) {
		return out, errNotUTF8
	}
	const digits = "0123456789ABCDEF"
	out = append(out, '"')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case pairs && c >= 0xF0: // the first of four bytes
			char, size := utf8.DecodeRune(text[i:])
			high, low := utf16.EncodeRune(char)
			out = fmt.Appendf(out, `\u%04X\u%04X`, high, low)
			i += size - 1
		case c >= ' ':
			out = append(out, c)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c == '\b':
			out = append(out, `\b`...)
		case c == '\f':
			out = append(out, `\f`...)
		default:
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(out, '"'), nil
}
