package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/walstream/walstream/internal/testenv"
)

var standbyCases = []struct {
	setting, name string
	want          bool
}{
	{``, "bank.s", false},
	{`*`, "bank.s", true},
	{`"*"`, "bank.s", true},
	{`a, *`, "bank.s", true},
	{`FIRST 1 (*)`, "bank.s", true},
	{`2(*)`, "bank.s", true},
	{`s1`, "s1", true},
	{`S1`, "s1", true},
	{`s1`, "s2", false},
	{`s1,s2`, "s2", true},
	{`any 1 (s1, "bank.s")`, "bank.s", true},
	{`ANY 2(s1,s2,s3)`, "s3", true},
	{`first 1 (s1)`, "first", false},
	{`1 (s1)`, "1", false},
	{`1 (1)`, "1", true},
	{`"a""b"`, `a"b`, true},
	{`"a,b", c`, "a,b", true},
	{`"a,b", c`, "b", false},
	{` s1 `, "s1", true},
	{`"(x"`, "(x", true},
	{strings.Repeat("x", 63), strings.Repeat("x", 70), true},
}

func TestMatchesStandbyNames(t *testing.T) {
	for _, c := range standbyCases {
		got, err := MatchesStandbyNames(c.setting, c.name)
		if err != nil || got != c.want {
			t.Errorf("%q and application_name %q: got %v, %v", c.setting, c.name, got, err)
		}
	}
	for _, broken := range []string{`"x`, `a b`, `1 2 3 (a)`, `1 (a`} {
		if _, err := MatchesStandbyNames(broken, "x"); err == nil {
			t.Errorf("%q was understood", broken)
		}
	}
}

// TestServerTakesTheStandbyNames: the table above holds only what a server
// accepts as the setting.
func TestServerTakesTheStandbyNames(t *testing.T) {
	server := testenv.SharedPostgres(t, 0)
	conn := (&env{t: t, server: server, dsn: server.CreateDatabase(t)}).connect("")
	for _, c := range standbyCases {
		// Refused as a setting of a session, but only after it was parsed.
		_, err := conn.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE postgres SET synchronous_standby_names = %s", quoteLiteral(c.setting)))
		if state := sqlState(err); state != "55P02" {
			t.Errorf("%q: %v (%s)", c.setting, err, state)
		}
	}
}

func FuzzStandbyNames(f *testing.F) {
	for _, c := range standbyCases {
		f.Add(c.setting, c.name)
	}
	f.Fuzz(func(t *testing.T, setting, name string) {
		_, _ = MatchesStandbyNames(setting, name)
		// A quoted name is found whatever is in it.
		if name == "" || len(name) > maxNameLength {
			return
		}
		list := `any 1 (a, "` + strings.ReplaceAll(name, `"`, `""`) + `")`
		if ok, err := MatchesStandbyNames(list, name); !ok || err != nil {
			t.Fatalf("%s and %q: %v, %v", list, name, ok, err)
		}
	})
}
