package cases

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var saidQuery = regexp.MustCompile(`(?m)^SELECT [^;]+;`)

// queriesOf a page are the statements of its indented blocks that read.
func queriesOf(page string) []string {
	var block strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "       ") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "--")
			block.WriteString(line + "\n")
		}
	}
	return saidQuery.FindAllString(block.String(), -1)
}

// Whoever is woken pastes the queries of a runbook: the server takes each.
func TestQueriesOfRunbooks(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	r.check(err)
	seen := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		r.check(err)
		for _, query := range queriesOf(string(text)) {
			seen++
			if _, err := r.db.Prepare(r.ctx, "", query); err != nil { // analysed, and not run
				t.Errorf("%s: %v in\n%s", filepath.Base(path), err, query)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d queries were found", seen)
	}
}

var saidSelector = regexp.MustCompile(`kubectl [^\n]* -l (\S+)=(\S+)`)

// A selector of a runbook is a label that our pods have.
func TestSelectorsOfRunbooks(t *testing.T) {
	t.Parallel()
	deployment, err := os.ReadFile("../../deploy/kubernetes/plain/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range saidSelector.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(deployment), m[1]+": "+m[2]+"\n") {
				t.Errorf("%s: %s selects no pod", filepath.Base(path), m[0])
			}
		}
	}
}
