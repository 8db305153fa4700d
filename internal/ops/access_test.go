package ops

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/walstream/walstream/internal/credential"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/pipeline"
)

// TestAccess: without the token nobody learns more than whether the instance
// lives, and every other path is closed, also one that does not exist.
func TestAccess(t *testing.T) {
	p := streaming()
	p.State, p.Reason = pipeline.Refused, "no slot on db.internal"
	cfg := testConfig(p)
	token, broken := "t0ken", error(nil)
	cfg.Access.Token = func() (string, error) { return token, broken }
	h := handler(cfg, NewMetrics(cfg), &history{})
	ask := func(path string, login func(*http.Request)) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, path, http.NoBody), httptest.NewRecorder()
		if login != nil {
			login(r)
		}
		h.ServeHTTP(w, r)
		return w
	}
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	closed := []string{"/", "/status", "/metrics", "/page.js", "/page.css", "/plot.js", "/debug/pprof/", "/nope"}
	for name, login := range map[string]func(*http.Request){
		"nothing": nil, "another token": bearer("t0ke"), "an empty one": bearer(""), "a longer one": bearer("t0ken2"),
		"another scheme":   func(r *http.Request) { r.Header.Set("Authorization", "Digest t0ken") },
		"another password": func(r *http.Request) { r.SetBasicAuth("t0ken", "") },
		"a query":          func(r *http.Request) { r.URL.RawQuery = "token=t0ken" },
	} {
		for _, path := range closed {
			w := ask(path, login)
			if w.Code != http.StatusUnauthorized || len(w.Header().Values("WWW-Authenticate")) != 2 || strings.Contains(w.Body.String(), "db.internal") {
				t.Errorf("%s: %s answers %d %s", name, path, w.Code, w.Body)
			}
		}
		for _, path := range []string{"/livez", "/readyz", "/healthz"} {
			w := ask(path, login)
			if w.Code == http.StatusUnauthorized || strings.Contains(w.Body.String(), "db.internal") || !strings.Contains(w.Body.String(), "refused") {
				t.Errorf("%s: %s answers %d %s", name, path, w.Code, w.Body)
			}
		}
	}
	for name, login := range map[string]func(*http.Request){
		"bearer": bearer("t0ken"), "basic": func(r *http.Request) { r.SetBasicAuth("anybody", "t0ken") },
		"lower case": func(r *http.Request) { r.Header.Set("Authorization", "bearer t0ken") },
	} {
		for _, path := range []string{"/", "/status", "/metrics"} {
			if w := ask(path, login); w.Code != http.StatusOK {
				t.Errorf("%s: %s answers %d", name, path, w.Code)
			}
		}
		if w := ask("/healthz", login); !strings.Contains(w.Body.String(), "db.internal") {
			t.Errorf("%s: no reason in %s", name, w.Body)
		}
	}
	token = "renewed"
	if ask("/status", bearer("t0ken")).Code != http.StatusUnauthorized || ask("/status", bearer("renewed")).Code != http.StatusOK {
		t.Error("the renewed token does not count")
	}
	if token, broken = "", errors.New("no file"); ask("/status", bearer("")).Code != http.StatusUnauthorized {
		t.Error("a missing file opens the door")
	}
}

// TestServesTLS: in clear nothing is answered, a certificate of a client does for
// the token, and a renewed one is served at the next handshake.
func TestServesTLS(t *testing.T) {
	directory, authority, other := t.TempDir(), testenv.NewAuthority(t), testenv.NewAuthority(t)
	files := credential.TLSFiles{Prefix: "http-tls", CA: authority.WriteCA(t, directory)}
	files.Cert, files.Key = authority.Write(t, directory, testenv.Leaf{Name: "walstream"})
	cfg := testConfig(streaming())
	cfg.Listen = "127.0.0.1:0"
	cfg.Access = Access{TLS: files.Server, Certificates: true}
	server, err := Listen(cfg, NewMetrics(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	get := func(scheme, path string, config *tls.Config) (int, error) {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(scheme + "://" + server.Addr() + path)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		_, err = io.ReadAll(response.Body)
		return response.StatusCode, err
	}
	as := func(signer *testenv.Authority) *tls.Config {
		config := signer.Server(t, testenv.Leaf{Name: "prometheus"}) // a certificate for both ends
		config.RootCAs = authority.Pool()
		return config
	}
	for _, c := range []struct {
		name, scheme, path string
		client             *tls.Config
		want               int // 0: no answer at all
	}{
		{"in clear", "http", "/livez", nil, http.StatusBadRequest},
		{"of an unknown authority", "https", "/livez", &tls.Config{RootCAs: other.Pool(), MinVersion: tls.VersionTLS12}, 0},
		{"without a certificate", "https", "/status", &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}, http.StatusUnauthorized},
		{"a probe without one", "https", "/livez", &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}, http.StatusOK},
		{"with one", "https", "/status", as(authority), http.StatusOK},
		{"with one of another authority", "https", "/livez", as(other), 0},
	} {
		if got, err := get(c.scheme, c.path, c.client); got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: %d %v, want %d", c.name, got, err, c.want)
		}
	}
	other.WriteCA(t, directory)
	other.Write(t, directory, testenv.Leaf{Name: "walstream"})
	renewed := as(other)
	renewed.RootCAs = other.Pool()
	if got, err := get("https", "/status", renewed); got != http.StatusOK {
		t.Errorf("renewed: %d %v", got, err)
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if got, err := get("https", "/livez", renewed); err == nil {
		t.Errorf("without a key: %d", got)
	}
}
