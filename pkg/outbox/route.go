package outbox

import (
	"fmt"
	"regexp"
	"strings"
)

// routeSettings make a topic of a column by a regular expression, with the
// semantics of Kafka Connect's RegexRouter, which Debezium's event router uses.
type routeSettings struct{ column, regex, replacement string }

// What Debezium takes when nothing is said; so do we.
const (
	defaultRouteRegex       = `(?<routedByValue>.*)`
	defaultRouteReplacement = `outbox.event.${routedByValue}`
)

// overrideBy: no setting of a route takes the route away, one keeps the others.
func (s *routeSettings) overrideBy(given routeSettings) {
	if given == (routeSettings{}) {
		*s = given
	}
	for _, o := range []struct{ given, word *string }{
		{&given.column, &s.column}, {&given.regex, &s.regex}, {&given.replacement, &s.replacement},
	} {
		if *o.given != "" {
			*o.word = *o.given
		}
	}
}

// route is compiled. Expressions are dear, and values come back: the topics of
// the last ones are kept.
type route struct {
	whole, first *regexp.Regexp
	replacement  []routePart
	topics       map[string]string
}

// routePart is a text, then a group; none is -1.
type routePart struct {
	text  string
	group int
}

func (s *routeSettings) compile() (*route, error) {
	regex, replacement := s.regex, s.replacement
	if regex == "" {
		regex = defaultRouteRegex
	}
	if replacement == "" {
		replacement = defaultRouteReplacement
	}
	if s.column == "" {
		return nil, fmt.Errorf("route-column is not set: it names the column whose value the route makes a topic of")
	}
	r := &route{topics: make(map[string]string)}
	var err error
	if r.first, err = regexp.Compile(regex); err != nil {
		return nil, fmt.Errorf("route-regex %q is no regular expression that walstream knows (RE2: no lookaround, no backreference): %w", regex, err)
	}
	r.whole = regexp.MustCompile(`\A(?:` + regex + `)\z`)
	if r.replacement, err = parseReplacement(replacement, r.first); err != nil {
		return nil, fmt.Errorf("route-replacement %q: %w", replacement, err)
	}
	return r, nil
}

// parseReplacement reads Java's form: $1, ${name}, and \ before a character that
// is meant as it stands.
func parseReplacement(text string, re *regexp.Regexp) ([]routePart, error) {
	var parts []routePart
	var literal strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if i++; i == len(text) {
				return nil, fmt.Errorf(`it ends with a \ that escapes nothing`)
			}
			literal.WriteByte(text[i])
		case '$':
			group, size, err := readGroup(text[i+1:], re)
			if err != nil {
				return nil, err
			}
			i += size
			parts = append(parts, routePart{literal.String(), group})
			literal.Reset()
		default:
			literal.WriteByte(text[i])
		}
	}
	if literal.Len() > 0 {
		parts = append(parts, routePart{literal.String(), -1})
	}
	return parts, nil
}

// readGroup reads what follows a $. Of a number it takes, as Java does, as many
// digits as name a group.
func readGroup(text string, re *regexp.Regexp) (group, size int, err error) {
	if strings.HasPrefix(text, "{") {
		name, _, closed := strings.Cut(text[1:], "}")
		if group = re.SubexpIndex(name); !closed || group < 0 {
			return 0, 0, fmt.Errorf("route-regex has no group named %q: write (?<name>...)", name)
		}
		return group, len("{}") + len(name), nil
	}
	for size < len(text) && text[size] >= '0' && text[size] <= '9' {
		next := group*10 + int(text[size]-'0')
		if next > re.NumSubexp() {
			break
		}
		group = next
		size++
	}
	if size == 0 {
		return 0, 0, fmt.Errorf(`behind a $ stands no group of route-regex (it has %d): write $1, ${name}, or \$`, re.NumSubexp())
	}
	return group, size, nil
}

// topic of a value. What the expression does not match as a whole stays as it
// is; of what it does, the first match is replaced.
func (r *route) topic(value []byte) string {
	if topic, ok := r.topics[string(value)]; ok {
		return topic
	}
	topic := string(value)
	if r.whole.Match(value) {
		at := r.first.FindSubmatchIndex(value)
		out := append([]byte(nil), value[:at[0]]...)
		for _, part := range r.replacement {
			out = append(out, part.text...)
			if g := part.group; g >= 0 && at[2*g] >= 0 {
				out = append(out, value[at[2*g]:at[2*g+1]]...)
			}
		}
		topic = string(append(out, value[at[1]:]...))
	}
	if len(value) <= internerLength {
		if len(r.topics) >= internerNames {
			clear(r.topics)
		}
		r.topics[string(value)] = topic
	}
	return topic
}
