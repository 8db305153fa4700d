package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

func TestParseValue(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  any    // of the target's type
		shown string // what formatValue makes of it; empty: text
	}{
		{"", "", ""},
		{" x ", " x ", ""},
		{"true", true, ""},
		{"false", false, ""},
		{"-3", -3, ""},
		{"a, b,c", []string{"a", "b", "c"}, "a,b,c"},
		{"", []string(nil), ""},
		{`"a,b", c d ,h=e"f`, []string{"a,b", "c d", `h=e"f`}, `"a,b",c d,h=e"f`},
		{`"h=a ","""x"`, []string{"h=a ", `"x`}, ""},
		{`a,,`, []string{"a", "", ""}, ""},
		{`"open, b`, []string{`"open`, "b"}, `"""open",b`},
		{`"a"b,c`, []string{`"a"b`, "c"}, `"""a""b",c`},
		{"5s", 5 * time.Second, ""},
		{"1500ms", 1500 * time.Millisecond, "1.5s"},
		{"90m", 90 * time.Minute, "1h30m"},
		{"60s", time.Minute, "1m"},
		{"10s", 10 * time.Second, ""},
		{"1h0m5s", time.Hour + 5*time.Second, "1h0m5s"},
		{"0", time.Duration(0), "0s"},
		{"32MiB", Size(32 << 20), ""},
		{"32 mib", Size(32 << 20), "32MiB"},
		{"1GB", Size(1e9), "1000000000B"},
		{"1.5KiB", Size(1536), "1536B"},
		{"2KiB", Size(2048), ""},
		{"0B", Size(0), ""},
		{"", pglogrepl.LSN(0), ""},
		{"16/B374D848", pglogrepl.LSN(0x16B374D848), ""},
		{"16/b374d848", pglogrepl.LSN(0x16B374D848), "16/B374D848"},
		{"0/1..FFFFFFFF/FFFFFFFF", LSNRange{1, 1<<64 - 1}, ""},
		{"", LSNRange{}, ""},
		{"outbox", Table{"public", "outbox"}, "public.outbox"},
		{"bank.outbox_2", Table{"bank", "outbox_2"}, ""},
		{`"Bank"."out.box"`, Table{"Bank", "out.box"}, ""},
		{`"a""b".c`, Table{`a"b`, "c"}, ""},
		{`a."größe"`, Table{"a", "größe"}, ""},
	} {
		target := reflect.New(reflect.TypeOf(c.want)).Elem()
		if err := parseValue(target, c.text); err != nil {
			t.Errorf("%T %q: %v", c.want, c.text, err)
			continue
		}
		if !reflect.DeepEqual(target.Interface(), c.want) {
			t.Errorf("%T %q is %v, want %v", c.want, c.text, target, c.want)
		}
		shown := c.shown
		if shown == "" {
			shown = c.text
		}
		if got := formatValue(target); got != shown {
			t.Errorf("%T %q is shown as %q, want %q", c.want, c.text, got, shown)
		}
	}
}

func TestParseValueRefuses(t *testing.T) {
	for _, c := range []struct {
		kind  any
		texts []string
	}{
		{true, []string{"", "yes", "True", "1", "on"}},
		{0, []string{"", "1.5", "0x10", "1_000", "1e3", "99999999999999999999"}},
		{time.Duration(0), []string{"", "5", "5.0", "s", "5 s", "5sec", "1y", "d", "-1d", "inf", "-"}},
		{Size(0), []string{"", "5", "32MX", "MiB", "-1MiB", "inf", "9000000TiB"}},
		{pglogrepl.LSN(0), []string{"0/0", "1", "/1", "1/", "1/2/3", "g/1", "0x1/2", "-1/2", " 1/2", "1/2 ", "100000000/1", "1/000000001"}},
		{LSNRange{}, []string{"0/1", "0/1..", "..0/1", "0/2..0/1", "0/1..0/1", "0/1...0/2", "0/0..0/1", "0/1-0/2"}},
		{Table{}, []string{"", ".", "a.", ".a", "a.b.c", "A", "a b", `"`, `""`, `"a`, `"a"b`, `"a".`, `a."b`, `a"b"`, "1a", "a-b"}},
	} {
		for _, text := range c.texts {
			target := reflect.New(reflect.TypeOf(c.kind)).Elem()
			if err := parseValue(target, text); err == nil {
				t.Errorf("%T %q was taken for %v", c.kind, text, target)
			}
			if !target.IsZero() {
				t.Errorf("%T %q left %v behind", c.kind, text, target)
			}
		}
	}
}

// FuzzParseValue: what is accepted reads back the same from what is shown.
func FuzzParseValue(f *testing.F) {
	for _, text := range []string{"", "5s", "32MiB", "16/B374D848", "0/1..0/2", `"a""b".c`, "a,b", "true", "7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []any{0, true, time.Duration(0), Size(0), pglogrepl.LSN(0), LSNRange{}, Table{}} {
			first := reflect.New(reflect.TypeOf(kind)).Elem()
			if parseValue(first, text) != nil {
				continue
			}
			second := reflect.New(reflect.TypeOf(kind)).Elem()
			if err := parseValue(second, formatValue(first)); err != nil {
				t.Errorf("%T %q: shown as %q, which is refused: %v", kind, text, formatValue(first), err)
			} else if !reflect.DeepEqual(first.Interface(), second.Interface()) {
				t.Errorf("%T %q: %v reads back as %v", kind, text, first, second)
			}
		}
	})
}

// FuzzMaskPostgres: a password that pgconn finds is never shown.
func FuzzMaskPostgres(f *testing.F) {
	for _, text := range []string{
		"postgres://u:secret@h/d", "postgres://u@h/d?password=secret", "host=h password=secret", "password = 's e\\'c'", `password=a\ b user=x`,
		"postgresql://u:s@[::1]:5432,b/d?sslmode=disable&PASSWORD=x", "postgres://u:a%2Fb@h", "password=it's", "passwordpassword=x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		config, err := parsePostgres(text)
		if err != nil || len(config.Password) < 4 || config.Password == masked {
			return
		}
		// A password that stands elsewhere too, say as the user, proves nothing.
		shown := maskPostgres(text)
		if strings.Contains(shown, config.Password) && strings.Count(text, config.Password) == 1 {
			t.Errorf("%q is shown as %q", text, shown)
		}
	})
}
