package sink

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// What is true of a configuration is said once, not at each of the hundreds of
// starts of an outage; and what is remembered of it is bounded.
func TestToldOnce(t *testing.T) {
	var out bytes.Buffer
	cfg := testConfig(t, []string{"127.0.0.1:1"})
	cfg.SASLMechanism, cfg.SASLUser, cfg.Seen, cfg.Logger = mechanismPlain, "u", NewSeen(), zerolog.New(&out)
	cfg.Credentials = func(context.Context) (Credentials, error) { return Credentials{Secret: "secret"}, nil }
	for range 100 {
		open(t, cfg).Close()
	}
	if lines := strings.Count(out.String(), "SASL PLAIN without TLS"); lines != 1 {
		t.Errorf("said %d times\n%s", lines, out.String())
	}
	for n := range 2 * toldOnce {
		cfg.Seen.tell(fmt.Sprint("topic-", n))
	}
	if len(cfg.Seen.told) != toldOnce {
		t.Errorf("%d lines are remembered", len(cfg.Seen.told))
	}
}
