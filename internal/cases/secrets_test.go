package cases

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// nasty secrets have what URLs, DSNs, JSON and shells mind, and no piece in common.
const (
	nastyPostgres = `pg@:/%w'"\ ?#&=d+one`
	nastySASL     = `sa@:/%w'"\?#&=d+two`
	nastyRegistry = `re@:/%w'"\?#&=d+three`
	nastyToken    = `http-token-four/+=`
)

// spellingsOf a secret, as it may stand in a text.
func spellingsOf(secret string) map[string]string {
	query, quoted := url.QueryEscape(secret), fmt.Sprintf("%q", secret)
	text, _ := json.Marshal(secret)
	all := map[string]string{
		"plain": secret, "of a query": query, "of a path": url.PathEscape(secret), "with %20": strings.ReplaceAll(query, "+", "%20"),
		"of a user": strings.TrimPrefix(url.UserPassword("", secret).String(), ":"), "JSON": strings.Trim(string(text), `"`),
		"quoted": quoted[1 : len(quoted)-1], "DSN": strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(secret), "SQL": strings.ReplaceAll(secret, "'", "''"),
		"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"bytes": strings.Trim(fmt.Sprint([]byte(secret)), "[]"),
	}
	for _, name := range []string{"of a query", "of a path", "with %20", "of a user"} {
		all[name+", lower"] = strings.ToLower(all[name])
	}
	for shift := range 3 { // wherever it begins within three bytes
		whole := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + secret))
		all[fmt.Sprintf("base64 at %d", shift)] = whole[4 : len(whole)-4]
	}
	return all
}

// planted looks for secrets in whatever walstream says.
type planted struct {
	t       *testing.T
	secrets map[string]map[string]string // by name, in all spellings
	looked  int
}

func plant(t *testing.T, secrets ...string) *planted {
	p := &planted{t: t, secrets: map[string]map[string]string{}}
	for _, secret := range secrets {
		p.secrets[secret] = spellingsOf(secret)
	}
	return p
}

func (p *planted) search(where, text string) {
	p.t.Helper()
	p.looked++
	for secret, spellings := range p.secrets {
		for spelling, form := range spellings {
			if i := strings.Index(text, form); i >= 0 {
				p.t.Errorf("%s has %q (%s): ...%s...", where, secret, spelling, text[max(0, i-80):min(len(text), i+len(form)+40)])
				return
			}
		}
	}
}

// TestSearchFinds: a search that cannot find proves nothing.
func TestSearchFinds(t *testing.T) {
	for name, form := range spellingsOf(nastyPostgres) {
		inner := &testing.T{}
		plant(inner, nastyPostgres).search("a text", "before "+form+" behind")
		if !inner.Failed() {
			t.Errorf("%s is not found", name)
		}
	}
}

// locked is a buffer that a child writes while a test reads.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// ways to say PostgreSQL's password, each with the variables it takes.
func (r *rig) waysToSayIt(role, password string) map[string]struct{ args, env []string } {
	r.t.Helper()
	at, err := url.Parse(r.loginAs(role, "", nil))
	r.check(err)
	dsn := fmt.Sprintf("host=%s port=%s dbname=%s user=%s sslmode=disable", at.Hostname(), at.Port(), at.Path[1:], role)
	escaped := strings.ReplaceAll(url.QueryEscape(password), "+", "%20")
	inURL := strings.Replace(at.String(), role+"@", role+":"+escaped+"@", 1)
	keyValue := dsn + " password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "'"
	directory := r.t.TempDir()
	quoted, err := json.Marshal(inURL)
	r.check(err)
	return map[string]struct{ args, env []string }{
		"URL by flag":      {[]string{"--postgres", inURL}, nil},
		"DSN by flag":      {[]string{"--postgres", keyValue}, nil},
		"URL by variable":  {[]string{"--postgres", unset}, []string{"WALSTREAM_POSTGRES=" + inURL}},
		"DSN by variable":  {[]string{"--postgres", unset}, []string{"WALSTREAM_POSTGRES=" + keyValue}},
		"libpq's variable": {[]string{"--postgres", dsn}, []string{"PGPASSWORD=" + password}},
		"settings file":    {[]string{"--postgres", unset, "--config", save(r.t, filepath.Join(directory, "walstream.yaml"), "postgres: "+string(quoted)+"\n")}, nil},
		"password file":    {[]string{"--postgres", dsn, "--postgres-password-file", save(r.t, filepath.Join(directory, "password"), password+"\n")}, nil},
	}
}

// TestC60Secrets: wherever a secret is given, nothing that a running walstream
// shows has it: its log at debug, its answers, a dump of its goroutines, and the
// arguments that every user of the machine can read.
func TestC60Secrets(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	authority := testenv.NewAuthority(t)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized) // and says too much
		fmt.Fprintf(w, `{"error_code":401,"message":"no: %s"}`, r.Header.Get("Authorization"))
	}))
	defer registry.Close()
	_, brokers := testenv.NewKfake(t, kfake.EnableSASL(), kfake.TLS(authority.Server(t, testenv.Leaf{Name: "kafka"})), kfake.Superuser("SCRAM-SHA-256", "writer", nastySASL),
		kfake.Superuser("PLAIN", "admin", "admin"))
	r := newRig(t, pg, brokers)
	role := "secrets_" + r.pipeline[max(0, len(r.pipeline)-9):]
	r.exec(fmt.Sprintf(`CREATE ROLE %s LOGIN REPLICATION SUPERUSER PASSWORD %s`, role, literal(nastyPostgres)))
	t.Cleanup(func() { _, _ = r.db.Exec(r.ctx, `DROP ROLE `+role) })
	directory := t.TempDir()
	certificate, key := authority.Write(t, directory, testenv.Leaf{Name: "writer"})
	keyText, err := os.ReadFile(key)
	r.check(err)
	keyLine := strings.Split(string(keyText), "\n")[1]
	token := save(t, filepath.Join(directory, "token"), nastyToken+"\n")
	secured := []string{
		"--kafka-tls", "true", "--kafka-tls-ca", authority.WriteCA(t, directory), "--kafka-tls-cert", certificate, "--kafka-tls-key", key,
		"--kafka-sasl-mechanism", "scram-sha-256", "--kafka-sasl-user", "writer", "--http-token-file", token, "--log-level", "debug", "--pprof", "true",
	}
	saslFile := save(t, filepath.Join(directory, "sasl"), nastySASL)
	n := 0
	ways := r.waysToSayIt(role, nastyPostgres)
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		way := ways[name]
		n++
		p := plant(t, nastyPostgres, nastySASL, nastyToken, keyLine)
		args, env := append(append([]string{}, secured...), way.args...), way.env
		if n%2 == 0 {
			args = append(args, "--kafka-sasl-password", nastySASL)
		} else {
			args = append(args, "--kafka-sasl-password-file", saslFile)
		}
		r.slot, r.pipeline = fmt.Sprintf("secrets_%d_%s_slot", n, role), fmt.Sprintf("secrets.%d.%s", n, role)
		t.Run(name, func(t *testing.T) {
			p.t = t
			r.lives(p, args, env)
			commands := [][]string{{"config"}, {"check"}}
			if name == "URL by flag" || name == "password file" {
				commands = append(commands, [][]string{
					{"config", "--schema"},
					{"config", "--help"},
					{"check", "--json"},
					{"status"},
					{"status", "--json"},
					{"setup", "--print"},
					{"audit", "--wait=0s"},
					{"dead-letters", "list"},
					{"drop"},
					{"skip"},
				}...)
			}
			for _, words := range commands {
				p.search(strings.Join(words, " "), r.said(words, args, env))
			}
		})
	}
	p := plant(t, nastyRegistry)
	base := append(append([]string{}, secured...), "--kafka-sasl-password-file", saslFile)
	said := r.said([]string{"check"}, append(base, "--registry-url", registry.URL, "--registry-user", "re", "--schema-format", "json"),
		[]string{"WALSTREAM_REGISTRY_PASSWORD=" + nastyRegistry})
	if !strings.Contains(said, "401") {
		t.Errorf("the registry was not asked: %s", said)
	}
	p.search("check of a registry that quotes the login", said)
}

// overlay replaces pairs of flag and value.
func overlay(base, pairs []string) []string {
	out := append([]string{}, pairs...)
	for i := 0; i < len(base); i += 2 {
		if !slices.Contains(pairs, base[i]) {
			out = append(out, base[i], base[i+1])
		}
	}
	return out
}

// lives runs a service and searches all that it shows.
func (r *rig) lives(p *planted, args, env []string) {
	r.t.Helper()
	log := &locked{}
	s, err := service.Start(service.Options{Binary: r.binary, Args: r.args(args...), Env: env, Log: log})
	r.check(err)
	defer s.Kill()
	request := func(path, token string) string {
		request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, "http://"+s.Addr+path, http.NoBody)
		r.check(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return ""
		}
		defer func() { _ = response.Body.Close() }()
		var text bytes.Buffer
		_, _ = text.ReadFrom(response.Body)
		return response.Status + text.String()
	}
	r.until("streaming", func() bool {
		select {
		case <-s.Done():
			p.t.Fatalf("walstream ended:\n%s", log)
		default:
		}
		return strings.Contains(request("/readyz", ""), "streaming")
	})
	for _, path := range []string{
		"/", "/status", "/metrics", "/livez", "/readyz", "/healthz", "/page.js",
		"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/trace?seconds=0.01",
	} {
		p.search("GET "+path, request(path, nastyToken))
		p.search("GET "+path+" without the token", request(path, ""))
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID())); err == nil {
		p.search("the command line", string(line))
	}
	r.check(s.Signal(syscall.SIGQUIT)) // as a panic: all goroutines
	<-s.Done()
	if text := log.String(); !strings.Contains(text, "goroutine ") || !strings.Contains(text, `"debug"`) {
		p.t.Errorf("no dump, or no line at debug:\n%s", text[max(0, len(text)-2000):])
	}
	p.search("the log", log.String())
}

// said is all that a command prints.
func (r *rig) said(words, args, env []string) string {
	r.t.Helper()
	given := append(words, r.args(args...)...)
	cmd := exec.CommandContext(r.ctx, r.binary, given...)
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput() // its code is another test's
	return string(out)
}

// TestC60SecretsInErrors: what goes wrong on the way in quotes no secret.
func TestC60SecretsInErrors(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	kafka, proxy := guarded(t)
	r := newRig(t, pg, kafka.Brokers)
	r.brokersSeen = proxy.Addrs
	directory := t.TempDir()
	good := []string{"--kafka-sasl-mechanism", "plain", "--kafka-sasl-user", "writer", "--kafka-sasl-password", "secret", "--log-level", "debug"}
	with := func(pairs ...string) []string { return overlay(good, pairs) }
	at, err := url.Parse(r.dsn)
	r.check(err)
	address := func(change func(u *url.URL)) string {
		u := *at
		u.User = url.UserPassword("app", nastyPostgres)
		change(&u)
		return u.String()
	}
	token := save(t, filepath.Join(directory, "token"), nastySASL)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"wrong host":     {with("--postgres", address(func(u *url.URL) { u.Host = "db.invalid:5432" })), "db.invalid"},
		"closed port":    {with("--postgres", address(func(u *url.URL) { u.Host = "127.0.0.1:1" })), "127.0.0.1"},
		"wrong password": {with("--postgres", address(func(*url.URL) {})), "refused the login"},
		"no TLS there":   {with("--postgres", address(func(u *url.URL) { u.RawQuery = "sslmode=verify-full" })), "TLS"},
		"a parameter":    {with("--postgres", address(func(u *url.URL) { u.RawQuery = "sslmode=nonsense" })), "sslmode"},
		"SASL password":  {with("--kafka-sasl-password", nastySASL), "login"},
		"SASL mechanism": {with("--kafka-sasl-password", nastySASL, "--kafka-sasl-mechanism", "scram-sha-512"), "login"},
		"TLS of Kafka":   {with("--kafka-sasl-password", nastySASL, "--kafka-tls", "true"), "TLS"},
		"bearer token": {with("--kafka-sasl-mechanism", "oauthbearer", "--kafka-sasl-token-file", token,
			"--kafka-sasl-user", unset, "--kafka-sasl-password", unset), "login"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plant(t, nastyPostgres, nastySASL)
			said := r.said([]string{"check"}, c.args, nil)
			if !strings.Contains(said, c.says) {
				t.Errorf("check does not say %q:\n%s", c.says, said)
			}
			p.search("check", said)
			log := &locked{}
			s, err := service.Start(service.Options{Binary: r.binary, Args: r.args(c.args...), Log: log})
			r.check(err)
			defer s.Kill()
			r.until("an error", func() bool { // it ends, or tries again
				return ended(s.Done()) || strings.Contains(log.String(), `"level":"warn","error"`) || strings.Contains(log.String(), c.says)
			})
			if code, body, err := s.Get(r.ctx, "/status"); err == nil && code == http.StatusOK {
				p.search("/status", string(body))
			}
			_ = s.Stop(5 * time.Second) // with whatever code
			p.search("the log", log.String())
		})
	}
}
