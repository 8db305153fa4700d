package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// The whole drill, small: it keeps the tool working.
func TestDrill(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	pg := testenv.NewPostgres(t, postgresOptions)
	if pg.DataDir == "" {
		t.Skip("the server's data cannot be reached here")
	}
	kafka := testenv.NewKafka(t, kafkaOptions)
	binary, err := service.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	report, err := run(t.Context(), options{rate: 100, load: time.Second, binary: binary, log: filepath.Join(t.TempDir(), "log"), say: t.Logf}, pg, kafka)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Windows) != 3 || report.Rows < 100 {
		t.Errorf("%+v", report)
	}
}
