package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// TestC31RealBrokerTLS: SASL over TLS, with a certificate from both ends, to the real
// broker; and what check says of each thing that is wrong.
func TestC31RealBrokerTLS(t *testing.T) {
	t.Parallel()
	directory, authority := t.TempDir(), testenv.NewAuthority(t)
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	certificate, key := authority.Sign(t, testenv.Leaf{Name: "broker", Hosts: []string{"127.0.0.1"}})
	store := save(t, filepath.Join(directory, "broker.pem"), key+certificate)
	ca := authority.WriteCA(t, directory)
	other := save(t, filepath.Join(directory, "other.crt"), testenv.NewAuthority(t).PEM())
	kafka := testenv.NewKafka(t, testenv.KafkaOptions{Real: true, Props: map[string]string{
		"listener.security.protocol.map":               "DIRECT:PLAINTEXT,BEHIND:SASL_SSL,CONTROLLER:PLAINTEXT",
		"listener.name.behind.sasl.enabled.mechanisms": "PLAIN",
		"sasl.enabled.mechanisms":                      "PLAIN",
		"listener.name.behind.plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_writer="secret-word";`,
		"listener.name.behind.ssl.keystore.type":       "PEM",
		"listener.name.behind.ssl.keystore.location":   store,
		"listener.name.behind.ssl.truststore.type":     "PEM",
		"listener.name.behind.ssl.truststore.location": ca,
		"listener.name.behind.ssl.client.auth":         "required",
	}})
	proxy := kafka.NewProxy(t)
	r := newRig(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	r.brokersSeen = proxy.Addrs
	own, ownKey := authority.Write(t, directory, testenv.Leaf{Name: "writer"})
	stranger, strangerKey := testenv.NewAuthority(t).Write(t, t.TempDir(), testenv.Leaf{Name: "stranger"})
	past := time.Now().Add(-time.Minute)
	old, oldKey := authority.Write(t, directory, testenv.Leaf{Name: "old", From: past.Add(-time.Hour), Until: past})
	good := []string{
		"--kafka-tls", "true", "--kafka-tls-ca", ca, "--kafka-tls-cert", own, "--kafka-tls-key", ownKey,
		"--kafka-sasl-mechanism", "plain", "--kafka-sasl-user", "writer", "--kafka-sasl-password", "secret-word",
	}
	with := func(change ...string) []string {
		args := append([]string{}, good...)
		for i := 0; i < len(change); i += 2 {
			for j := 0; j < len(args); j += 2 {
				if args[j] == change[i] {
					args[j+1] = change[i+1]
				}
			}
		}
		return args
	}
	s := r.warm(good...)
	r.put(3)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	r.verify()
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"all is well":              {good, 0, "checkpoint, slot and server fit together"},
		"another authority":        {with("--kafka-tls-ca", other), 3, "unknown authority"},
		"another name":             {append(with(), "--kafka-brokers", strings.Replace(proxy.Addrs[0], "127.0.0.1", "localhost", 1)), 3, "localhost"},
		"no client certificate":    {with("--kafka-tls-cert", unset, "--kafka-tls-key", unset), 3, "truststore"},
		"a stranger's certificate": {with("--kafka-tls-cert", stranger, "--kafka-tls-key", strangerKey), 3, "truststore"},
		"an expired certificate":   {with("--kafka-tls-cert", old, "--kafka-tls-key", oldKey), 3, "truststore"},
		"no TLS":                   {with("--kafka-tls", unset, "--kafka-tls-ca", unset, "--kafka-tls-cert", unset, "--kafka-tls-key", unset), 3, "TLS"},
		"another mechanism":        {with("--kafka-sasl-mechanism", "scram-sha-512"), 8, "UNSUPPORTED_SASL_MECHANISM"},
		"wrong password":           {with("--kafka-sasl-password", "other-word"), 8, "SASL_AUTHENTICATION_FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := r.command([]string{"check"}, c.args...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("check ends with %d, want %d and %q:\n%s", code, c.code, c.says, out)
			}
			if strings.Contains(out, "-word") {
				t.Errorf("the password is in\n%s", out)
			}
		})
	}
	refused := r.start(with("--kafka-tls-cert", stranger, "--kafka-tls-key", strangerKey)...)
	r.refused(refused, 3, "the TLS handshake failed", "truststore")
}
