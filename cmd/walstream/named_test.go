package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A message, an alert, a runbook and a page name only commands and flags that
// exist: who reads them at night copies them.

// namedIn is a piece of text that people read, and where it stands.
type namedIn struct{ where, text string }

// messages are the strings of the code that is shipped, each with what is joined to
// it by a plus.
func messages(t *testing.T) (found []namedIn) {
	t.Helper()
	for _, root := range []string{"../../cmd", "../../pkg", "../../internal/ops"} {
		walk(t, root, func(path string) {
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "pgfake") {
				return
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				expression, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				if text := joined(expression); text != "" {
					found = append(found, namedIn{set.Position(n.Pos()).String(), text})
					return false
				}
				return true
			})
		})
	}
	return found
}

// joined is the text of a literal, or of literals with other things between them.
func joined(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		if left, right := joined(e.X), joined(e.Y); e.Op == token.ADD && left+right != "" {
			return left + right
		}
	}
	return ""
}

// pages are what is written for people: Markdown, alerts, manifests, units, SQL.
func pages(t *testing.T) (found []namedIn) {
	t.Helper()
	read := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			found = append(found, namedIn{path + ":" + strconv.Itoa(n+1), line})
		}
	}
	for _, root := range []string{"../../docs", "../../deploy", "../../sql"} {
		walk(t, root, func(path string) {
			switch filepath.Ext(path) {
			case ".md", ".yml", ".yaml", ".sql", ".service", ".txt", ".tpl", ".json":
				if filepath.Base(path) != filepath.Base(schemaFile) {
					read(path)
				}
			}
		})
	}
	read("../../README.md")
	read("../../docker-compose.yml")
	return found
}

func walk(t *testing.T, root string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			visit(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	// A command is what stands behind the program's name and does not go on with a
	// sentence.
	namedCommand = regexp.MustCompile(`(?:^|[^.\w/=-])walstream ([a-z]+(?:-[a-z]+)*)\b`)
	// A release or a namespace may have the program's name.
	namesake  = regexp.MustCompile(`(-n|install|upgrade|generic) walstream`)
	namedFlag = regexp.MustCompile(`(?:^|[\s(="'` + "`" + `])--([a-z][a-z0-9-]+)`)
)

// prose is what the program's name is followed by in sentences. A verb in the third
// person is none of a command's name, and needs no mention here.
var prose = regexp.MustCompile(`^(.*[^s]s|was|is|has|and|or|of|in|on|at|to|by|for|from|with|without|itself|may|can|cannot|could|would|will|must|never|not|that|which|` +
	`between|beside|behind|before|after|while|when|where|needs|as|than|then|there|so|sees|also|only|again|now|here|has|had|do|alone|already|either|` +
	`wants|adds|knows|asks|keeps|through|under|up|set|sets|made|wrote|read|stopped|started|streams|ended|first|still|yet|ever|once|a|an|the|` +
	`reader|instance|role|binary|process|service|container|image|user|pod|chart|session|record|header|unit|build|release|catch|slept)$`)

// foreign are the flags of other programs that messages and pages name: Kafka's
// tools, containers, and the like. One that is ours has no business here.
var foreign = strings.Fields(`add add-config allow-principal alter bootstrap-server build-arg cluster describe encoding from-beginning from-literal locale name
	namespace no-block now operation previous property resource-pattern-type set start-offset transactional-id unavailable-partitions under-min-isr-partitions
	under-replicated-partitions`)

func TestNamedCommandsExist(t *testing.T) {
	inv, _ := load(nil, nil)
	commands := inv.config.report.commands
	helped := map[string]bool{}
	for _, at := range append(messages(t), pages(t)...) {
		for _, m := range namedCommand.FindAllStringSubmatch(namesake.ReplaceAllString(at.text, ""), -1) {
			name := m[1]
			switch {
			case slices.Contains(commands, name):
				helped[name] = true
			case prose.MatchString(name):
			default:
				t.Errorf("%s: walstream %s is no command, in: %s", at.where, name, strings.TrimSpace(at.text))
			}
		}
	}
	for name := range helped {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{name, "--help"}, nil, streams{out: &out, err: &errs}); code != 0 || out.Len() == 0 {
			t.Errorf("walstream %s --help: exit code %d, %s", name, code, errs.String())
		}
	}
	if len(helped) < 8 {
		t.Errorf("only %d commands are named anywhere", len(helped))
	}
}

func TestNamedFlagsExist(t *testing.T) {
	inv, _ := load(nil, nil)
	r := inv.config.report
	known := func(name string) bool {
		name = strings.TrimSuffix(name, "-") // --accept-...
		if r.flags[name] != nil || r.own[name] != nil {
			return true
		}
		for flag := range r.flags { // a family: --accept-…
			if strings.HasPrefix(flag, name+"-") {
				return true
			}
		}
		return false
	}
	seen, needed := 0, map[string]bool{}
	for _, at := range append(messages(t), pages(t)...) {
		for _, m := range namedFlag.FindAllStringSubmatch(at.text, -1) {
			switch {
			case known(m[1]):
				seen++
			case slices.Contains(foreign, m[1]):
				needed[m[1]] = true
			default:
				t.Errorf("%s: there is no --%s, in: %s", at.where, m[1], strings.TrimSpace(at.text))
			}
		}
		for _, m := range regexp.MustCompile(`\bwalstream ([a-z-]+) ([^\x60;]*)`).FindAllStringSubmatch(at.text, -1) {
			for _, flag := range namedFlag.FindAllStringSubmatch(" "+m[2], -1) {
				own := r.own[flag[1]]
				if len(own) > 0 && r.flags[flag[1]] == nil && slices.Contains(r.commands, m[1]) &&
					!slices.ContainsFunc(own, func(o ownFlag) bool { return o.command == m[1] }) {
					t.Errorf("%s: --%s is no flag of walstream %s, in: %s", at.where, flag[1], m[1], strings.TrimSpace(at.text))
				}
			}
		}
	}
	for _, flag := range foreign {
		if !needed[flag] {
			t.Errorf("nothing names --%s any more: take it from the list", flag)
		}
	}
	if seen < 50 {
		t.Errorf("only %d flags are named anywhere", seen)
	}
}
