package testenv

import (
	"slices"
	"testing"
)

// TestDocker runs the suite's main tests in containers, wherever an engine
// answers.
func TestDocker(t *testing.T) {
	if _, err := engine(); err != nil {
		t.Skipf("skipped: docker: %v", err)
	}
	t.Setenv(EnvFrom, Docker)
	t.Run("postgres", func(t *testing.T) {
		p := NewPostgres(t, PGOptions{Params: map[string]string{"max_wal_senders": "7"}})
		if got := query(t, p.DSN(""), "SHOW max_wal_senders"); p.From != Docker || got != "7" {
			t.Errorf("%s with max_wal_senders %s", p.From, got)
		}
		testPostgresStops(t, p)
	})
	t.Run("kafka", func(t *testing.T) {
		k := NewKafka(t, KafkaOptions{Real: true})
		if k.From != Docker {
			t.Errorf("from %s", k.From)
		}
		testKafkaKeepsData(t, k)
		testKafkaProxy(t, k)
	})
}

func TestKafkaEnvironment(t *testing.T) {
	b := &broker{node: 1, data: "/data", port: 1, controller: 2, behind: 3, proxied: 4}
	env := kafkaEnvironment(b, map[string]string{"a.b-c_d": "x"})
	for _, want := range []string{
		"KAFKA_A_B___C__D=x",
		"KAFKA_NODE_ID=1",
		"KAFKA_LISTENERS=DIRECT://:1,BEHIND://:3,CONTROLLER://:2",
		"KAFKA_ADVERTISED_LISTENERS=DIRECT://127.0.0.1:1,BEHIND://127.0.0.1:4",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("missing %s in %q", want, env)
		}
	}
}
