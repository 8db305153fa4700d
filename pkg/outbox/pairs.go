package outbox

import (
	"bytes"
	"errors"
	"strings"
)

var (
	errHstore    = errors.New("headers are not a well-formed hstore")
	errArray     = errors.New("headers are not a well-formed array")
	errPairs     = errors.New("headers are no pairs: an array alternates names and values, or holds arrays of the two")
	errNoName    = errors.New("headers hold a name that is NULL")
	arrayNull    = []byte("NULL")
	hstoreArrow  = []byte("=>")
	hstoreSpaces = ", "
)

// spreadColumn appends the headers that a column holds, in whichever form.
func (m *Mapping) spreadColumn(text []byte, form spreadForm, e *Event) (traced bool, err error) {
	if form == spreadUnknown { // a type made since the session began
		form = spreadHstore
		if len(text) > 0 && text[0] == '{' {
			form = spreadJSON
		}
	}
	switch form {
	case spreadHstore:
		return m.spreadHstore(text, e)
	case spreadPairs:
		return m.spreadPairs(text, e)
	default:
		return m.spread(text, e)
	}
}

// appendHeader takes a header of the row, unless its name is one of our own.
func (m *Mapping) appendHeader(name, value []byte, e *Event) (trace bool) {
	key := m.names.of(name)
	if strings.HasPrefix(key, reservedPrefix) || m.inCloudEvent() && isCloudHeader(key) {
		m.ReservedHeaders++
		return false
	}
	e.Headers = append(e.Headers, Header{key, value})
	return key == HeaderTrace
}

// spreadHstore reads what hstore prints: "name"=>"value", "name"=>NULL.
func (m *Mapping) spreadHstore(text []byte, e *Event) (traced bool, err error) {
	for {
		text = bytes.TrimLeft(text, hstoreSpaces)
		if len(text) == 0 {
			return traced, nil
		}
		var name, value []byte
		if name, text, err = m.quoted(text, errHstore); err != nil {
			return traced, err
		}
		var found bool
		if text, found = bytes.CutPrefix(text, hstoreArrow); !found {
			return traced, errHstore
		}
		if rest, null := bytes.CutPrefix(text, arrayNull); null {
			text = rest
		} else if value, text, err = m.quoted(text, errHstore); err != nil {
			return traced, err
		}
		traced = m.appendHeader(name, value, e) || traced
	}
}

// spreadPairs reads a text[] of names and values in turn, or of arrays of two.
// https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
func (m *Mapping) spreadPairs(text []byte, e *Event) (traced bool, err error) {
	if len(text) > 0 && text[0] == '[' { // the bounds of one that does not begin at 1
		_, text, _ = bytes.Cut(text, []byte("="))
	}
	var name []byte
	depth, inner := 0, 0 // inner: elements since the last {
	haveName := false
	for len(text) > 0 {
		switch text[0] {
		case '{':
			depth++
			inner = 0
			text = text[1:]
			continue
		case '}':
			if depth == 2 && inner != 2 || haveName {
				return traced, errPairs
			}
			depth--
			text = text[1:]
			continue
		case ',':
			text = text[1:]
			continue
		}
		var element []byte
		if element, text, err = m.element(text); err != nil {
			return traced, err
		}
		inner++
		switch {
		case haveName:
			traced = m.appendHeader(name, element, e) || traced
			haveName = false
		case element == nil:
			return traced, errNoName
		default:
			name, haveName = element, true
		}
	}
	if depth != 0 || haveName {
		return traced, errArray
	}
	return traced, nil
}

// element of an array: nil for NULL.
func (m *Mapping) element(text []byte) (element, rest []byte, err error) {
	if text[0] == '"' {
		return m.quoted(text, errArray)
	}
	end := bytes.IndexAny(text, ",}")
	if end <= 0 {
		return nil, nil, errArray
	}
	element, rest = text[:end:end], text[end:]
	if bytes.EqualFold(element, arrayNull) {
		return nil, rest, nil
	}
	return m.unslash(element), rest, nil
}

// quoted reads a text in double quotes.
func (m *Mapping) quoted(text []byte, malformed error) (inside, rest []byte, err error) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, malformed
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return m.unslash(text[1:i:i]), text[i+1:], nil
		}
	}
	return nil, nil, malformed
}

// unslash takes the backslashes away that keep the characters behind them.
func (m *Mapping) unslash(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	start := len(m.scratch)
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+1 < len(raw) {
			i++
		}
		m.scratch = append(m.scratch, raw[i])
	}
	return since(m.scratch, start)
}
