package cases

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// bearer is a token that Kafka's own validator for development takes: it is not
// signed.
func bearer(subject string, life time.Duration) string {
	now := time.Now()
	claims, _ := json.Marshal(map[string]any{"sub": subject, "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(life).Unix()})
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

// TestOAuthBearer: tokens come from a file or an endpoint, and those that end are
// followed by new ones on living connections.
func TestOAuthBearer(t *testing.T) {
	t.Parallel()
	kafka := testenv.NewKafka(t, testenv.KafkaOptions{Real: true, Props: map[string]string{
		"listener.security.protocol.map":                             "DIRECT:PLAINTEXT,BEHIND:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                                    "OAUTHBEARER",
		"listener.name.behind.oauthbearer.sasl.jaas.config":          `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		"listener.name.behind.oauthbearer.connections.max.reauth.ms": "3600000", // as long as the token
		"authorizer.class.name":                                      "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                                "User:ANONYMOUS",
	}})
	proxy := kafka.NewProxy(t)
	pg := testenv.SharedPostgres(t, 0)
	for name, delivery := range map[string]string{"file": atLeastOnce, "endpoint": exactlyOnce} {
		t.Run(name+"/"+delivery, func(t *testing.T) {
			t.Parallel() // both wait for tokens to end
			r := newRig(t, pg, kafka.Brokers)
			r.brokersSeen = proxy.Addrs
			for _, right := range scriptOfACLs(t, map[string]string{"PIPELINE": r.pipeline, "TOPICS": r.topic, "CREATE_TOPICS": "yes"}) {
				r.acl(right.builder())
			}
			const life = 12 * time.Second // a start on a busy machine takes some of it
			args, renew := []string{"--kafka-sasl-mechanism", "oauthbearer"}, func() {}
			var asked atomic.Int32
			if name == "file" {
				path := save(t, filepath.Join(t.TempDir(), "token"), bearer("writer", life))
				args = append(args, "--kafka-sasl-token-file", path)
				renew = func() { save(t, path, bearer("writer", time.Hour)) }
			} else {
				endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
					if id, secret, _ := request.BasicAuth(); id != "walstream" || secret != "hush" || request.FormValue("scope") != "kafka" {
						w.WriteHeader(http.StatusUnauthorized) // and says too much
						fmt.Fprintf(w, `{"error":%q}`, request.Header.Get("Authorization"))
						return
					}
					asked.Add(1)
					fmt.Fprintf(w, `{"access_token":%q,"expires_in":%d}`, bearer("writer", life), int(life.Seconds()))
				}))
				defer endpoint.Close()
				args = append(args, "--kafka-sasl-token-url", endpoint.URL, "--kafka-sasl-user", "walstream", "--kafka-sasl-password", "hush", "--kafka-sasl-scope", "kafka")
				out, _ := r.command([]string{"check"}, overlay(args, []string{"--kafka-sasl-password", nastySASL})...)
				if !strings.Contains(out, "kafka-sasl-token-url answers 401") {
					t.Errorf("check of a wrong password:\n%s", out)
				}
				plant(t, nastySASL).search("check of a wrong password", out)
			}
			s := r.warm(args...)
			renew()
			began := r.restartsOf(s)
			r.during(life+2*time.Second, func() { r.put(1) })
			r.untilConfirmed()
			if n := r.restartsOf(s); n != began {
				t.Errorf("%d restarts\n%s", n-began, s.Log())
			}
			if name == "endpoint" && asked.Load() < 2 {
				t.Errorf("the endpoint was asked %d times", asked.Load())
			}
			// Another subject has no rights, and is named by the error of the broker.
			if name == "file" {
				r.check(s.Stop(10 * time.Second))
				other := save(t, filepath.Join(t.TempDir(), "token"), bearer("nobody", time.Hour))
				if out, code := r.command([]string{"check"}, "--kafka-sasl-mechanism", "oauthbearer", "--kafka-sasl-token-file", other); code != 8 {
					t.Errorf("exit code %d without rights:\n%s", code, out)
				}
				if out, code := r.command([]string{"check"}, "--kafka-sasl-mechanism", "oauthbearer", "--kafka-sasl-token-file", save(t, other, bearer("writer", -time.Second))); code != 8 {
					t.Errorf("exit code %d with a token that has ended:\n%s", code, out)
				}
			}
			if duplicates := r.verify(); duplicates > 0 {
				t.Errorf("%d duplicates", duplicates)
			}
		})
	}
}
