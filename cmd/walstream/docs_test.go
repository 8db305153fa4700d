package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/walstream/walstream/pkg/outbox"
)

// TestYAMLOfTheDocumentation: every settings file that a page shows is read
// without a fault.
func TestYAMLOfTheDocumentation(t *testing.T) {
	cleanPG(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	files := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(block[1], "slot:") { // no settings file: Kubernetes, compose
				continue
			}
			files++
			if _, err := load([]string{"--config", writeFile(t, block[1])}, nil); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block[1])
			}
		}
	}
	if files < 8 {
		t.Errorf("only %d files found", files)
	}
}

// TestPresetsAreAllowed: the table of settings knows those of package outbox.
func TestPresetsAreAllowed(t *testing.T) {
	for _, f := range outboxFields(&Outbox{}) {
		if f.name != "preset" {
			continue
		}
		allowed := strings.Split(strings.TrimPrefix(f.tags.Get("values"), ","), ",")
		if slices.Sort(allowed); !slices.Equal(allowed, outbox.Presets()) {
			t.Errorf("allowed are %v, there are %v", allowed, outbox.Presets())
		}
	}
}

// TestDebeziumOptionsAreDocumented: the table has each.
func TestDebeziumOptionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/debezium-options.md")
	if err != nil {
		t.Fatal(err)
	}
	for option, setting := range routerOptions {
		row := regexp.MustCompile(`(?m)^\| .` + regexp.QuoteMeta(option) + `. .*$`).FindString(string(text))
		if row == "" || setting != "" && !strings.Contains(row, "`"+setting+"`") {
			t.Errorf("no row of %s -> %s: %q", option, setting, row)
		}
	}
}

// TestSettingsOfAnOutboxAreDocumented: the page goes through all of them.
func TestSettingsOfAnOutboxAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/bring-your-outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## The settings, part by part")
	for _, f := range outboxFields(&Outbox{}) {
		if f.name != "table" && f.name != "preset" && !strings.Contains(table, "`"+f.name+"`") {
			t.Errorf("--%s is not there", f.name)
		}
	}
}

// TestRoleStandsTwiceAlike: sql/publication.sql makes the role of sql/role.sql.
func TestRoleStandsTwiceAlike(t *testing.T) {
	role, err := os.ReadFile("../../sql/role.sql")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile("../../sql/publication.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(role), "BEGIN;\n\n")
	if block, _, _ = strings.Cut(block, "\n\nCOMMIT;"); block == "" || !strings.Contains(string(whole), block) {
		t.Errorf("sql/publication.sql has no\n%s", block)
	}
}
