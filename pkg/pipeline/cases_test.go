package pipeline

import "testing"

// The field cases that concern the core, each a script that reads as the case
// does. What they need of the parts around it is tested there.

func TestC01KeepaliveWhileRowsInFlight(t *testing.T) { runScript(t, "testdata/cases/c01.txt") }

func TestC03LargeTransactionPartlyAcknowledged(t *testing.T) {
	runScript(t, "testdata/cases/c03.txt")
}

func TestC05LateCommits(t *testing.T) { runScript(t, "testdata/cases/c05.txt") }

func TestC06ContiguousEdge(t *testing.T) { runScript(t, "testdata/cases/c06.txt") }
