package outbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		name, object, want string // want empty: a bad row
		err                error
	}{
		{"empty", `{}`, `|`, nil},
		{"spaces", " {\n\t\"a\" : 1 , \"b\":2\r} ", `| a="1" b="2"`, nil},
		{
			"kinds", `{"s": "x", "n": -1.50e3, "t": true, "f": false, "z": null, "e": "", "l": [1, {"q": "]"}], "o": {"k": "}"}}`,
			`| s="x" n="-1.50e3" t="true" f="false" z=nil e="" l="[1, {\"q\": \"]\"}]" o="{\"k\": \"}\"}"`, nil,
		},
		{"big number", `{"n": 12345678901234567890.0001}`, `| n="12345678901234567890.0001"`, nil},
		{"duplicates of json", `{"a": 1, "a": "2"}`, `| a="1" a="2"`, nil},
		{"escapes", `{"a": "\"\\\/\b\f\n\r\tA\u00e9\u20ac\ud83d\ude00"}`, `| a="\"\\/\b\f\n\r\tAé€😀"`, nil},
		{"escaped name", `{"\u0061\n": 1}`, "| a\n=\"1\"", nil},
		{"zero byte", `{"a": "\u0000"}`, `| a="\x00"`, nil},
		{"empty name", `{"": 1}`, `| ="1"`, nil},
		{"half a surrogate", `{"a": "\ud83d"}`, "", errSurrogate},
		{"the other half", `{"a": "\ude00\ud83d"}`, "", errSurrogate},
		{"array", `[]`, "", errNoObject},
		{"string", `"x"`, "", errNoObject},
		{"null", `null`, "", errNoObject},
		{"nothing", ``, "", errNoObject},
		{"hstore", `"a"=>"1"`, "", errNoObject},
		{"cut", `{"a": 1`, "", errBrokenObj},
		{"cut string", `{"a": "\`, "", errBrokenObj},
		{"no value", `{"a": }`, "", errBrokenObj},
		{"no comma", `{"a": 1 "b": 2}`, "", errBrokenObj},
		{"tail", `{} x`, "", errBrokenObj},
		{"bad escape", `{"a": "\x"}`, "", errBrokenObj},
		{"bad hex", `{"a": "\u00zz"}`, "", errBrokenObj},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mustMapping(t, MappingConfig{Schema: "public", Table: "outbox", HeaderColumns: []string{}})
			var e Event
			_, err := m.Map(ownRow(col{"headers", pgtype.JSONOID, c.object}), &e)
			if c.err != nil {
				var bad *RowError
				if !errors.As(err, &bad) || bad.Column != "headers" || bad.RowID != "41" || bad.ValueLength != len(c.object) || bad.Reason != c.err.Error() {
					t.Fatalf("got %v, want %v", err, c.err)
				}
				if len(c.object) > 3 && strings.Contains(err.Error(), c.object) {
					t.Errorf("the error carries the value: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, got, _ := strings.Cut(show(e), "Z|41"); "|"+got != c.want {
				t.Errorf("got %s, want %s", "|"+got, c.want)
			}
		})
	}
	t.Run("NULL", func(t *testing.T) {
		m := mustMapping(t, own())
		if e := mustMap(t, m, ownRow(col{"headers", pgtype.JSONBOID, nil})); len(e.Headers) != 4 {
			t.Errorf("got %q", e.Headers)
		}
	})
	t.Run("100,000 levels", func(t *testing.T) {
		m := mustMapping(t, own())
		deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
		if e := mustMap(t, m, ownRow(col{"headers", pgtype.JSONOID, `{"a": ` + deep + `}`})); string(e.Headers[4].Value) != deep {
			t.Error("the nesting was not kept")
		}
	})
}

// FuzzSpread: in whatever encoding/json takes for an object, spread finds the
// same members; nothing makes it panic.
func FuzzSpread(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a": [1, {"b": "}"}], "c": "\u00e9\"", "d": null}`, `{"a":{"a":"\ud83d\ude00"}} `, `{"a": "\`, `{"":""}`, `{"a":1,"a":"2"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := mustMapping(t, own())
		var e Event
		_, err := m.spread(data, &e)
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil || !utf8.Valid(data) || errors.Is(err, errSurrogate) {
			return // no object, or one that encoding/json would mend in silence
		}
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		got := map[string][]byte{} // of equal names the last, as encoding/json has it
		for _, h := range e.Headers {
			got[h.Key] = h.Value
		}
		for name, raw := range want {
			text, isString := string(raw), false
			if isString = raw[0] == '"'; isString {
				if err := json.Unmarshal(raw, &text); err != nil {
					t.Fatal(err)
				}
			}
			value, there := got[name]
			switch {
			case strings.HasPrefix(name, reservedPrefix) && !there:
			case text == "null" && !isString && there && value == nil:
			case there && value != nil && string(value) == text:
			default:
				t.Fatalf("%q: header %q is %q, want %q", data, name, value, text)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Fatalf("%q: headers that are no members: %q", data, got)
		}
	})
}
