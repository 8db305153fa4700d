package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

const testEvents = 200

// play runs the demo and shows what it wrote, which also goes to watch.
func play(t *testing.T, until context.Context, o options, watch io.Writer) (*Verdict, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var written bytes.Buffer
	verdict, err := run(ctx, until, o, &screen{out: io.MultiWriter(&written, watch)})
	t.Logf("the demo wrote:\n%s", written.String())
	var unavailable *testenv.UnavailableError
	if errors.As(err, &unavailable) && os.Getenv(testenv.EnvRequireReal) == "" {
		t.Skipf("skipped: %v", err)
	}
	return verdict, err
}

// onGiven are options for servers that are not the demo's.
func onGiven(t *testing.T) options {
	t.Helper()
	_, brokers := testenv.NewKfake(t)
	return options{
		postgres: testenv.SharedPostgres(t, 0).DSN(""), brokers: brokers,
		database: "bank_demo", topic: "deposits_demo", events: testEvents, rate: 2000,
	}
}

func TestDemo(t *testing.T) {
	verdict, err := play(t, t.Context(), options{database: "bank", topic: "deposits", events: testEvents, rate: 2000}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if verdict.Committed != testEvents || verdict.Published != testEvents || verdict.P50 <= 0 || verdict.P99 < verdict.P50 {
		t.Errorf("verdict %+v, want %d published", verdict, testEvents)
	}
}

// On servers that are somebody's, the demo leaves nothing behind.
func TestDemoRemovesWhatItMade(t *testing.T) {
	o := onGiven(t)
	before := holdings(t, o)
	verdict, err := play(t, t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if verdict.Published != testEvents {
		t.Errorf("verdict %+v, want %d published", verdict, testEvents)
	}
	if after := holdings(t, o); !slices.Equal(before, after) {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
}

// What was there before is neither used nor removed.
func TestDemoRefusesWhatItDidNotMake(t *testing.T) {
	o := onGiven(t)
	db, err := pgx.Connect(t.Context(), o.postgres)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(context.Background()) })
	if _, err := db.Exec(t.Context(), "CREATE DATABASE bank_demo"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec(context.Background(), "DROP DATABASE bank_demo"); err != nil {
			t.Errorf("the demo removed a database that it did not make: %v", err)
		}
	})
	_, err = play(t, t.Context(), o, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `database "bank_demo": DROP DATABASE bank_demo`) {
		t.Errorf("error %v, want one about the database that exists", err)
	}
}

// A walstream that dies ends the demo, which still cleans up.
func TestDemoWithoutWalstream(t *testing.T) {
	o := onGiven(t)
	program, err := exec.LookPath("false")
	if err != nil {
		t.Skip("skipped: no program here that does nothing but fail")
	}
	t.Setenv(service.EnvBinary, program)
	before := holdings(t, o)
	if _, err := play(t, t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), "walstream ended") {
		t.Errorf("error %v, want one about walstream", err)
	}
	if after := holdings(t, o); !slices.Equal(before, after) {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
}

// onSight calls a function when a text is written.
type onSight struct {
	text string
	then func()
}

func (o onSight) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(o.text)) {
		o.then()
	}
	return len(p), nil
}

// Ctrl-C ends the deposits; those that were made come out.
func TestDemoInterrupted(t *testing.T) {
	o := onGiven(t)
	o.events = 0
	until, interrupt := context.WithCancelCause(t.Context())
	verdict, err := play(t, until, o, onSight{"events/s", func() { interrupt(errInterrupted) }})
	if err != nil {
		t.Fatal(err)
	}
	if verdict.Committed < 2 || verdict.Published != verdict.Committed {
		t.Errorf("verdict %+v, want more than the first deposit, and all published", verdict)
	}
}

// Ctrl-C while the servers start ends the demo without a verdict.
func TestDemoInterruptedAtOnce(t *testing.T) {
	until, interrupt := context.WithCancelCause(t.Context())
	interrupt(errInterrupted)
	verdict, err := play(t, until, options{database: "bank", topic: "deposits", rate: 2000}, io.Discard)
	if verdict != nil || !errors.Is(err, errInterrupted) {
		t.Errorf("verdict %v, error %v, want the interruption alone", verdict, err)
	}
}

// holdings are the names of what servers keep.
func holdings(t *testing.T, o options) []string {
	t.Helper()
	db, err := pgx.Connect(t.Context(), o.postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	rows, err := db.Query(t.Context(), `
		SELECT 'database ' || datname FROM pg_database UNION ALL
		SELECT 'role ' || rolname FROM pg_roles UNION ALL
		SELECT 'slot ' || slot_name FROM pg_replication_slots ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(o.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(names, topics.Names()...)
}
