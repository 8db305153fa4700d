package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// outcome is a test that records how it was ended, in place of ending.
type outcome struct {
	testing.TB
	skipped, failed string
}

func (o *outcome) Helper()                        {}
func (o *outcome) Context() context.Context       { return context.Background() }
func (o *outcome) Skipf(format string, a ...any)  { o.skipped = fmt.Sprintf(format, a...); panic(o) }
func (o *outcome) Fatalf(format string, a ...any) { o.failed = fmt.Sprintf(format, a...); panic(o) }

func endOf(test func(t testing.TB)) (o *outcome) {
	o = &outcome{}
	defer func() {
		if recovered := recover(); recovered != nil && recovered != any(o) {
			panic(recovered)
		}
	}()
	test(o)
	return o
}

func TestWhatCannotBeHad(t *testing.T) {
	t.Setenv(EnvFrom, Given)
	t.Setenv(EnvPostgresURL, "")
	t.Setenv(EnvPostgresURL+"_16", "")
	t.Setenv(EnvKafkaBrokers, "")
	tests := map[string]struct {
		start func(t testing.TB)
		want  string
	}{
		"postgres": {
			func(t testing.TB) { NewPostgres(t, PGOptions{Major: 16}) },
			"no PostgreSQL 16 here: given: WALSTREAM_TEST_POSTGRES_URL is not set; docker: left out by WALSTREAM_TEST_FROM=given; native: left out",
		},
		"kafka": {
			func(t testing.TB) { NewKafka(t, KafkaOptions{Real: true}) },
			"no Kafka here: given: WALSTREAM_TEST_KAFKA_BROKERS is not set; docker: left out",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvRequireReal, "")
			if end := endOf(test.start); !strings.Contains(end.skipped, test.want) || strings.Contains(end.skipped, "\n") {
				t.Errorf("skipped with %q, failed with %q; want one line with %q", end.skipped, end.failed, test.want)
			}
			t.Setenv(EnvRequireReal, "1")
			if end := endOf(test.start); !strings.Contains(end.failed, test.want) {
				t.Errorf("required: skipped with %q, failed with %q; want %q", end.skipped, end.failed, test.want)
			}
		})
	}
}

// A server that is there but broken fails the test and is not passed over.
func TestFirstOf(t *testing.T) {
	broken := errors.New("broken")
	shut := func() (int, error) { return 0, closed("shut") }
	fails := func() (int, error) { return 0, broken }
	works := func() (int, error) { return 7, nil }
	if got, err := firstOf("x", way[int]{Given, shut}, way[int]{Native, works}); got != 7 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := firstOf("x", way[int]{Given, fails}, way[int]{Native, works}); !errors.Is(err, broken) {
		t.Errorf("%d, %v", got, err)
	}
	var unavailable *UnavailableError
	if got, err := firstOf("x", way[int]{Given, shut}); !errors.As(err, &unavailable) {
		t.Errorf("%d, %v", got, err)
	}
}

func TestGivenPostgres(t *testing.T) {
	p := SharedPostgres(t, OldestMajor)
	t.Setenv(EnvFrom, Given)
	t.Setenv(EnvPostgresURL, p.DSN("postgres"))
	for _, major := range []int{0, OldestMajor} {
		given, err := startPostgres(t.Context(), PGOptions{Major: major}, true)
		if err != nil {
			t.Fatal(err)
		}
		if given.Major != OldestMajor || given.From != Given || given.DSN("") != p.DSN("postgres") {
			t.Errorf("major %d from %s at %s, want %s", given.Major, given.From, given.DSN(""), p.DSN("postgres"))
		}
		if err := given.Stop("fast"); err == nil {
			t.Error("a given server was stopped")
		}
	}
	t.Setenv(EnvPostgresURL+"_18", "")
	for what, o := range map[string]PGOptions{"another major": {Major: 18}, "a server of its own": {}} {
		var unavailable *UnavailableError
		if _, err := startPostgres(t.Context(), o, o.Major != 0); !errors.As(err, &unavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestMajors(t *testing.T) {
	t.Setenv(EnvMajors, "")
	if got := Majors(); !slices.Equal(got, []int{15, 18}) {
		t.Errorf("%v", got)
	}
	t.Setenv(EnvMajors, "16, 17")
	if got := Majors(); !slices.Equal(got, []int{16, 17}) {
		t.Errorf("%v", got)
	}
}

// Several processes that meet an empty cache prepare each thing once.
func TestCacheIsBuiltOnce(t *testing.T) {
	if len(installed()) == 0 {
		t.Skip("skipped: no PostgreSQL is installed, and this test would fetch one each time")
	}
	cache, err := os.MkdirTemp("", "testenv-cache-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(cache) })
	if err := os.Chmod(cache, 0o755); err != nil { // nobody must get in
		t.Fatal(err)
	}
	var processes sync.WaitGroup
	for range 3 {
		processes.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), EnvCache+"="+cache, "TESTENV_ONCE=1")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if out, err := cmd.Output(); err != nil {
				t.Errorf("%v: %s%s", err, out, stderr.String())
			}
		})
	}
	processes.Wait()
	templates, _ := filepath.Glob(filepath.Join(cache, "postgres", "template-*", "data", "PG_VERSION"))
	left, _ := filepath.Glob(filepath.Join(cache, "postgres", "*.building"))
	if len(templates) != 1 || len(left) != 0 {
		t.Errorf("templates %v, left half-built %v", templates, left)
	}
}

// startOnce is what the test above runs: a program that starts a server of the
// oldest major that is installed.
func startOnce() {
	for major := OldestMajor; major <= NewestMajor; major++ {
		if _, ok := installed()[major]; !ok {
			continue
		}
		p, err := StartPostgres(context.Background(), PGOptions{Major: major})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		p.Close()
		os.Exit(0)
	}
	os.Exit(1)
}
