package checkpoint

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// variable parts of a message stand as … in docs/refusals.md.
var variable = regexp.MustCompile(`"[^"]*"|\b[0-9A-F]+/[0-9A-F]+\b|\b[0-9.]+ ([KMG]i)?B\b|\d{4}-\d\d-\d\dT[0-9:]+Z|\([a-z_]+\)|\b\d+\b`)

// Every refusal of Compare stands on its page word for word, so that whoever
// searches for a message finds what happened and the commands.
func TestRefusalsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/refusals.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ")
	for _, test := range refusals {
		_, err := test.compare(Accept{})
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		if said := variable.ReplaceAllString(refusal.Found, "…"); !strings.Contains(page, said) {
			t.Errorf("docs/refusals.md does not have: %s", said)
		}
	}
}
