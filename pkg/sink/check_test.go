package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
)

func finding(t *testing.T, findings []Finding, name string) Finding {
	t.Helper()
	for _, f := range findings {
		if strings.HasSuffix(f.Name, name) {
			return f
		}
	}
	t.Fatalf("nothing is said about %s: %+v", name, findings)
	return Finding{}
}

func TestCheck(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 2, map[string]string{"max.message.bytes": "77777"})
		cfg := testConfig(t, brokers)
		cfg.OnPoison = DeadLetter
		k := open(t, cfg)
		findings := k.Check(within(t, 20*time.Second), []string{topic, "not-there", "bad name"})
		for name, want := range map[string]struct {
			status Status
			says   string
		}{
			topic:                  {StatusWarn, "77777"}, // a single broker
			"not-there":            {StatusFail, "--create-topics"},
			"bad name":             {StatusFail, "ASCII"},
			cfg.checkpointTopic():  {StatusOK, "first start"},
			cfg.deadLetterTopic():  {StatusOK, "first start"},
			cfg.transactionalID(0): {StatusOK, ""},
			"kafka brokers":        {StatusOK, brokers[0]},
		} {
			f := finding(t, findings, name)
			if f.Status == StatusWarn && want.status == StatusOK {
				f.Status = StatusOK // one broker; a coordinator that is not up yet
			}
			if f.Status != want.status || !strings.Contains(f.Detail+f.Remedy, want.says) {
				t.Errorf("%+v, want %s with %q", f, want.status, want.says)
			}
			if f.Status != StatusOK && f.Remedy == "" && f.Err == nil {
				t.Errorf("%s: no way out", f.Name)
			}
			mustBeRunnable(t, brokers, f.Remedy)
		}
		if _, found, err := k.lookUpOne(t.Context(), cfg.checkpointTopic()); err != nil || found {
			t.Errorf("the check made the checkpoint topic")
		}
		// With everything there, and again nobody fenced.
		c := claim(t, k)
		k.Check(within(t, 20*time.Second), []string{topic})
		if err := c.Write(within(t, 20*time.Second), baseRecord(cfg.Pipeline)); err != nil {
			t.Errorf("the check disturbed the owner: %v", err)
		}
		if f := finding(t, k.Check(within(t, 20*time.Second), nil), cfg.checkpointTopic()); f.Status == StatusFail {
			t.Errorf("%+v", f)
		}
		forgets := "delete"
		if _, err := kadm.NewClient(client(t, brokers)).AlterTopicConfigs(within(t, 20*time.Second),
			[]kadm.AlterConfig{{Name: "cleanup.policy", Value: &forgets}}, cfg.checkpointTopic()); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { // Kafka tells its brokers a moment later
			f := finding(t, k.Check(within(t, 20*time.Second), nil), cfg.checkpointTopic())
			return f.Status == StatusFail && strings.Contains(f.Remedy, "cleanup.policy=compact")
		})
	})
}

func TestCheckWithoutRights(t *testing.T) {
	_, brokers := testenv.NewKfake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders", "secret"),
		kfake.Superuser("PLAIN", "root", "root"),
		kfake.User("PLAIN", "writer", secret, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true,
		}))
	cfg := testConfig(t, brokers)
	cfg.SASLMechanism, cfg.SASLUser, cfg.Credentials = "PLAIN", "writer", password(secret)
	findings := open(t, cfg).Check(within(t, 20*time.Second), []string{"orders", "secret"})
	for name, says := range map[string]string{
		"orders": "Write", "secret": "Describe", cfg.transactionalID(0): "Write",
	} {
		f := finding(t, findings, name)
		if f.Status != StatusFail || !strings.Contains(f.Remedy, says) || !strings.Contains(f.Remedy, "--allow-principal User:writer") {
			t.Errorf("%+v, want a failure with %q", f, says)
		}
		mustBeRunnable(t, brokers, f.Remedy, f.Detail)
	}
}

// mustBeRunnable: every command of Kafka's has the address it needs.
func mustBeRunnable(t *testing.T, brokers []string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if n := strings.Count(text, ".sh "); n != strings.Count(text, ".sh --bootstrap-server "+brokers[0]+" ") {
			t.Errorf("a command without --bootstrap-server: %s", text)
		}
	}
}

func TestCheckWithoutBrokers(t *testing.T) {
	cfg := testConfig(t, []string{"127.0.0.1:22999"})
	findings := open(t, cfg).Check(within(t, 300*time.Millisecond), nil)
	if len(findings) != 1 || findings[0].Status != StatusFail {
		t.Fatalf("%+v", findings)
	}
	if !strings.Contains(findings[0].Detail, "connection refused") {
		t.Errorf("says %s", findings[0].Detail)
	}
}
