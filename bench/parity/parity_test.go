package main

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m).Run()) }

// TestParity is make parity.
func TestParity(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	for _, tool := range []string{javaTool("javac"), "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv(testenv.EnvRequireReal) == "1" {
				t.Fatal("no Debezium here:", err)
			}
			t.Skip("skipped: no Debezium here:", err)
		}
	}
	themes, reasons := load(t)
	r := &run{groups: groupsOf(themes), javaLog: io.Discard}
	r.pg, r.kafka = testenv.NewPostgres(t, postgresOptions), testenv.NewKafka(t, testenv.KafkaOptions{})
	var err error
	if r.binary, err = service.Build(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	v, err := r.all(t.Context(), reasons)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.wrong(); err != nil {
		v.tell()
		t.Error(err)
	}
}
