package outbox

import (
	"fmt"
	"strings"
)

// patternPart is a piece of a topic pattern: a text, then a column's value. The
// last part may be without a column.
type patternPart struct {
	text   string
	column string
}

// parsePattern reads "outbox.event.{aggregate_type}". Topic names hold no
// braces, so there is nothing to escape.
func parsePattern(pattern string) ([]patternPart, error) {
	var parts []patternPart
	rest := pattern
	for {
		text, after, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return nil, fmt.Errorf("topic-pattern %q: } without {", pattern)
		}
		if !found {
			if text != "" {
				parts = append(parts, patternPart{text: text})
			}
			break
		}
		column, next, closed := strings.Cut(after, "}")
		if !closed || column == "" || strings.Contains(column, "{") {
			return nil, fmt.Errorf("topic-pattern %q: a placeholder is {column}", pattern)
		}
		parts = append(parts, patternPart{text: text, column: column})
		rest = next
	}
	if len(parts) == 0 || parts[0].column == "" {
		return nil, fmt.Errorf("topic-pattern %q has no {column}: for one topic use topic", pattern)
	}
	return parts, nil
}

// interner gives equal byte strings one string, so that a name that comes back
// costs no memory. It is emptied when it is full, which bounds it.
type interner struct{ names map[string]string }

const (
	internerNames  = 4096
	internerLength = 255 // a topic name has at most 249 bytes
)

func (n *interner) of(b []byte) string {
	if s, ok := n.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(b) > internerLength {
		return s
	}
	if n.names == nil || len(n.names) >= internerNames {
		n.names = make(map[string]string)
	}
	n.names[s] = s
	return s
}
