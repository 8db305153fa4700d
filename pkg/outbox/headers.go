package outbox

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Headers that walstream gives every record.
const (
	HeaderPosition = "walstream-position" // decode.Position.Header: sortable, unique within one server history
	HeaderEventID  = "walstream-event-id" // for deduplication; the position where the table has no event id
	HeaderPipeline = "walstream-pipeline"
	HeaderTrace    = "traceparent" // W3C Trace Context; only when the row has it
)

const reservedPrefix = "walstream-"

var (
	errNoObject  = errors.New("headers are not a JSON object")
	errBrokenObj = errors.New("headers are not well-formed JSON")
	errSurrogate = errors.New("headers hold half of a surrogate pair, which is no character")
)

// spread appends the members of a JSON object to the event's headers.
func (m *Mapping) spread(object []byte, e *Event) (traced bool, err error) {
	if string(object) == "{}" {
		return false, nil
	}
	it := members{data: object}
	if err := it.open(); err != nil {
		return false, err
	}
	for {
		name, value, more, err := it.next()
		if err != nil || !more {
			return traced, err
		}
		if name, err = m.unquote(name); err != nil {
			return traced, err
		}
		switch {
		case value[0] == '"':
			if value, err = m.unquote(value[1 : len(value)-1]); err != nil {
				return traced, err
			}
		case string(value) == "null":
			value = nil
		}
		traced = m.appendHeader(name, value, e) || traced
	}
}

// members walks the members of a JSON object that PostgreSQL has found to be
// well-formed: it looks for where each ends, and proves no more than it needs.
// Nesting costs no stack.
type members struct {
	data []byte
	pos  int
	any  bool
}

func (it *members) open() error {
	it.space()
	if it.pos >= len(it.data) || it.data[it.pos] != '{' {
		return errNoObject
	}
	it.pos++
	return nil
}

// next returns a member: the inside of its name's quotes, and its value's text.
func (it *members) next() (name, value []byte, more bool, err error) {
	it.space()
	if it.take('}') {
		if it.space(); it.pos != len(it.data) {
			return nil, nil, false, errBrokenObj
		}
		return nil, nil, false, nil
	}
	if it.any {
		if !it.take(',') {
			return nil, nil, false, errBrokenObj
		}
		it.space()
	}
	it.any = true
	start := it.pos
	if !it.string() {
		return nil, nil, false, errBrokenObj
	}
	name = it.data[start+1 : it.pos-1]
	it.space()
	if !it.take(':') {
		return nil, nil, false, errBrokenObj
	}
	it.space()
	start = it.pos
	if !it.value() {
		return nil, nil, false, errBrokenObj
	}
	return name, it.data[start:it.pos:it.pos], true, nil
}

func (it *members) space() {
	for it.pos < len(it.data) && strings.IndexByte(" \t\r\n", it.data[it.pos]) >= 0 {
		it.pos++
	}
}

func (it *members) take(b byte) bool {
	if it.pos < len(it.data) && it.data[it.pos] == b {
		it.pos++
		return true
	}
	return false
}

// string passes over a string, quotes included.
func (it *members) string() bool {
	if !it.take('"') {
		return false
	}
	for it.pos < len(it.data) {
		switch it.data[it.pos] {
		case '"':
			it.pos++
			return true
		case '\\':
			it.pos++
		}
		it.pos++
	}
	return false
}

// value passes over a value.
func (it *members) value() bool {
	start, depth := it.pos, 0
	for it.pos < len(it.data) {
		switch b := it.data[it.pos]; b {
		case '"':
			if !it.string() {
				return false
			}
		case '{', '[':
			depth++
			it.pos++
		case '}', ']', ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return it.pos > start
			}
			if b == '}' || b == ']' {
				depth--
			}
			it.pos++
		default:
			it.pos++
			continue // inside a number, true, false or null
		}
		if depth == 0 {
			return true
		}
	}
	return false
}

// unquote returns the text of a string's inside: as it stands when it has no
// escapes, else written to scratch.
func (m *Mapping) unquote(raw []byte) ([]byte, error) {
	at := bytes.IndexByte(raw, '\\')
	if at < 0 {
		return raw, nil
	}
	start := len(m.scratch)
	for at >= 0 {
		m.scratch = append(m.scratch, raw[:at]...)
		size, err := m.unescape(raw[at:])
		if err != nil {
			return nil, err
		}
		raw = raw[at+size:]
		at = bytes.IndexByte(raw, '\\')
	}
	m.scratch = append(m.scratch, raw...)
	return since(m.scratch, start), nil
}

// unescape writes the character of the escape that raw begins with, and returns
// the escape's length.
func (m *Mapping) unescape(raw []byte) (size int, err error) {
	if len(raw) < 2 {
		return 0, errBrokenObj
	}
	const codes, characters = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(codes, raw[1]); i >= 0 {
		m.scratch = append(m.scratch, characters[i])
		return 2, nil
	}
	r, ok := hexEscape(raw)
	if !ok {
		return 0, errBrokenObj
	}
	size = 6
	if utf16.IsSurrogate(r) {
		low, ok := hexEscape(raw[6:])
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return 0, errSurrogate
		}
		size = 12
	}
	m.scratch = utf8.AppendRune(m.scratch, r)
	return size, nil
}

// hexEscape reads \uXXXX.
func hexEscape(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, b := range raw[2:6] {
		digit := strings.IndexByte("0123456789abcdef", b|0x20)
		if digit < 0 || b < '0' {
			return 0, false
		}
		r = r<<4 | rune(digit)
	}
	return r, true
}
