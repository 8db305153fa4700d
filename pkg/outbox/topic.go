package outbox

import (
	"errors"
	"fmt"
	"slices"
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
	parts, err := parseTemplate("topic-pattern", pattern)
	if err == nil && (len(parts) == 0 || parts[0].column == "") {
		err = fmt.Errorf("topic-pattern %q has no {column}: for one topic use topic", pattern)
	}
	if err != nil {
		return nil, err
	}
	return parts, nil
}

// parseTemplate reads a setting's text with any number of {column} in it.
func parseTemplate(setting, pattern string) ([]patternPart, error) {
	var parts []patternPart
	rest := pattern
	for {
		text, after, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return nil, fmt.Errorf("%s %q: } without {", setting, pattern)
		}
		if !found {
			if text != "" {
				parts = append(parts, patternPart{text: text})
			}
			break
		}
		column, next, closed := strings.Cut(after, "}")
		if !closed || column == "" || strings.Contains(column, "{") {
			return nil, fmt.Errorf("%s %q: a placeholder is {column}", setting, pattern)
		}
		parts = append(parts, patternPart{text: text, column: column})
		rest = next
	}
	return parts, nil
}

// MaxTopicName is Kafka's: a topic is a directory name with a suffix.
const MaxTopicName = 249

// ownTopics of walstream begin so: a row in one would be read as its bookkeeping.
var ownTopics = []string{"walstream.checkpoints.", "walstream.history.", "walstream.dead-letters.", "walstream.control."}

// CheckTopic refuses, before any broker is asked, a name that Kafka would refuse, or
// that must not be written from a row. Case is kept.
func CheckTopic(name string) error {
	switch {
	case name == "":
		return errors.New("the topic name is empty: check the topic column or pattern")
	case name == "." || name == "..":
		return fmt.Errorf("the topic name %q is not allowed by kafka", name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("the topic name has %d bytes, kafka allows %d", len(name), MaxTopicName)
	case strings.HasPrefix(name, "__"):
		return errors.New("topics beginning with __ are kafka's own")
	case slices.ContainsFunc(ownTopics, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		return errors.New("the topic is walstream's own bookkeeping")
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("the topic name holds %q: kafka allows ASCII letters, digits and ._-", name)
		}
	}
	return nil
}

// interner gives equal byte strings one string, so that a name that comes back
// costs no memory. It is emptied when it is full, which bounds it.
type interner struct{ names map[string]string }

const (
	internerNames  = 4096
	internerLength = 255 // a topic name has at most MaxTopicName bytes
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
