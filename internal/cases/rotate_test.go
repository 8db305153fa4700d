package cases

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// Passwords and certificates rotate under a living service: no restart, nothing
// lost, nothing twice.

// cut ends every session that walstream has.
func (r *rig) cut() {
	r.t.Helper()
	r.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, r.pipeline)
}

// restarts of all kinds.
func restarts(st service.Status) (n uint64) {
	for _, count := range st.Restarts {
		n += count
	}
	return n
}

// again waits until the service has begun anew and streams.
func (r *rig) again(s *service.Service, before uint64) {
	r.t.Helper()
	_, err := s.WaitFor(r.ctx, "streaming again", func(st service.Status) bool { return st.State == "streaming" && restarts(st) > before })
	r.check(err)
}

func (r *rig) restartsOf(s *service.Service) uint64 {
	r.t.Helper()
	st, err := s.Status(r.ctx)
	r.check(err)
	return restarts(st)
}

// waitsForCredentials waits until the service has waited for new credentials.
func (r *rig) waitsForCredentials(s *service.Service) {
	r.t.Helper()
	_, err := s.WaitFor(r.ctx, "waiting for new credentials", func(st service.Status) bool { return st.State == "waiting" && st.Restarts["credentials"] > 0 })
	r.check(err)
}

// loginAs is the rig's address for another user.
func (r *rig) loginAs(user, password string, query url.Values) string {
	r.t.Helper()
	at, err := url.Parse(r.dsn)
	r.check(err)
	at.User = url.User(user)
	if password != "" {
		at.User = url.UserPassword(user, password)
	}
	all := at.Query()
	for name, values := range query {
		all[name] = values
	}
	at.RawQuery = all.Encode()
	return at.String()
}

func save(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// A password of PostgreSQL rotates in --postgres-password-file and in libpq's
// password file; while the file is away the service waits and says so.
func TestC60PostgresPasswordRotates(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	for name, form := range map[string]func(r *rig, file, role string) (args []string, content func(password string) string){
		"postgres-password-file": func(r *rig, file, role string) ([]string, func(string) string) {
			return []string{"--postgres", r.loginAs(role, "", nil), "--postgres-password-file", file},
				func(password string) string { return password + "\n" }
		},
		"passfile": func(r *rig, file, role string) ([]string, func(string) string) {
			return []string{"--postgres", r.loginAs(role, "", url.Values{"passfile": {file}})},
				func(password string) string {
					return "127.0.0.1:*:*:" + role + ":" + strings.ReplaceAll(password, ":", `\:`) + "\n"
				}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
			role := r.pipeline[:min(len(r.pipeline), 40)]
			first, second := "one@:%'\"\\", "two@:%'\"\\"
			r.exec(fmt.Sprintf(`CREATE ROLE %s LOGIN REPLICATION PASSWORD %s`, role, literal(first)))
			t.Cleanup(func() { _, _ = r.db.Exec(r.ctx, `DROP ROLE `+role) })
			r.exec(fmt.Sprintf(`ALTER TABLE bank_outbox OWNER TO %s`, role))
			r.exec(`DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO ` + role + `', current_database()); END $$`)
			defer r.exec(`DROP OWNED BY ` + role)
			file := filepath.Join(t.TempDir(), "password")
			args, content := form(r, file, role)
			save(t, file, content(first))
			s := r.warm(args...)

			before := r.restartsOf(s)
			r.exec(fmt.Sprintf(`ALTER ROLE %s PASSWORD %s`, role, literal(second)))
			if name == "passfile" { // the file follows later, as in a pod
				r.cut()
				r.waitsForCredentials(s)
			}
			save(t, file, content(second))
			r.cut()
			r.put(5)
			r.again(s, before)
			r.untilConfirmed()

			if name == "postgres-password-file" {
				r.check(os.Remove(file))
				r.cut()
				_, err := s.WaitFor(r.ctx, "waiting for the file", func(st service.Status) bool {
					return strings.Contains(st.Reason, "postgres-password-file cannot be read") && st.Restarts["credentials"] > 0
				})
				r.check(err)
				r.put(5)
				save(t, file, content(second))
				r.check(s.WaitStreaming(r.ctx))
				r.untilConfirmed()
			}
			for _, secret := range []string{first, second, url.QueryEscape(second)} {
				if strings.Contains(s.Log(), secret) {
					t.Error("a password is in the log")
				}
			}
			r.check(s.Stop(10e9))
			if duplicates := r.verify(); duplicates > 0 {
				t.Logf("%d duplicates", duplicates)
			}
		})
	}
}

func literal(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}

// withTLS switches it on in a native server, with the authority's certificate.
func withTLS(t *testing.T, pg *testenv.Postgres, authority *testenv.Authority, leaf testenv.Leaf) {
	t.Helper()
	certificate, key := authority.Sign(t, leaf)
	info, err := os.Stat(pg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"server.crt": certificate, "server.key": key, "ca.crt": authority.PEM()} {
		path := save(t, filepath.Join(pg.DataDir, name), content)
		if err := own(path, info); err != nil {
			t.Fatal(err)
		}
	}
	if err := pg.Exec(t.Context(), "", `ALTER SYSTEM SET ssl = on`, `ALTER SYSTEM SET ssl_ca_file = 'ca.crt'`, `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
}

// The certificates of both ends of the sessions rotate, to another authority.
func TestC31PostgresCertificatesRotate(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t, testenv.PGOptions{HBA: []string{
		"hostssl all walstream_cert 127.0.0.1/32 cert", "hostssl replication walstream_cert 127.0.0.1/32 cert",
		"host all walstream_cert 127.0.0.1/32 reject",
	}})
	directory, authority := t.TempDir(), testenv.NewAuthority(t)
	withTLS(t, pg, authority, testenv.Leaf{Name: "postgres"})
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	r.exec(`CREATE ROLE walstream_cert LOGIN REPLICATION SUPERUSER`)
	leaf := testenv.Leaf{Name: "walstream_cert"}
	ca := authority.WriteCA(t, directory)
	certificate, key := authority.Write(t, directory, leaf)
	s := r.warm("--postgres", r.loginAs("walstream_cert", "", url.Values{
		"sslmode": {"verify-full"}, "sslrootcert": {ca}, "sslcert": {certificate}, "sslkey": {key},
	}))
	var encrypted, all int
	r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FILTER (WHERE s.ssl), count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.application_name = $1`, r.pipeline).Scan(&encrypted, &all))
	if all < 2 || encrypted != all {
		t.Errorf("%d of %d sessions are encrypted", encrypted, all)
	}
	before := r.restartsOf(s)
	other := testenv.NewAuthority(t)
	withTLS(t, pg, other, testenv.Leaf{Name: "postgres"})
	other.WriteCA(t, directory)
	other.Write(t, directory, leaf)
	r.cut()
	r.put(5)
	r.again(s, before)
	r.untilConfirmed()
	r.check(s.Stop(10e9))
	if duplicates := r.verify(); duplicates > 0 {
		t.Logf("%d duplicates", duplicates)
	}
}

// secured is a broker that lets in by its proxy who has a certificate of the
// authority and a password, over TLS.
func secured(t *testing.T, directory string, authority *testenv.Authority, props map[string]string) (*testenv.Kafka, *testenv.Proxy) {
	t.Helper()
	all := map[string]string{
		"listener.security.protocol.map":                      "DIRECT:PLAINTEXT,BEHIND:SASL_SSL,CONTROLLER:PLAINTEXT",
		"listener.name.behind.sasl.enabled.mechanisms":        "SCRAM-SHA-512",
		"listener.name.behind.scram-sha-512.sasl.jaas.config": `org.apache.kafka.common.security.scram.ScramLoginModule required;`,
		"listener.name.behind.ssl.client.auth":                "required",
		"listener.name.behind.ssl.keystore.type":              "PEM",
		"listener.name.behind.ssl.truststore.type":            "PEM",
		"listener.name.behind.ssl.keystore.location":          keystore(t, directory, "broker", authority),
		"listener.name.behind.ssl.truststore.location":        save(t, filepath.Join(directory, "broker-ca.pem"), authority.PEM()),
	}
	for name, value := range props {
		all[name] = value
	}
	kafka := testenv.NewKafka(t, testenv.KafkaOptions{Real: true, Props: all})
	return kafka, kafka.NewProxy(t)
}

// keystore of a broker. Kafka takes a new one only under the old one's name.
func keystore(t *testing.T, directory, name string, authority *testenv.Authority) string {
	t.Helper()
	certificate, key := authority.Sign(t, testenv.Leaf{Name: "broker"})
	return save(t, filepath.Join(directory, name+".pem"), key+certificate)
}

// Kafka's authority, the client's certificate and the password rotate.
func TestC31KafkaCredentialsRotate(t *testing.T) {
	t.Parallel()
	directory, authority := t.TempDir(), testenv.NewAuthority(t)
	kafka, proxy := secured(t, directory, authority, nil)
	pg := testenv.SharedPostgres(t, 0)
	inBoth(t, func(t *testing.T) {
		r := newRig(t, pg, kafka.Brokers)
		r.brokersSeen = proxy.Addrs
		own := t.TempDir()
		password := save(t, filepath.Join(own, "password"), "one\n")
		scram := func(password string) {
			answer, err := r.admin.AlterUserSCRAMs(r.ctx, nil, []kadm.UpsertSCRAM{{User: "writer", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password}})
			r.check(err)
			r.check(answer.Error())
		}
		scram("one")
		ca := authority.WriteCA(t, own)
		certificate, key := authority.Write(t, own, testenv.Leaf{Name: "writer"})
		s := r.warm("--kafka-tls", "true", "--kafka-tls-ca", ca, "--kafka-tls-cert", certificate, "--kafka-tls-key", key,
			"--kafka-sasl-mechanism", "scram-sha-512", "--kafka-sasl-user", "writer", "--kafka-sasl-password-file", password,
			"--stall-timeout", "2s", "--status-interval", "1s")

		scram("two")
		save(t, password, "two\n")
		proxy.Drop()
		r.put(5)
		r.untilConfirmed()

		other := testenv.NewAuthority(t)
		for _, set := range [][2]string{
			{"ssl.truststore.location", save(t, filepath.Join(directory, r.pipeline+"-ca.pem"), other.PEM())},
			{"ssl.keystore.location", keystore(t, directory, r.pipeline, other)},
		} {
			answer, err := r.admin.AlterBrokerConfigs(r.ctx, []kadm.AlterConfig{{Name: "listener.name.behind." + set[0], Value: &set[1]}}, 1)
			r.check(err)
			for _, one := range answer {
				r.check(one.Err)
			}
		}
		authority = other
		r.until("the broker to show the new certificate", func() bool {
			conn, err := tls.Dial("tcp", proxy.Addrs[0], other.Client(t, testenv.Leaf{Name: "writer"}))
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
		proxy.Drop()
		r.put(5)
		r.until("a handshake that fails", func() bool {
			st, err := s.Status(r.ctx)
			r.check(err)
			return strings.Contains(st.Reason, "certificate")
		})
		other.WriteCA(t, own)
		other.Write(t, own, testenv.Leaf{Name: "writer"})
		proxy.Drop()
		r.put(5)
		r.untilConfirmed()
		r.check(s.Stop(10e9))
		if duplicates := r.verify(); duplicates > 0 {
			t.Logf("%d duplicates", duplicates)
		}
	})
}
