package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"walstream": main})
}

// TestScripts runs the command as a user does; what it prints is in the scripts.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PGUSER", "app") // else it is the name of whoever runs the test
			e.Setenv("PGHOST", "db")
			return nil
		},
	})
}

// cleanPG keeps the PG* variables of whoever runs the test out of it.
func cleanPG(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PGUSER", "app")
	t.Setenv("PGHOST", "db")
}

// writeFile makes a settings file and returns its path.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "walstream.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mustLoad loads settings that are right.
func mustLoad(t *testing.T, args, environ []string) *Config {
	t.Helper()
	inv, err := load(args, environ)
	if err != nil {
		t.Fatal(err)
	}
	return inv.config
}

// faultsOf loads settings that are wrong.
func faultsOf(t *testing.T, args, environ []string) string {
	t.Helper()
	_, err := load(args, environ)
	if err == nil {
		t.Fatalf("load(%q, %q) found no fault", args, environ)
	}
	if code := exitCode(err); code != exitConfig {
		t.Errorf("exit code %d, want %d", code, exitConfig)
	}
	return err.Error()
}
