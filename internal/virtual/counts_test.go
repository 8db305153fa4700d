package virtual

import (
	"maps"
	"reflect"
	"testing"
	"time"
)

// counts show that the test met what it is there for.
type counts struct {
	Settled, Faults                  int
	Rows, Transactions, KafkaCommits int
	Splits, Duplicates               int
	SlowestSettle, SlowestStop       time.Duration
	// Restarts by reason, of all instances.
	Restarts map[string]int
}

func (c *counts) add(other *counts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for n := range sum.NumField() {
		switch to, from := sum.Field(n), more.Field(n); {
		case to.Type() == reflect.TypeFor[time.Duration]():
			to.SetInt(max(to.Int(), from.Int()))
		case to.CanInt():
			to.SetInt(to.Int() + from.Int())
		}
	}
	if c.Restarts == nil {
		c.Restarts = map[string]int{}
	}
	for reason := range maps.Keys(other.Restarts) {
		c.Restarts[reason] += other.Restarts[reason]
	}
}

// wanted are the reasons to start again that a run of many seeds must meet.
var wanted = []string{"slot-busy", "fenced", "server-stopping", "silent", "postgres", "kafka"}

func (c *counts) requireAll(t *testing.T) {
	v := reflect.ValueOf(*c)
	for n := range v.NumField() {
		if v.Field(n).IsZero() {
			t.Errorf("never met: %s", v.Type().Field(n).Name)
		}
	}
	for _, reason := range wanted {
		if c.Restarts[reason] == 0 {
			t.Errorf("no instance ever started again for the reason %s", reason)
		}
	}
}

// countRestarts of every instance there was.
func (w *world) countRestarts() {
	w.counts.Restarts = map[string]int{}
	for _, i := range w.instances {
		for reason, n := range i.supervisor.Progress().Restarts {
			w.counts.Restarts[reason] += int(n)
		}
	}
}
