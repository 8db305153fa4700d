package main

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pglogrepl"
)

// Size is a number of bytes, written with its unit: 32MiB, 4KB.
type Size int64

func (s Size) String() string {
	for _, unit := range []struct {
		name  string
		bytes Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && s%unit.bytes == 0 {
			return strconv.FormatInt(int64(s/unit.bytes), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// LSNRange is written X/Y..X/Y; the zero value means "none".
type LSNRange struct{ From, To pglogrepl.LSN }

func (r LSNRange) String() string {
	if r == (LSNRange{}) {
		return ""
	}
	return r.From.String() + ".." + r.To.String()
}

// Table is a table's name. It is written schema.name, either part in double
// quotes where it holds a dot or upper-case letters; without a schema it stands
// in public.
type Table struct{ Schema, Name string }

func (t Table) String() string { return quoteIdentifier(t.Schema) + "." + quoteIdentifier(t.Name) }

func quoteIdentifier(name string) string {
	if plainIdentifier(name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// plainIdentifier tells whether SQL reads the unquoted name as it stands.
func plainIdentifier(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

var errEmpty = errors.New("is empty")

// parseValue sets target from text. It is the one place where a text from any
// origin becomes a value.
func parseValue(target reflect.Value, text string) error {
	switch v := target.Addr().Interface().(type) {
	case *string:
		*v = text
		return nil
	case *[]string:
		*v = splitList(text)
		return nil
	case *pglogrepl.LSN:
		return parseLSN(v, text)
	case *LSNRange:
		return parseLSNRange(v, text)
	}
	if text == "" {
		return errEmpty
	}
	switch v := target.Addr().Interface().(type) {
	case *bool:
		return parseBool(v, text)
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("is not a whole number")
		}
		*v = n
	case *time.Duration:
		return parseDuration(v, text)
	case *Size:
		return parseSize(v, text)
	case *Table:
		return parseTable(v, text)
	default:
		panic(fmt.Sprintf("walstream: bug: no parser for a setting of type %s", target.Type()))
	}
	return nil
}

// formatValue is the inverse of parseValue.
func formatValue(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case []string:
		return joinList(v)
	case pglogrepl.LSN:
		if v == 0 {
			return ""
		}
		return v.String()
	case time.Duration:
		return formatDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// formatDuration drops the zero units that time.Duration writes: 1m0s is 1m.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// splitList reads words between commas. One in double quotes is taken as it
// stands, with "" for a quote: a column may have a comma or a blank at its end.
func splitList(text string) []string {
	if text == "" {
		return nil
	}
	var words []string
	for more := true; more; {
		text = strings.TrimLeft(text, " \t\r\n")
		word, rest, quoted := cutQuoted(text)
		if !quoted {
			word, rest, more = strings.Cut(text, ",")
			word = strings.TrimSpace(word)
		} else {
			_, rest, more = strings.Cut(rest, ",")
		}
		words, text = append(words, word), rest
	}
	return words
}

// cutQuoted takes a word in double quotes, which a comma or the end must follow.
func cutQuoted(text string) (word, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", text, false
	}
	for rest = text[1:]; ; word += `"` {
		part, after, closed := strings.Cut(rest, `"`)
		if !closed {
			return "", text, false
		}
		word, rest = word+part, after
		if !strings.HasPrefix(rest, `"`) {
			break
		}
		rest = rest[1:]
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	if rest != "" && rest[0] != ',' {
		return "", text, false
	}
	return word, rest, true
}

// joinList is the inverse of splitList.
func joinList(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if strings.Contains(word, ",") || strings.HasPrefix(word, `"`) || strings.TrimSpace(word) != word {
			word = `"` + strings.ReplaceAll(word, `"`, `""`) + `"`
		}
		quoted[i] = word
	}
	return strings.Join(quoted, ",")
}

func parseBool(v *bool, text string) error {
	switch text {
	case "true":
		*v = true
	case "false":
		*v = false
	default:
		return errors.New("is neither true nor false")
	}
	return nil
}

func isNumber(text string) bool { return strings.Trim(text, "0123456789.") == "" }

func parseDuration(v *time.Duration, text string) error {
	if isNumber(text) && text != "0" {
		return fmt.Errorf("has no unit: %ss or %sms?", text, text)
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok && err != nil {
		var n float64
		if n, err = strconv.ParseFloat(days, 64); !(n >= 0 && n < 36500) {
			err = strconv.ErrRange
		}
		d = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil {
		return errors.New("is not a duration such as 500ms, 5s, 1m30s or 7d")
	}
	*v = d
	return nil
}

func parseSize(v *Size, text string) error {
	if isNumber(text) {
		return fmt.Errorf("has no unit: %sMiB or %sB?", text, text)
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<62 {
		return errors.New("is not a size such as 512KiB or 32MiB")
	}
	*v = Size(n)
	return nil
}

func parseLSN(v *pglogrepl.LSN, text string) error {
	if text == "" {
		*v = 0
		return nil
	}
	high, low, ok := strings.Cut(text, "/")
	if !ok || !hexWord(high) || !hexWord(low) {
		return errors.New("is not an LSN such as 16/B374D848")
	}
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil || lsn == 0 {
		return errors.New("is not an LSN such as 16/B374D848")
	}
	*v = lsn
	return nil
}

// hexWord guards ParseLSN, which scans and so accepts signs, blanks and tails.
func hexWord(text string) bool {
	_, err := strconv.ParseUint(text, 16, 32)
	return err == nil && len(text) <= 8
}

func parseLSNRange(v *LSNRange, text string) error {
	if text == "" {
		*v = LSNRange{}
		return nil
	}
	var r LSNRange
	from, to, ok := strings.Cut(text, "..")
	if !ok || from == "" || to == "" || parseLSN(&r.From, from) != nil || parseLSN(&r.To, to) != nil {
		return errors.New("is not two LSNs such as 16/B374D848..16/B4000000")
	}
	if r.From >= r.To {
		return errors.New("ends before it begins")
	}
	*v = r
	return nil
}

func parseTable(v *Table, text string) error {
	first, rest, err := cutIdentifier(text)
	if err != nil {
		return err
	}
	if rest == "" {
		*v = Table{Schema: "public", Name: first}
		return nil
	}
	second, rest, err := cutIdentifier(strings.TrimPrefix(rest, "."))
	if err != nil {
		return err
	}
	if rest != "" {
		return errors.New("has more than the two parts of schema.name; a part with a dot in it is put in double quotes")
	}
	*v = Table{Schema: first, Name: second}
	return nil
}

// cutIdentifier takes one identifier off the front; rest is empty or begins
// with a dot.
func cutIdentifier(text string) (name, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text, '.')
		if end < 0 {
			end = len(text)
		}
		name, rest = text[:end], text[end:]
		if !plainIdentifier(name) {
			return "", "", fmt.Errorf("part %q: SQL would read it otherwise; put it in double quotes if it is meant so", name)
		}
		return name, rest, nil
	}
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			name += text[i : i+1]
			continue
		}
		if strings.HasPrefix(text[i+1:], `"`) {
			name += `"`
			i++
			continue
		}
		rest = text[i+1:]
		if name == "" || rest != "" && !strings.HasPrefix(rest, ".") {
			break
		}
		return name, rest, nil
	}
	return "", "", errors.New("has a double quote that does not close a name")
}
