package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write "+pagePath)

func load(t *testing.T) ([]theme, *explanations) {
	t.Helper()
	themes, err := loadCorpus()
	if err != nil {
		t.Fatal(err)
	}
	e, err := loadExplanations(explainedFile)
	if err != nil {
		t.Fatal(err)
	}
	return themes, e
}

// TestCorpus: the corpus is as wide as it is said to be, and every explanation is
// about a row of it.
func TestCorpus(t *testing.T) {
	themes, e := load(t)
	rows, options := map[string]bool{}, map[string]bool{}
	for _, g := range groupsOf(themes) {
		for _, r := range g.Rows {
			rows[g.Name+"/"+r.Name] = true
		}
		for option := range g.Router {
			options[option] = true
		}
		for field := range strings.SplitSeq(g.Router["table.fields.additional.placement"], ",") {
			if parts := strings.Split(field, ":"); len(parts) > 1 {
				options[parts[1]] = true
			}
		}
	}
	if len(rows) < 60 {
		t.Errorf("only %d rows", len(rows))
	}
	for _, option := range everyOption {
		if !options[option] {
			t.Errorf("no group has the option %s", option)
		}
	}
	for _, c := range e.Cases {
		if !rows[c.Case] {
			t.Errorf("explained.yaml: no row %s", c.Case)
		}
	}
}

// everyOption of EventRouterConfigDefinition and ActivateTracingSpan in 3.6.1.
var everyOption = []string{
	"table.field.event.id", "table.field.event.key", "table.field.event.type", "table.field.event.payload",
	"table.field.event.timestamp", "table.field.event.schema.version",
	"table.fields.additional.placement", "header", "envelope", "partition", "table.field.additional.missing",
	"route.by.field", "route.topic.regex", "route.topic.replacement", "route.tombstone.on.empty.payload",
	"table.op.invalid.behavior", "table.expand.json.payload", "table.json.payload.null.behavior",
	"tracing.span.context.field", "tracing.operation.name", "tracing.with.context.field.only",
}

// TestPage: the page says what the corpus and the explanations do.
func TestPage(t *testing.T) {
	themes, e := load(t)
	path := filepath.Join("..", "..", filepath.FromSlash(pagePath))
	want := page(themes, e)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is behind; write it by go test ./bench/parity -update", pagePath)
	}
}

func TestCheckCorpus(t *testing.T) {
	text := "x"
	good := group{Name: "g", Shows: "s", Rows: []row{{Name: "r"}}}
	for name, c := range map[string]struct {
		change func(*group)
		want   string
	}{
		"good":           {func(*group) {}, ""},
		"no rows":        {func(g *group) { g.Rows = nil }, "wants name"},
		"unnamed row":    {func(g *group) { g.Rows = []row{{}} }, "no name of its own"},
		"row twice":      {func(g *group) { g.Rows = []row{{Name: "r"}, {Name: "r"}} }, "no name of its own"},
		"alone with two": {func(g *group) { g.Alone, g.Rows = true, []row{{Name: "r"}, {Name: "q"}} }, "alone has one row"},
		"unknown column": {func(g *group) { g.Row = map[string]*string{"no": &text} }, `no column "no"`},
		"column removed": {func(g *group) { g.Columns, g.Row = map[string]string{"type": ""}, map[string]*string{"type": &text} }, `no column "type"`},
		"unknown change": {func(g *group) { g.Rows = []row{{Name: "r", Then: "truncate"}} }, "truncate"},
	} {
		g := good
		c.change(&g)
		err := checkCorpus([]theme{{Groups: []group{g}}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestStatements(t *testing.T) {
	text, expr := "it's", expression+"now()"
	g := group{
		Name:    "a-b",
		Columns: map[string]string{"type": "", "at": "timestamptz"},
		Row:     map[string]*string{"at": &expr, "payload": nil},
		Rows:    []row{{Name: "r", Set: map[string]*string{"aggregateid": &text}}},
	}
	if got, want := g.create(), `CREATE TABLE parity."a_b" ("aggregateid" varchar(255) NOT NULL, "aggregatetype" varchar(255) NOT NULL, `+
		`"at" timestamptz, "id" uuid PRIMARY KEY, "payload" jsonb)`; got != want {
		t.Errorf("create: %s", got)
	}
	if got, want := g.insert(&g.Rows[0]), `INSERT INTO parity."a_b" ("aggregateid", "aggregatetype", "at", "id", "payload") `+
		`VALUES ('it''s', 'order', now(), '604f2085-0000-4000-8000-2b8e9f561094', NULL)`; got != want {
		t.Errorf("insert: %s", got)
	}
}
