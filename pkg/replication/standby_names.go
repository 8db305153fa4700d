package replication

import (
	"fmt"
	"strings"
)

// maxNameLength is what PostgreSQL keeps of an application_name (NAMEDATALEN-1).
const maxNameLength = 63

// MatchesStandbyNames reports whether a session of that application_name would
// be a synchronous standby by a value of synchronous_standby_names: every COMMIT
// of the application would wait for Kafka. A walsender of a logical slot counts
// as much as one of a standby server.
func MatchesStandbyNames(setting, applicationName string) (bool, error) {
	names, err := standbyNames(setting)
	if err != nil {
		return false, err
	}
	if len(applicationName) > maxNameLength {
		applicationName = applicationName[:maxNameLength]
	}
	for _, name := range names {
		if name.any || strings.EqualFold(name.text, applicationName) {
			return true, nil
		}
	}
	return false, nil
}

// standbyName is an element of the list; any is an asterisk, quoted or not.
type standbyName struct {
	text string
	any  bool
}

// standbyNames reads
//
//	list | n (list) | FIRST n (list) | ANY n (list)
//
// https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES
func standbyNames(setting string) ([]standbyName, error) {
	tokens, err := standbyTokens(setting)
	if err != nil || len(tokens) == 0 {
		return nil, err
	}
	if open := indexToken(tokens, "("); open >= 0 {
		if tokens[len(tokens)-1] != ")" || open > 2 {
			return nil, fmt.Errorf("synchronous_standby_names %q: not in a form we know", setting)
		}
		tokens = tokens[open+1 : len(tokens)-1]
	}
	var names []standbyName
	for i, token := range tokens {
		if i%2 == 1 {
			if token != "," {
				return nil, fmt.Errorf("synchronous_standby_names %q: not in a form we know", setting)
			}
			continue
		}
		name := strings.TrimPrefix(token, `"`) // the tokeniser leaves the first quote as a mark
		names = append(names, standbyName{text: name, any: name == "*"})
	}
	return names, nil
}

func indexToken(tokens []string, wanted string) int {
	for i, token := range tokens {
		if token == wanted {
			return i
		}
	}
	return -1
}

// standbyTokens splits a setting. A quoted name keeps its opening quote, which
// tells it from punctuation.
func standbyTokens(setting string) (tokens []string, err error) {
	for rest := strings.TrimSpace(setting); rest != ""; rest = strings.TrimSpace(rest) {
		end := 0
		switch rest[0] {
		case '(', ')', ',':
			end = 1
			tokens = append(tokens, rest[:1])
		case '"':
			name, length := quotedName(rest)
			if length == 0 {
				return nil, fmt.Errorf("synchronous_standby_names %q: a quote is not closed", setting)
			}
			end = length
			tokens = append(tokens, `"`+name)
		default:
			if end = strings.IndexAny(rest, "(),\" \t\r\n\f\v"); end < 0 {
				end = len(rest)
			}
			tokens = append(tokens, rest[:end])
		}
		rest = rest[end:]
	}
	return tokens, nil
}

// quotedName reads a name in double quotes, in which a doubled one stands for
// itself; length 0: it is not closed.
func quotedName(text string) (name string, length int) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != '"':
			b.WriteByte(text[i])
		case i+1 < len(text) && text[i+1] == '"':
			b.WriteByte('"')
			i++
		default:
			return b.String(), i + 1
		}
	}
	return "", 0
}
