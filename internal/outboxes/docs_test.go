package outboxes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shown is a file of the repository in the documentation: a comment with its
// path, and the block that follows.
var shown = regexp.MustCompile("(?s)<!-- ([^ ]+) -->\n```([a-z]+)\n(.*?)```\n")

// TestDocumentationShowsTheFiles: what the page shows is what the tests stream.
func TestDocumentationShowsTheFiles(t *testing.T) {
	const page = "../../docs/bring-your-outbox.md"
	text := read(t, page)
	seen := map[string]bool{}
	rewritten := shown.ReplaceAllStringFunc(text, func(block string) string {
		parts := shown.FindStringSubmatch(block)
		path, kind := parts[1], parts[2]
		seen[filepath.Join("../..", path)] = true
		want := strings.TrimRight(read(t, filepath.Join("../..", path)), "\n") + "\n"
		if parts[3] != want && !*update {
			t.Errorf("%s shows of %s\n%s\nwhich is\n%s\nRun: go test ./internal/outboxes -update", page, path, parts[3], want)
		}
		return "<!-- " + path + " -->\n```" + kind + "\n" + want + "```\n"
	})
	if *update && rewritten != text {
		if err := os.WriteFile(page, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range cases {
		for _, file := range []string{"config.yaml", "rows.sql", "records.txt"} {
			if path := filepath.Join("../../internal/outboxes/testdata", name, file); !seen[path] {
				t.Errorf("%s does not show %s", page, path)
			}
		}
		if path := filepath.Join("internal/outboxes", tableFile(name)); name != "own" && !seen[filepath.Join("../..", path)] {
			t.Errorf("%s does not show %s", page, path)
		}
	}
}

// TestInsertsOfTheDocumentation: the statements under "Writing events" do what
// they say.
func TestInsertsOfTheDocumentation(t *testing.T) {
	r := newRun(t)
	script := read(t, tableFile("own"))
	table, _, found := strings.Cut(script[strings.Index(script, "CREATE TABLE"):], ");\n")
	if !found {
		t.Fatal("no table in sql/publication.sql")
	}
	r.exec(table + ")")
	_, writing, _ := strings.Cut(read(t, "../../docs/bring-your-outbox.md"), "## Writing events")
	statements := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(writing, -1)
	if len(statements) != 2 {
		t.Fatalf("%d statements", len(statements))
	}
	for range 2 {
		for _, s := range statements {
			r.exec(s[1])
		}
	}
	var n int
	if err := r.db.QueryRow(r.ctx, `SELECT count(*) FROM outbox`).Scan(&n); err != nil || n != 3 {
		t.Errorf("%d rows, %v: the one with an id of its own must not come twice", n, err)
	}
}
