package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A row names any topic: the list stays a table, and says that there is more.
func TestLongTopicsInTheListOfLetters(t *testing.T) {
	for name, want := range map[string]string{
		"bank.payments":          "bank.payments",
		strings.Repeat("x", 48):  strings.Repeat("x", 48),
		strings.Repeat("x", 49):  strings.Repeat("x", 47) + "…",
		strings.Repeat("ü", 300): strings.Repeat("ü", 47) + "…",
	} {
		if got := shortName(printable(name)); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q", name, got)
		}
	}
}
