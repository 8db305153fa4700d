package virtual

import (
	"testing"
	"testing/synctest"
	"time"
)

// A first start that is cut off behind any of its statements is carried on by the
// next one. It had removed the publication under a slot that was there, after
// which every start stopped for good (seed 10538).
func TestASetUpThatIsCutOff(t *testing.T) {
	if !tagged {
		t.Skip(whyTagged)
	}
	for _, statement := range []string{"CREATE PUBLICATION", "SELECT lsn::text FROM pg_create_logical_replication_slot", "RESET statement_timeout"} {
		t.Run(statement, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := newWorld(1)
				if err != nil {
					t.Fatal(err)
				}
				defer w.close()
				w.postgres.LoseAnswer(statement)
				w.startInstance()
				time.Sleep(10 * time.Second)
				newLoad(w).commit(3)
				if w.settle() {
					w.judge()
				}
				if restarts := w.restarts(); restarts == 0 || w.counts.Rows != 3 {
					w.fail("%d restarts, %d rows arrived", restarts, w.counts.Rows)
				}
				for _, failure := range w.broken() {
					t.Error(failure)
				}
			})
		})
	}
}
