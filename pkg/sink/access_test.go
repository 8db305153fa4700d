package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
)

const secret = "hunter2-secret"

// Logins and encryption, right and wrong.
func TestSASLAndTLS(t *testing.T) {
	t.Parallel()
	serverTLS, clientTLS := certificates(t)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			_, brokers := testenv.NewKfake(t, kfake.EnableSASL(), kfake.TLS(serverTLS), kfake.Superuser(mechanism, "writer", secret), kfake.SeedTopics(1, "orders"))
			cfg := testConfig(t, brokers)
			cfg.TLS, cfg.SASLMechanism, cfg.SASLUser, cfg.Credentials = clientTLS, mechanism, "writer", password(secret)
			log := new(locked)
			cfg.Logger = zerolog.New(log).Level(zerolog.TraceLevel)
			r := start(t, cfg)
			r.transaction(event("orders", "k", "v", 1))
			r.untilConfirmed()

			// The same over a dialer of one's own.
			cfg.DialContext = new(net.Dialer).DialContext
			mustLoad(t, open(t, cfg), r.lsn)

			cfg.Credentials = password("wrong-" + secret)
			_, _, err := open(t, cfg).Load(within(t, 10*time.Second))
			mustContain(t, err, "login", "wrong user or password") // kfake hangs up; Kafka says it
			if text := err.Error() + log.String() + fmt.Sprintf("%v %+v %#v", cfg, cfg, &cfg); strings.Contains(text, secret) {
				t.Errorf("the password is shown")
			}
		})
	}
}

// Faults of login and encryption name the settings to check.
func TestLoginAndTLSFaults(t *testing.T) {
	serverTLS, clientTLS := certificates(t)
	t.Run("login refused in words", func(t *testing.T) {
		cluster, brokers := testenv.NewKfake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "writer", secret))
		cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		})
		cfg := testConfig(t, brokers)
		cfg.SASLMechanism, cfg.SASLUser, cfg.Credentials = "PLAIN", "writer", password("wrong-"+secret)
		_, _, err := open(t, cfg).Load(within(t, 10*time.Second))
		if !as[*AccessError](err) || Retriable(err) {
			t.Fatalf("reported %v", err)
		}
		mustContain(t, err, "login", `"writer"`, "kafka-sasl-mechanism")
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the password is shown: %v", err)
		}
	})
	t.Run("login where there is none", func(t *testing.T) {
		check := func(t *testing.T, brokers []string) {
			cfg := testConfig(t, brokers)
			cfg.SASLMechanism, cfg.SASLUser, cfg.Credentials = "PLAIN", "writer", password(secret)
			_, _, err := open(t, cfg).Load(within(t, 10*time.Second))
			if !as[*AccessError](err) || Retriable(err) {
				t.Fatalf("reported %v", err)
			}
			mustContain(t, err, "login", brokers[0], "takes no login", "leave kafka-sasl-mechanism out")
		}
		t.Run("kfake", func(t *testing.T) { // of itself it hangs up
			cluster, brokers := testenv.NewKfake(t, kfake.EnableSASL())
			cluster.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
				resp.ErrorCode = kerr.IllegalSaslState.Code
				return resp, nil, true
			})
			check(t, brokers)
		})
		t.Run("kafka", func(t *testing.T) {
			k := testenv.SharedKafka(t)
			if k.From == testenv.Kfake {
				t.Skip("no real broker")
			}
			check(t, k.Brokers)
		})
	})
	t.Run("another authority", func(t *testing.T) {
		_, brokers := testenv.NewKfake(t, kfake.TLS(serverTLS))
		cfg := testConfig(t, brokers)
		cfg.TLS = static(&tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12})
		_, _, err := open(t, cfg).Load(within(t, 10*time.Second))
		if !as[*SetupError](err) || Retriable(err) {
			t.Errorf("reported %v", err)
		}
		mustContain(t, err, "certificate", "kafka-tls-ca", brokers[0])
	})
	t.Run("TLS where there is none", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("in clear\n"))
			}
		}()
		cfg := testConfig(t, []string{listener.Addr().String()})
		cfg.TLS = clientTLS
		_, _, err = open(t, cfg).Load(within(t, 10*time.Second))
		if !as[*SetupError](err) {
			t.Errorf("reported %v", err)
		}
		mustContain(t, err, "TLS handshake", "kafka-tls")
	})
}

// Every right that can be missing is named with its resource.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	const pipeline = "bank.s"
	checkpoints, ids := "walstream.checkpoints."+pipeline, "walstream."
	allow := func(resource kmsg.ACLResourceType, name string, operations ...kmsg.ACLOperation) (acls []kfake.ACL) {
		for _, operation := range operations {
			acls = append(acls, kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: operation, Allow: true})
		}
		return acls
	}
	topic, txn := kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeTransactionalId
	all := func() [][]kfake.ACL {
		return [][]kfake.ACL{
			allow(topic, checkpoints, kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs),
			allow(txn, ids, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe),
			allow(topic, "orders", kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs),
		}
	}
	for name, c := range map[string]struct {
		acls [][]kfake.ACL
		says []string
	}{
		"all": {acls: all()},
		"checkpoint topic may not be made": {
			acls: [][]kfake.ACL{allow(topic, checkpoints, kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe), all()[1], all()[2]},
			says: []string{"Create", checkpoints},
		},
		"no transactional id": {
			acls: [][]kfake.ACL{all()[0], all()[2]},
			says: []string{"Write", `transactional id "walstream.bank.s.0"`},
		},
		"topic may not be written": {
			acls: [][]kfake.ACL{all()[0], all()[1], allow(topic, "orders", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs)},
			says: []string{"Write", `topic "orders"`, "User:writer"},
		},
		"topic may not be seen": {
			acls: [][]kfake.ACL{all()[0], all()[1]},
			says: []string{"Describe", `topic "orders"`},
		},
		"its settings may not be read": { // the default limit is assumed
			acls: [][]kfake.ACL{all()[0], all()[1], allow(topic, "orders", kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var acls []kfake.ACL
			for _, some := range c.acls {
				acls = append(acls, some...)
			}
			_, brokers := testenv.NewKfake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders"),
				kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "writer", secret, acls...))
			cfg := testConfig(t, brokers)
			cfg.Pipeline = pipeline
			cfg.SASLMechanism, cfg.SASLUser, cfg.Credentials = "PLAIN", "writer", password(secret)
			err := runOnce(t, cfg, "orders")
			if len(c.says) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !as[*AccessError](err) || Retriable(err) {
				t.Fatalf("reported %v", err)
			}
			mustContain(t, err, c.says...)
			mustContain(t, err, "--allow-principal User:writer", "kafka-acls.sh")
			mustBeRunnable(t, brokers, err.Error())
		})
	}
}

// runOnce goes through a start and one row.
func runOnce(t *testing.T, cfg Config, topic string) error {
	t.Helper()
	ctx := within(t, 20*time.Second)
	k := open(t, cfg)
	if _, _, err := k.Load(ctx); err != nil {
		return err
	}
	c, err := claimIn(ctx, k)
	if err != nil {
		return err
	}
	t.Cleanup(c.Close)
	if _, _, err := c.Load(ctx); err != nil {
		return err
	}
	if err := c.Write(ctx, baseRecord(cfg.Pipeline)); err != nil {
		return err
	}
	i := c.NewIdempotent(baseRecord(cfg.Pipeline))
	t.Cleanup(i.Close)
	r := drive(t, i)
	r.transaction(event(topic, "k", "v", 1))
	r.until("it is over", func() bool { return r.err != nil || !r.ledger.Pending() })
	return r.err
}

func TestConfigFaults(t *testing.T) {
	good := testConfig(t, []string{"localhost:9092"})
	for name, c := range map[string]struct {
		change func(c *Config)
		says   []string
	}{
		"compression":      {func(c *Config) { c.Compression = "brotli" }, []string{`"brotli"`, "zstd"}},
		"pipeline":         {func(c *Config) { c.Pipeline = "a b" }, []string{`"a b"`}},
		"long pipeline":    {func(c *Config) { c.Pipeline = strings.Repeat("x", 240) }, []string{"249"}},
		"several at once":  {func(c *Config) { c.Brokers = nil; c.Compression = "x" }, []string{"brokers", `"x"`}},
		"mechanism":        {func(c *Config) { c.SASLMechanism, c.SASLUser, c.Credentials = "GSSAPI", "u", password("p") }, []string{"GSSAPI", "PLAIN"}},
		"user alone":       {func(c *Config) { c.SASLUser = "u" }, []string{"mechanism"}},
		"without password": {func(c *Config) { c.SASLMechanism, c.SASLUser = "PLAIN", "u" }, []string{"password"}},
		"replication":      {func(c *Config) { c.TopicReplicationFactor = -2 }, []string{"-2"}},
		"window":           {func(c *Config) { c.MaxInFlight.Events = 0 }, []string{"in flight"}},
	} {
		cfg := good
		c.change(&cfg)
		_, err := Open(cfg)
		t.Run(name, func(t *testing.T) { mustContain(t, err, c.says...) })
	}
	for compression := range compressions {
		cfg := good
		cfg.Compression = compression
		k, err := Open(cfg)
		if err != nil {
			t.Fatal(compression, err)
		}
		c, err := k.newClient(k.producer(func(string) int32 { return defaultMaxMessage }, nil))
		if err != nil {
			t.Fatal(compression, err)
		}
		c.Close()
		k.Close()
	}
}

// password that stays the same.
func password(text string) func(context.Context) (Credentials, error) {
	return func(context.Context) (Credentials, error) { return Credentials{Secret: text}, nil }
}

// static TLS settings.
func static(c *tls.Config) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return c, nil }
}

func certificates(t *testing.T) (server *tls.Config, client func() (*tls.Config, error)) {
	t.Helper()
	authority := testenv.NewAuthority(t)
	return authority.Server(t, testenv.Leaf{Name: "kafka"}), static(&tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12})
}
