package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

func TestPauses(t *testing.T) {
	failing, standby := Class{Action: Retry}, Class{Action: Wait}
	for name, c := range map[string]struct {
		before     time.Duration
		progressed bool
		class      Class
		want       time.Duration
	}{
		"the first":                     {0, false, failing, firstPause},
		"failing again":                 {firstPause, false, failing, 2 * firstPause},
		"failing for long":              {maxPause, false, failing, maxPause},
		"failing after progress":        {maxPause, true, failing, firstPause},
		"standby":                       {0, false, standby, firstPause},
		"standby for long":              {maxStandby, false, standby, maxStandby},
		"standby after a long failure":  {maxPause, false, standby, maxStandby},
		"failing after a long stand-by": {maxStandby, false, failing, 2 * maxStandby},
	} {
		if got := nextPause(c.before, c.progressed, c.class); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestRenewing: a login that is refused is tried again for a while where it was
// accepted before, and nowhere else.
func TestRenewing(t *testing.T) {
	password := fmt.Errorf("open: %w", replication.ErrAuthentication)
	for _, c := range []struct {
		name     string
		loggedIn bool
		since    time.Duration
		once     *sink.OneShot
		err      error
		want     bool
	}{
		{"before the first login", false, 0, nil, password, false},
		{"password of PostgreSQL", true, 0, nil, password, true},
		{"certificate of PostgreSQL", true, 0, nil, replication.ErrTLS, true},
		{"certificate of Kafka", true, 0, nil, &sink.SetupError{TLS: true}, true},
		{"password of Kafka", true, 0, nil, &sink.AccessError{Right: "login"}, true},
		{"name of the old primary", true, 0, nil, &replication.PreflightError{Findings: []replication.Finding{{Err: replication.ErrInRecovery}}}, true},
		{"address of a standby", false, 0, nil, replication.ErrInRecovery, false},
		{"for minutes", true, renewalPatience - time.Second, nil, password, true},
		{"for too long", true, renewalPatience, nil, password, false},
		{"another right", true, 0, nil, &sink.AccessError{Right: "Write"}, false},
		{"another set-up", true, 0, nil, &sink.SetupError{}, false},
		{"a command", true, 0, &sink.OneShot{}, password, false},
	} {
		s := NewSupervisor(Config{Kafka: sink.Config{OneShot: c.once}})
		s.loggedIn = c.loggedIn
		if c.since > 0 {
			s.refusedSince = time.Now().Add(-c.since)
		}
		if got := s.renewing(c.err); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
