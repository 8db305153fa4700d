package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
)

// Access says who may ask for what. Its zero value lets everybody ask for
// everything, in clear: right on the loopback only.
type Access struct {
	// Token is asked for at each request, so that a renewed one needs no restart;
	// nil: there is none.
	Token func() (string, error)
	// TLS is asked for at each handshake; nil: the server speaks in clear.
	TLS func() (*tls.Config, error)
	// Certificates of clients, which TLS verifies, do for the token.
	Certificates bool
}

// probes are answered to everybody. A kubelet can send no secret, and whether an
// instance lives is known to whoever can see its ports; the reason, which names
// servers and rows, is not told with it.
var probes = []string{"/livez", "/readyz", "/healthz"}

// guard lets the probes through, and anything else to those who may ask.
func (a Access) guard(next http.Handler) http.Handler {
	if a.Token == nil && !a.Certificates {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(probes, r.URL.Path) || a.allows(r) {
			next.ServeHTTP(w, r)
			return
		}
		// Basic beside Bearer: a browser then asks for the token, as a password.
		w.Header().Add("WWW-Authenticate", "Bearer")
		if a.Token != nil {
			w.Header().Add("WWW-Authenticate", `Basic realm="walstream: any user, the token as password"`)
		}
		answer(w, http.StatusUnauthorized, map[string]any{"error": "wants the token of --http-token-file, or a certificate of --http-tls-ca"})
	})
}

// allows tells whether a request may know everything.
func (a Access) allows(r *http.Request) bool {
	if a.Token == nil && !a.Certificates {
		return true
	}
	if a.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	if a.Token == nil {
		return false
	}
	want, err := a.Token()
	if err != nil { // a file that is being replaced
		return false
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		_, given, _ = r.BasicAuth()
	}
	// Hashed, so that neither content nor length shows in the time it takes.
	a1, a2 := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a1[:], a2[:]) == 1
}

// serverTLS reads certificate and authorities for each client anew.
func (a Access) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return a.TLS() },
	}
}
