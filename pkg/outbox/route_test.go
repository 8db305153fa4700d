package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestRoute has Java's answers, of Kafka Connect's RegexRouter.
func TestRoute(t *testing.T) {
	for _, c := range []struct{ regex, replacement, value, want string }{
		{"", "", "account", "outbox.event.account"},
		{"", "", "", "outbox.event."},
		{"", "${routedByValue}.v1", "Account", "Account.v1"},
		{"(.*)-(.*)", "$2.$1", "loan-paid", "paid.loan"},
		{"(.*)-(.*)", "$2.$1", "loan", "loan"}, // no match: as it stands
		{"(.)", "$12", "x", "x2"},              // there is no group 12, so it is group 1 and a 2
		{"(?<a>.)(?<b>.)?", "<${b}>", "x", "<>"},
		{"a|ab", "z", "ab", "zb"}, // matches as a whole, and the first match is replaced
		{"b", "z", "abc", "abc"},
		{".*", `\$1\\`, "x", `$1\`},
		{"(?i)ACCOUNT", "a", "account", "a"},
		{".*", "all", "größe", "all"},
		{".*", "$0.copy", "x", "x.copy"},
	} {
		s := routeSettings{"c", c.regex, c.replacement}
		r, err := s.compile()
		if err != nil {
			t.Errorf("%q: %v", c.regex, err)
			continue
		}
		for range 2 { // the second time from memory
			if got := r.topic([]byte(c.value)); got != c.want {
				t.Errorf("%q -> %q: %q became %q, want %q", c.regex, c.replacement, c.value, got, c.want)
			}
		}
	}
}

func TestRouteRefuses(t *testing.T) {
	for _, c := range []struct{ column, regex, replacement, want string }{
		{"", "(.*)", "", "route-column is not set"},
		{"c", "(", "", `route-regex "(" is no regular expression that walstream knows`},
		{"c", "(?=x)", "", "no lookaround"},
		{"c", "(.*)", "", `route-replacement "outbox.event.${routedByValue}": route-regex has no group named "routedByValue"`},
		{"c", "(.*)", "$2", "no group of route-regex (it has 1)"},
		{"c", "(.*)", "$", "behind a $"},
		{"c", "(.*)", "${1", "no group named"},
		{"c", "(.*)", `x\`, "escapes nothing"},
	} {
		_, err := NewMapping([]MappingConfig{{
			Schema: "public", Table: "o", RouteColumn: c.column, RouteRegex: c.regex, RouteReplacement: c.replacement,
		}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "outbox public.o: ") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestRouteMemory: other values cannot fill the memory.
func TestRouteMemory(t *testing.T) {
	s := routeSettings{"c", "", ""}
	r, err := s.compile()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * internerNames {
		r.topic(fmt.Appendf(nil, "t%d", i))
	}
	r.topic([]byte(strings.Repeat("x", internerLength+1)))
	if len(r.topics) > internerNames {
		t.Errorf("%d topics kept", len(r.topics))
	}
}

func TestTopicSources(t *testing.T) {
	row := func(values ...any) (cols []col) {
		for i, name := range []string{"topic", "kind"} {
			cols = append(cols, col{name, pgtype.TextOID, values[i]})
		}
		return append(cols, col{"payload", pgtype.TextOID, "x"}, col{"key", pgtype.TextOID, nil})
	}
	for _, c := range []struct {
		name   string
		config MappingConfig
		row    []col
		want   string // empty: a bad row
	}{
		{"route", MappingConfig{RouteColumn: "kind"}, row("t", "a"), "outbox.event.a"},
		{"column, then route", MappingConfig{TopicColumn: "topic", RouteColumn: "kind"}, row("t", "a"), "t"},
		{"NULL column, then route", MappingConfig{TopicColumn: "topic", RouteColumn: "kind"}, row(nil, "a"), "outbox.event.a"},
		{"NULL route", MappingConfig{RouteColumn: "kind"}, row("t", nil), ""},
		{"column, then constant", MappingConfig{TopicColumn: "topic", Topic: "all"}, row(nil, nil), "all"},
		{"the preset's route gives way", MappingConfig{Preset: "debezium", TopicPattern: "x.{kind}"}, row(nil, "a"), "x.a"},
		{"the preset's route is kept", MappingConfig{Preset: "debezium", RouteReplacement: "y.$1", RouteColumn: "kind"}, row(nil, "a"), "y.a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Schema, c.config.Table, c.config.KeyColumn = "public", "outbox", "key"
			if c.config.Preset != "" {
				c.config.IDColumn = "key"
			}
			var e Event
			_, err := mustMapping(t, c.config).Map(rowOf("outbox", c.row...), &e)
			var bad *RowError
			if c.want == "" && errors.As(err, &bad) && bad.Column == "kind" {
				return
			}
			if err != nil || e.Topic != c.want {
				t.Errorf("topic %q, %v; want %q", e.Topic, err, c.want)
			}
		})
	}
}
