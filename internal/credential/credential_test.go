package credential_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/walstream/walstream/internal/credential"
	"github.com/walstream/walstream/internal/testenv"
)

const secret = `p@:/%w'"\?#&= d`

// temporary: the clients of PostgreSQL and Kafka try again.
func temporary(t *testing.T, err error, says string) {
	t.Helper()
	var network net.Error
	if err == nil || !errors.As(err, &network) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), secret) {
		t.Errorf("got %v, want a temporary error that says %q", err, says)
	}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	_, err := credential.Secret("x-file", path)
	temporary(t, err, "x-file cannot be read: no such file")
	for content, want := range map[string]string{secret: secret, secret + "\n": secret, secret + "\r\n": secret, " a ": " a "} {
		write(t, path, content)
		if got, err := credential.Secret("x-file", path); err != nil || got != want {
			t.Errorf("%q: %q, %v", content, got, err)
		}
	}
	for _, empty := range []string{"", "\n"} {
		write(t, path, empty)
		_, err := credential.Secret("x-file", path)
		temporary(t, err, "is an empty file")
	}
}

// TestTLSFiles: what is half renewed is an error that another try may not meet.
func TestTLSFiles(t *testing.T) {
	directory, authority := t.TempDir(), testenv.NewAuthority(t)
	files := credential.TLSFiles{Prefix: "x-tls", CA: authority.WriteCA(t, directory)}
	files.Cert, files.Key = authority.Write(t, directory, testenv.Leaf{Name: "a"})
	for _, get := range []func() error{
		func() error { _, err := files.Client(); return err },
		func() error { _, err := files.Server(); return err },
	} {
		if err := get(); err != nil {
			t.Fatal(err)
		}
		certificate, _ := authority.Sign(t, testenv.Leaf{Name: "a"})
		write(t, files.Cert, certificate)
		temporary(t, get(), "x-tls-cert and its key are no pair")
		files.Cert, files.Key = authority.Write(t, directory, testenv.Leaf{Name: "a"})
		write(t, files.CA, "no PEM")
		temporary(t, get(), "x-tls-ca holds no certificate in PEM")
		files.CA = authority.WriteCA(t, directory)
	}
}

func TestTokens(t *testing.T) {
	var answer func(w http.ResponseWriter, r *http.Request)
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer(w, r)
	}))
	defer server.Close()
	source := func() *credential.Tokens {
		return &credential.Tokens{
			Setting: "x-url", URL: server.URL + "/token", Client: "a:b", Scope: "kafka",
			Secret: func() (string, error) { return secret, nil },
		}
	}
	good := func(expires string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			if user != "a%3Ab" || password != "p%40%3A%2F%25w%27%22%5C%3F%23%26%3D+d" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka" || r.Method != http.MethodPost {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"access_token":"t%d","token_type":"bearer"%s}`, asked.Load(), expires)
		}
	}
	for name, c := range map[string]struct {
		expires string
		asked   int32
	}{
		"kept for a while": {`,"expires_in":3600`, 1}, "a short one": {`,"expires_in":30`, 1},
		"without an end": {"", 3}, "at its end": {`,"expires_in":0`, 3},
	} {
		asked.Store(0)
		answer = good(c.expires)
		s := source()
		for range 3 {
			token, err := s.Token(t.Context())
			if err != nil || token != fmt.Sprintf("t%d", asked.Load()) {
				t.Errorf("%s: %q, %v", name, token, err)
			}
		}
		if asked.Load() != c.asked {
			t.Errorf("%s: asked %d times", name, asked.Load())
		}
	}
	for says, bad := range map[string]func(http.ResponseWriter, *http.Request){
		"x-url answers 401 invalid_client": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
		},
		"answers 400 (unnamed)": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":%q}`, secret)
		},
		"answers 302": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, server.URL+"/elsewhere", http.StatusFound)
		},
		"answers without an access_token": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, secret) },
		"breaks off its answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		},
	} {
		answer = bad
		_, err := source().Token(t.Context())
		temporary(t, err, says)
	}
	down := source()
	down.URL = "http://user:" + "hush@127.0.0.1:1/token"
	_, err := down.Token(t.Context())
	temporary(t, err, "x-url does not answer")
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("the address is shown: %v", err)
	}
}

// TestTokensOverTLS: the endpoint is one of the private authority.
func TestTokensOverTLS(t *testing.T) {
	authority := testenv.NewAuthority(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"access_token":"t","expires_in":60}`)
	}))
	server.TLS = authority.Server(t, testenv.Leaf{Name: "login"})
	server.StartTLS()
	defer server.Close()
	s := &credential.Tokens{Setting: "x-url", URL: server.URL, Secret: func() (string, error) { return "s", nil }}
	_, err := s.Token(t.Context())
	temporary(t, err, "certificate")
	s.TLS.CA = authority.WriteCA(t, t.TempDir())
	if token, err := s.Token(t.Context()); err != nil || token != "t" {
		t.Errorf("%q, %v", token, err)
	}
}

// TestAWS: each place where keys are found, in the vendor's order, and what is
// said where there are none.
func TestAWS(t *testing.T) {
	const agent = `{"AccessKeyId":"AKagent","SecretAccessKey":"SKagent","Token":"Tagent","Expiration":"2099-01-01T00:00:00Z"}`
	asked := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		switch {
		case r.URL.Path == "/sts" && r.FormValue("Action") == "AssumeRoleWithWebIdentity" && r.FormValue("WebIdentityToken") == "jwt" && r.FormValue("RoleArn") == "arn:role":
			fmt.Fprint(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
				<Credentials><SessionToken>Tweb</SessionToken><SecretAccessKey>SKweb</SecretAccessKey><Expiration>2099-01-01T00:00:00Z</Expiration><AccessKeyId>AKweb</AccessKeyId></Credentials>
				</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`)
		case r.URL.Path == "/pod" && r.Header.Get("Authorization") == "podtoken":
			fmt.Fprint(w, agent)
		case r.URL.Path == "/latest/api/token" && r.Method == http.MethodPut && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
			fmt.Fprint(w, "imds")
		case r.Header.Get("X-aws-ec2-metadata-token") == "imds" && r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "role\n")
		case r.Header.Get("X-aws-ec2-metadata-token") == "imds" && r.URL.Path == "/latest/meta-data/iam/security-credentials/role":
			fmt.Fprint(w, agent)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	directory := t.TempDir()
	file := func(name, content string) string { return write(t, filepath.Join(directory, name), content) }
	nobody := map[string]string{"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(directory, "none")}
	profiles := file("credentials", "[other]\naws_access_key_id = no\n[default]\n# aws_access_key_id = no\naws_access_key_id = AKfile\naws_secret_access_key=SKfile\n[prod]\naws_access_key_id=AKprod\naws_secret_access_key=SKprod\naws_session_token=Tprod\n")
	for name, c := range map[string]struct {
		env  map[string]string
		want credential.AWSKeys
		says string
	}{
		"variables": {env: map[string]string{"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_SESSION_TOKEN": "T", "AWS_SHARED_CREDENTIALS_FILE": profiles}, want: credential.AWSKeys{Access: "AK", Secret: "SK", Session: "T"}},
		"half":      {env: map[string]string{"AWS_ACCESS_KEY_ID": "AK"}, says: "without AWS_SECRET_ACCESS_KEY"},
		"web identity": {env: map[string]string{
			"AWS_WEB_IDENTITY_TOKEN_FILE": file("jwt", "jwt\n"), "AWS_ROLE_ARN": "arn:role", "AWS_ENDPOINT_URL_STS": server.URL + "/sts", "AWS_SHARED_CREDENTIALS_FILE": profiles,
		}, want: credential.AWSKeys{Access: "AKweb", Secret: "SKweb", Session: "Tweb"}},
		"web identity refused":      {env: map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": file("jwt", "jwt"), "AWS_ROLE_ARN": "arn:other", "AWS_ENDPOINT_URL_STS": server.URL + "/sts"}, says: "the security token service answers 403"},
		"web identity without file": {env: map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": filepath.Join(directory, "gone")}, says: "AWS_WEB_IDENTITY_TOKEN_FILE that cannot be read"},
		"profile":                   {env: map[string]string{"AWS_SHARED_CREDENTIALS_FILE": profiles}, want: credential.AWSKeys{Access: "AKfile", Secret: "SKfile"}},
		"named profile":             {env: map[string]string{"AWS_SHARED_CREDENTIALS_FILE": profiles, "AWS_PROFILE": "prod"}, want: credential.AWSKeys{Access: "AKprod", Secret: "SKprod", Session: "Tprod"}},
		"container": {env: map[string]string{
			"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file("pod", "podtoken\n"),
		}, want: credential.AWSKeys{Access: "AKagent", Secret: "SKagent", Session: "Tagent"}},
		"container refused":   {env: map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/pod"}, says: "the container's endpoint answers 403"},
		"container elsewhere": {env: map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://keys.example.com/"}, says: "neither https nor this machine's"},
		"instance":            {env: map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.URL + "/"}, want: credential.AWSKeys{Access: "AKagent", Secret: "SKagent", Session: "Tagent"}},
		"no instance":         {env: map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, says: "finds no keys in variables, web identity, profile or container, and the instance's metadata does not answer"},
		"nowhere":             {env: map[string]string{"AWS_EC2_METADATA_DISABLED": "true"}, says: "finds no keys"},
	} {
		t.Run(name, func(t *testing.T) {
			source := &credential.AWS{Getenv: func(name string) string {
				if value, ok := c.env[name]; ok {
					return value
				}
				return nobody[name]
			}}
			keys, err := source.Keys(t.Context())
			if c.says != "" {
				temporary(t, err, c.says)
				return
			}
			if err != nil || keys != c.want {
				t.Errorf("%+v, %v", keys, err)
			}
			clear(asked)
			if again, err := source.Keys(context.Background()); err != nil || again != keys || len(asked) > 0 {
				t.Errorf("again: %+v, %v, asked %v", again, err, asked)
			}
		})
	}
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
