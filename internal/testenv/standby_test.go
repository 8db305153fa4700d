package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// A standby is made of a server that goes on, follows it, takes its place, and is
// followed by the next one.
func TestStandby(t *testing.T) {
	t.Parallel()
	first := NewPostgres(t, PGOptions{})
	if first.DataDir == "" {
		t.Skip("the server's data cannot be reached here")
	}
	ctx := t.Context()
	if err := first.Exec(ctx, "", `CREATE TABLE kept (i int)`, `INSERT INTO kept VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	second := NewStandby(t, first, StandbyOptions{})
	for name := range map[string]bool{"postmaster.pid": true, "standby.signal": true} {
		if !exists(filepath.Join(second.DataDir, name)) {
			t.Errorf("no %s in the standby's data", name)
		}
	}
	if err := first.Exec(ctx, "", `INSERT INTO kept VALUES (2)`); err != nil {
		t.Fatal(err)
	}
	if err := second.CaughtUp(ctx, first); err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := second.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	if err := second.Exec(ctx, "", `INSERT INTO kept VALUES (3)`); err != nil {
		t.Fatal(err)
	}
	third := NewStandby(t, second, StandbyOptions{})
	if err := third.CaughtUp(ctx, second); err != nil {
		t.Fatal(err)
	}
	if got := query(t, third.DSN(""), `SELECT string_agg(i::text, ',' ORDER BY i) FROM kept`); got != "1,2,3" {
		t.Errorf("the third server has %s", got)
	}
	data := third.DataDir
	third.Close()
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the standby's data stays behind (%v)", err)
	}
}
