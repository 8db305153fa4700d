package cases

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walstream/walstream/internal/testenv"
)

// tap carries connections to a server, and keeps what clients sent.
type tap struct {
	host, port string
	mu         sync.Mutex
	sent       bytes.Buffer
}

func newTap(t *testing.T, host, upstream string) *tap {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip("no such address here: ", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	p := &tap{host: host, port: port}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.carry(client, upstream)
		}
	}()
	return p
}

func (p *tap) carry(client net.Conn, upstream string) {
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(io.MultiWriter(server, p), client)
	_ = server.Close()
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent.Write(b)
}

func (p *tap) heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent.String()
}

// TestC31PostgresTLS: under verify-full no session of any kind goes out in clear
// or to a server that is not proved, and the error names what failed.
func TestC31PostgresTLS(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t, testenv.PGOptions{})
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	r.exec(`CREATE ROLE inclear LOGIN REPLICATION SUPERUSER PASSWORD 'proved'`)
	directory, authority := t.TempDir(), testenv.NewAuthority(t)
	ca := authority.WriteCA(t, directory)
	server := net.JoinHostPort(pg.Host, fmt.Sprint(pg.Port))
	at, err := url.Parse(r.loginAs("inclear", "proved", nil))
	r.check(err)
	address := func(host, port, ca string) string {
		u := *at
		u.Host, u.RawQuery = net.JoinHostPort(host, port), url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca}}.Encode()
		return u.String()
	}
	for _, c := range append(tlsCases(t, "postgres", "CA file", directory, ca), tlsCase{"server without TLS", "127.0.0.1", ca, testenv.Leaf{}, 3, "ssl = on"}) {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			if c.leaf.Name == "" {
				r.check(pg.Exec(r.ctx, "", `ALTER SYSTEM SET ssl = off`, `SELECT pg_reload_conf()`))
			} else {
				withTLS(t, pg, authority, c.leaf)
			}
			p := newTap(t, c.host, server)
			dsn := address(c.host, p.port, c.ca)
			if c.code == 0 {
				r.slot, r.pipeline = "tls_"+p.port+"_slot", "tls."+p.port
				r.exec(`DROP PUBLICATION IF EXISTS tls_` + p.port + `_pub`)
				s := r.warm("--postgres", dsn)
				var encrypted, all int
				r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FILTER (WHERE s.ssl), count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.usename = 'inclear'`).Scan(&encrypted, &all))
				if all < 2 || encrypted != all {
					t.Errorf("%d of %d sessions are encrypted", encrypted, all)
				}
				r.check(s.Stop(10 * time.Second))
			} else {
				out, code := "", 0
				r.until("check to say "+c.says, func() bool { // the server takes a moment to read its files
					out, code = r.command([]string{"check"}, "--postgres", dsn)
					return strings.Contains(out, c.says)
				})
				if code != c.code {
					t.Errorf("check ends with %d, want %d:\n%s", code, c.code, out)
				}
				s := r.start("--postgres", dsn)
				if code := r.ends(s, 20*time.Second); code != c.code {
					t.Errorf("it ends with %d, want %d:\n%s", code, c.code, s.Log())
				}
				if !strings.Contains(s.Log(), c.says) {
					t.Errorf("it does not say %q:\n%s", c.says, s.Log())
				}
			}
			if text := p.heard(); strings.Contains(text, "inclear") || c.code != 2 && text == "" {
				t.Errorf("%d bytes went out, some of them in clear", len(text))
			}
		})
	}
}

// tlsCase is a server's certificate, the authority that walstream is given, and what
// comes of it.
type tlsCase struct {
	name, host, ca string
	leaf           testenv.Leaf
	code           int
	says           string
}

// tlsCases are those of both sides. lacking says what is said where the file of the
// authority is not there.
func tlsCases(t *testing.T, server, lacking, directory, ca string) []tlsCase {
	t.Helper()
	other := save(t, filepath.Join(directory, "other.crt"), testenv.NewAuthority(t).PEM())
	good, past := testenv.Leaf{Name: server}, time.Now().Add(-time.Minute)
	return []tlsCase{
		{"private authority", "127.0.0.1", ca, good, 0, ""},
		{"IPv6 literal", "::1", ca, good, 0, ""},
		{"another authority", "127.0.0.1", other, good, 3, "unknown authority"},
		{"wrong host name", "127.0.0.1", ca, testenv.Leaf{Name: server, Hosts: []string{"elsewhere.example"}}, 3, "127.0.0.1"},
		{"expired", "127.0.0.1", ca, testenv.Leaf{Name: server, From: past.Add(-time.Hour), Until: past}, 3, "expired"},
		{"authority's file missing", "127.0.0.1", filepath.Join(directory, "gone"), good, 2, lacking},
	}
}

// waits instead of an exit code.
const waits = -1

// TestC31KafkaTLS: the same on Kafka's side.
func TestC31KafkaTLS(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	directory, authority := t.TempDir(), testenv.NewAuthority(t)
	ca := authority.WriteCA(t, directory)
	for _, c := range append(tlsCases(t, "kafka", "kafka-tls-ca", directory, ca), tlsCase{"broker without TLS", "127.0.0.1", ca, testenv.Leaf{}, waits, "is TLS misconfigured"}) {
		t.Run(c.name, func(t *testing.T) {
			options := []kfake.Opt{
				kfake.EnableSASL(), kfake.Superuser("PLAIN", "inclear", "proved"), kfake.Superuser("PLAIN", "admin", "admin"),
				kfake.ListenFn(func(network, address string) (net.Listener, error) {
					_, port, _ := net.SplitHostPort(address)
					return net.Listen(network, net.JoinHostPort(c.host, port))
				}),
			}
			if c.leaf.Name != "" {
				options = append(options, kfake.TLS(authority.Server(t, c.leaf)))
			}
			brokers := testenv.SharedKafka(t).Brokers
			if c.code != waits {
				_, brokers = testenv.NewKfake(t, options...)
			}
			r := newRig(t, pg, brokers)
			p := newTap(t, c.host, brokers[0])
			if c.code != 0 { // brokers tell their own address, so only what fails at the first comes by
				r.brokersSeen = []string{net.JoinHostPort(p.host, p.port)}
			}
			args := []string{"--kafka-tls", "true", "--kafka-tls-ca", c.ca, "--kafka-sasl-mechanism", "plain", "--kafka-sasl-user", "inclear", "--kafka-sasl-password", "proved"}
			s := r.start(args...)
			if c.code == 0 {
				r.check(s.WaitStreaming(r.ctx))
				r.put(1)
				r.untilConfirmed()
				r.check(s.Stop(10 * time.Second))
				return
			}
			if c.code == waits { // a broker that is coming up may hang up, too
				r.until(c.says, func() bool { return strings.Contains(s.Log(), c.says) })
				s.Kill()
			} else if code := r.ends(s, 40*time.Second); code != c.code || !strings.Contains(s.Log(), c.says) {
				t.Errorf("it ends with %d, want %d and %q:\n%s", code, c.code, c.says, s.Log())
			}
			if text := p.heard(); strings.Contains(text, "inclear") || strings.Contains(text, "walstream") || c.code != 2 && !strings.HasPrefix(text, "\x16\x03") {
				t.Errorf("%d bytes went out, some of them in clear", len(text))
			}
		})
	}
}
