package outbox

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// fillTrace passes the row's trace context on. It is a bare traceparent, or the
// properties that Debezium's outbox extensions write (java.util.Properties:
// traceparent=..., tracestate=..., a line each), of which each becomes a header.
func (r *rowMapper) fillTrace(e *Event, traced bool) (bool, error) {
	context, err := r.part(partTraceContext)
	if err != nil || len(context) == 0 {
		return traced, err
	}
	if !bytes.ContainsAny(context, "=:\n") {
		if !traced {
			e.Headers = append(e.Headers, Header{HeaderTrace, context})
		}
		return true, nil
	}
	there := traced
	for line := range logicalLines(context) {
		name, value := splitProperty(line)
		name, value = r.unescapeProperty(name), r.unescapeProperty(value)
		if len(name) > 0 && (!there || string(name) != HeaderTrace) {
			traced = r.appendHeader(name, value, e) || traced
		}
	}
	return traced, nil
}

// logicalLines of properties: without blank ones and comments. (A \ at the end
// of a line joins the next; nothing that writes a trace context breaks lines, so
// it is taken as an escape of nothing.)
func logicalLines(text []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for line := range bytes.FieldsFuncSeq(text, func(c rune) bool { return c == '\n' || c == '\r' }) {
			line = bytes.TrimLeft(line, " \t\f")
			if len(line) == 0 || line[0] == '#' || line[0] == '!' {
				continue
			}
			if !yield(line) {
				return
			}
		}
	}
}

// splitProperty: the name ends at the first =, : or blank that no \ precedes.
func splitProperty(line []byte) (name, value []byte) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if bytes.IndexByte([]byte("=: \t\f"), line[i]) >= 0 {
			end = i
			break
		}
	}
	name, value = line[:end:end], bytes.TrimLeft(line[end:], " \t\f")
	if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
		value = bytes.TrimLeft(value[1:], " \t\f")
	}
	return name, notNil(value)
}

func (m *Mapping) unescapeProperty(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	start := len(m.scratch)
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			m.scratch = append(m.scratch, raw[i])
			continue
		}
		if c, ok := hexEscape(raw[i:]); ok {
			i += len(`\u0000`) - 1
			if low, ok := hexEscape(raw[min(i+1, len(raw)):]); ok && utf16.IsSurrogate(c) {
				c = utf16.DecodeRune(c, low)
				i += len(`\u0000`)
			}
			m.scratch = utf8.AppendRune(m.scratch, c)
			continue
		}
		i++
		c := raw[i]
		if at := bytes.IndexByte([]byte("tnrf"), c); at >= 0 {
			c = "\t\n\r\f"[at]
		}
		m.scratch = append(m.scratch, c)
	}
	return since(m.scratch, start)
}
