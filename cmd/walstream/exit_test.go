package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// What the servers refuse at the door has an exit code that says where to look.
func TestExitCodesOfTheDoor(t *testing.T) {
	right := &replication.RightError{What: "the REPLICATION attribute", SQL: "ALTER ROLE x REPLICATION;"}
	for _, c := range []struct {
		err         error
		stop, check int // exit codes of run and check
	}{
		{right, exitRights, exitRights},
		{replication.ErrAuthentication, exitRights, exitRights},
		{replication.ErrNoDatabase, exitPreflight, exitPreflight},
		{replication.ErrTLS, exitPreflight, exitPreflight},
		{replication.ErrAddress, exitConfig, exitPreflight},
		{&sink.CheckpointError{Topic: "t", Err: errors.New("no JSON")}, exitGap, exitPreflight},
	} {
		err := fmt.Errorf("open: %w", c.err)
		if got := exitCode(classified(err)); got != c.stop {
			t.Errorf("%v: exit code %d, want %d", err, got, c.stop)
		}
		found := []replication.Finding{{Status: replication.StatusOK}, {Status: replication.StatusFail, Err: err}}
		if got := exitCode(verdict(found)); got != c.check {
			t.Errorf("check, %v: exit code %d, want %d", err, got, c.check)
		}
	}
}
