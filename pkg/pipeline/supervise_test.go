package pipeline

import (
	"testing"
	"time"
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
