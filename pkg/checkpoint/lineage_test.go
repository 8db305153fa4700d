package checkpoint

import (
	"strings"
	"testing"
	"time"
)

// Whoever took the way out twice has published under three names: the audit of the
// message has to count the rows of all of them, or they would be sent again.
func TestAllEarlierNamesAreNamed(t *testing.T) {
	for pipeline, want := range map[string]string{
		"bank":           "bank",
		"bank-2":         "bank,bank-2",
		"bank-4":         "bank,bank-2,bank-3,bank-4",
		"bank-1":         "bank-1",
		"bank-02":        "bank-02",
		"orders-2026":    "orders-2026", // a year, not the 2,026th way out
		"bank.outbox-eu": "bank.outbox-eu",
	} {
		r := &Record{Pipeline: pipeline, CommitTime: time.Unix(1e9, 0)}
		if text := r.Anew(false); !strings.Contains(text, " --earlier-pipelines="+want+" lists") {
			t.Errorf("%s: %s\nwant --earlier-pipelines=%s", pipeline, text, want)
		}
	}
}
