// Package tooltest is what the tests of the programs in bench begin with.
package tooltest

import (
	"testing"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// Servers of the test's own, and the binary to run on them. A test of a whole run is
// skipped under -short, and where real servers cannot be had.
func Servers(t *testing.T, p testenv.PGOptions, k testenv.KafkaOptions) (pg *testenv.Postgres, kafka *testenv.Kafka, binary string) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	pg, kafka = testenv.NewPostgres(t, p), testenv.NewKafka(t, k)
	binary, err := service.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return pg, kafka, binary
}
