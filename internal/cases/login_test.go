package cases

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// Whatever keeps a login out, the start says what lets it in; the server has each
// of the rules.
func TestLoginNamesTheWayIn(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t, testenv.PGOptions{HBA: []string{
		"host all nobody 127.0.0.1/32 trust", "hostssl all carded 127.0.0.1/32 cert", "hostssl all shown 127.0.0.1/32 scram-sha-256 clientcert=verify-ca",
		"host all barred 127.0.0.1/32 reject", "hostnossl all secured 127.0.0.1/32 reject",
	}})
	if pg.DataDir == "" {
		t.Skip("skipped: a server whose files are not at hand")
	}
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	authority, directory := testenv.NewAuthority(t), t.TempDir()
	withTLS(t, pg, authority, testenv.Leaf{Name: "server"})
	for _, role := range []string{"carded", "shown", "barred", "secured", "known"} {
		r.exec(fmt.Sprintf("CREATE ROLE %s LOGIN REPLICATION SUPERUSER PASSWORD '%[1]s-secret'", role))
	}
	at := func(role string, query url.Values) string { return r.loginAs(role, role+"-secret", query) }
	mode := func(sslmode string) url.Values { return url.Values{"sslmode": {sslmode}} }
	card := func(a *testenv.Authority, name string) url.Values {
		certificate, key := a.Write(t, directory, testenv.Leaf{Name: name})
		return url.Values{"sslmode": {"require"}, "sslcert": {certificate}, "sslkey": {key}}
	}
	r.until("TLS", func() bool { // the server takes a moment to read its files
		out, _ := r.command([]string{"check"}, "--postgres", at("secured", mode("require")))
		return !strings.Contains(out, "ssl = on")
	})
	for name, c := range map[string]struct {
		address string
		says    []string
	}{
		"wrong password":            {r.loginAs("known", "wrong-secret", nil), []string{"--postgres-password-file", `ALTER ROLE "known" PASSWORD`, "28P01"}},
		"no such role":              {at("missing", nil), []string{`CREATE ROLE "missing" LOGIN REPLICATION PASSWORD`, "28P01"}},
		"no such role, no password": {at("nobody", nil), []string{`CREATE ROLE "nobody" LOGIN REPLICATION`, "28000"}},
		"no such database":          {strings.Replace(at("known", nil), r.database(), "nowhere", 1), []string{"create it, or name another", "nowhere", "3D000"}},
		"barred":                    {at("barred", nil), []string{"no line of pg_hba.conf", `"barred"`, "for database " + r.database(), "28000"}},
		"without TLS":               {at("secured", nil), []string{"no line of pg_hba.conf", "hostssl"}},
		"no certificate":            {at("shown", mode("require")), []string{"ssl_ca_file", "sslcert"}},
		"another's certificate":     {at("carded", card(authority, "someone")), []string{"pg_ident.conf", "sslcert"}},
		"another authority's":       {at("carded", card(testenv.NewAuthority(t), "carded")), []string{"ssl_ca_file", "sslcert", "does not take the client certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := r.start("--postgres", c.address)
			code, want := r.ends(s, 20*time.Second), 8
			if name == "no such database" {
				want = 3
			}
			if code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			said := strings.ReplaceAll(s.Log(), `\"`, `"`)
			for _, part := range c.says {
				if !strings.Contains(said, part) {
					t.Errorf("it does not say %q:\n%s", part, said)
				}
			}
			if strings.Contains(said, "-secret") {
				t.Errorf("the password is in\n%s", said)
			}
		})
	}
	r.check(r.warm("--postgres", at("carded", card(authority, "carded"))).Stop(20 * time.Second)) // with everything right
}

// database of the rig.
func (r *rig) database() string {
	at, err := url.Parse(r.dsn)
	r.check(err)
	return strings.TrimPrefix(at.Path, "/")
}
