package main

import (
	"strings"
	"testing"
)

func TestVariables(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ entry, want string }{
		{"WALSTREAM_SLTO=x", "WALSTREAM_SLTO (variable): is no setting; nearest: WALSTREAM_SLOT"},
		{"WALSTREAM_KAFKA-BROKERS=a:1", "nearest: WALSTREAM_KAFKA_BROKERS"},
		{"walstream_table=a.b", "walstream_table (variable): is no setting; nearest: WALSTREAM_TABLE"},
		{"WALSTREAM_Table=a.b", "nearest: WALSTREAM_TABLE"},
		{"WALSTREAM_HELP=1", "it is a flag only"},
		{"WALSTREAM_=1", "is no setting"},
		{"WALSTREAM_ACKS=all", "walstream always waits for all in-sync replicas"},
		{"WALSTREAM_CONFIG=", "is empty: name a file"},
		{"WALSTREAM_STALL_TIMEOUT=", `stall-timeout (variable WALSTREAM_STALL_TIMEOUT): is empty; allowed: 1s to 1h`},
		{"WALSTREAM_HTTP_LISTEN=", "is empty"},
		{"WALSTREAM_CREATE_TOPICS=", "is empty"},
		{"WALSTREAM_SINK=", "is empty; allowed: kafka, stdout"},
		{"WALSTREAM_HTTP_PORT=9475", "is no setting"}, // no link of Kubernetes: those hold a URL
	} {
		if got := faultsOf(t, []string{"--slot=s"}, []string{c.entry}); !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant: %s", c.entry, got, c.want)
		}
	}
	for _, entry := range []string{
		"WALSTREAM_PRESET=", "WALSTREAM_POSTGRES=", "PATH=/bin", "SLOT=x", "XWALSTREAM_Y=1",
		"WALSTREAM_TEST_REQUIRE_REAL=1", "WALSTREAM_CASES=full",
		"WALSTREAM_SERVICE_HOST=10.0.0.1", "WALSTREAM_SERVICE_PORT=9475", "WALSTREAM_SERVICE_PORT_HTTP=9475",
		"WALSTREAM_PORT=tcp://10.0.0.1:9475", "WALSTREAM_PORT_9475_TCP=tcp://10.0.0.1:9475",
		"WALSTREAM_PORT_9475_TCP_PROTO=tcp", "WALSTREAM_PORT_9475_TCP_PORT=9475", "WALSTREAM_PORT_9475_TCP_ADDR=10.0.0.1",
		"WALSTREAM_BANK_SERVICE_HOST=10.0.0.1", "WALSTREAM_BANK_PORT_9475_TCP=tcp://10.0.0.1:9475",
	} {
		mustLoad(t, []string{"--slot=s"}, []string{entry})
	}
}

func TestFile(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ name, file, want string }{
		{"unknown", "a: 1\nslot: s\nkafka_broker: x\n", "kafka_broker (F:3): is no setting; nearest: kafka-brokers"},
		{"double", "slot: s\nslot: s\n", "slot (F:2): stands there twice, first in line 1"},
		{"case", "Slot: s\n", "Slot (F:1): is no setting; nearest: slot"},
		{"nested", "kafka:\n  brokers: a:1\n", "kafka.brokers (F:2): stands at the wrong level; settings are flat: kafka-brokers"},
		{"nested deeper", "kafka:\n  sasl:\n    user: a\n", "kafka.sasl.user (F:3): stands at the wrong level; settings are flat: kafka-sasl-user"},
		{"nested setting", "walstream:\n  slot: a\n", "walstream.slot (F:2): stands at the wrong level; settings are flat: slot"},
		{"nested unknown", "kafka:\n  bootstrap: a\n", "kafka.bootstrap (F:2): is no setting"},
		{"nested double", "kafka:\n  x: 1\n  x: 2\n", "kafka.x (F:3): stands there twice"},
		{"under a setting", "slot:\n  name: a\n", "slot (F:2): wants one plain value, and has keys below it"},
		{"list", "slot: [a]\n", "slot (F:1): wants one plain value"},
		{"list in list", "kafka-brokers: [[a]]\n", "kafka-brokers (F:1): wants a list of plain values"},
		{"comma in list", "kafka-brokers: ['a:1,b:1']\n", "wants a list of plain values"},
		{"key no name", "? [a]\n: b\n", "has a key that is not a name"},
		{"null", "slot: s\nsink:\n", "sink (F:2): is empty; allowed: kafka, stdout"},
		{"tilde", "stall-timeout: ~\n", "stall-timeout (F:1): is empty"},
		{"yes", "create-topics: yes\n", `create-topics = "yes" (F:1): is neither true nor false`},
		{"number", "stall-timeout: 90\n", `stall-timeout = "90" (F:1): has no unit`},
		{"octal stays text", "topic-partitions: 0x10\n", "is not a whole number"},
		{"config", "config: other.yaml\n", "a file cannot name another one"},
		{"help", "help: true\n", "it is a flag only"},
		{"not a mapping", "- a\n", "F (F:1): holds no settings"},
		{"plain text", "hello\n", "holds no settings"},
		{"two documents", "slot: s\n---\nslot: t\n", "is not one YAML document"},
		{"no YAML", "slot: s\nhttp-listen: [::1]:5432\n", "F (F:2): is not YAML"},
		{"anchor", "slot: *secret\n", "F (F:1): is not YAML: unknown anchor;"},
		{"alias", "slot: &a s\npipeline: *a\n", "pipeline (F:2): wants one plain value"},
		{"merge", "<<: {slot: s}\n", "<<.slot (F:1): stands at the wrong level"},
		{"outboxes no list", "outboxes: a\n", "outboxes (F:1): wants a list of tables"},
		{"outboxes empty", "outboxes: []\n", "wants a list of tables"},
		{"outboxes text", "outboxes: [a]\n", "outboxes[0] (F:1): wants a table"},
		{"outboxes typo", "outboxes:\n- tabel: a\n", "outboxes[0].tabel (F:2): is no setting of a table; nearest: table"},
		{"outboxes level", "outboxes:\n- table: a\n  slot: s\n", "outboxes[0].slot (F:3): stands at the wrong level; it belongs to the top of the file"},
		{"outboxes double key", "outboxes:\n- table: a\n  table: b\n", "outboxes[0].table (F:3): stands there twice, first in line 2"},
		{"outboxes without table", "outboxes:\n- preset: bank\n", "outboxes[0].table (F:2): is required"},
		{"outboxes twice", "outboxes:\n- table: a\n- table: public.a\n", `outboxes[1].table = "public.a" (F:3): is in the list twice`},
		{"outboxes preset", "outboxes:\n- table: a\n  preset: bnk\n", `outboxes[0].preset = "bnk" (F:3): is not known; allowed: bank`},
		{"outboxes mapping", "outboxes:\n- table: a\n  topic-pattern: x{\n", "outboxes[0].topic-pattern"},
		{"outboxes bad table", "outboxes:\n- table: a.b.c\n", `outboxes[0].table = "a.b.c" (F:2): has more`},
		{"outboxes and table", "table: a.b\noutboxes:\n- table: a\n", `table = "a.b" (F:1): does not go with outboxes (F:3)`},
	} {
		path := writeFile(t, c.file)
		args := []string{"--config", path}
		if !strings.Contains(c.file, "slot:") {
			args = append(args, "--slot=s")
		}
		got := strings.ReplaceAll(faultsOf(t, args, nil), path, "F")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant: %s", c.name, got, c.want)
		}
	}
	for name, file := range map[string]string{
		"empty": "", "comments": "# slot: x\n\n", "null": "---\n", "quoted": "\"stall-timeout\": '90s'\n", "list": "kafka-brokers:\n- a:1\n- b:2\n",
		"text list": "kafka-brokers: a:1, b:2\n", "unquoted numbers": "create-topics: true\ntopic-partitions: 6\naccept-server: 7301234567890123456\n",
	} {
		if _, err := load([]string{"--slot=s", "--config", writeFile(t, file)}, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNearest(t *testing.T) {
	inv, _ := load(nil, nil)
	for _, c := range []struct{ name, want string }{
		{"slto", "slot"},
		{"slot_nmae", "slot"},
		{"SLOT", "slot"},
		{"brokers", "kafka-brokers"},
		{"kafka_brokers", "kafka-brokers"},
		{"pipline", "pipeline"},
		{"timeout", "stall-timeout"},
		{"kafka-sasl-pasword", "kafka-sasl-password"},
		{"loglevel", "log-level"},
		{"grace", "shutdown-grace"},
		{"replication-factor", "topic-replication-factor"},
	} {
		if got := inv.config.report.unknown(c.name, ""); got != "is no setting; nearest: "+c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if got := inv.config.report.unknown("zzzzzzzzzz", ""); got != "is no setting; walstream config --help shows all" {
		t.Errorf("zzzzzzzzzz: %s", got)
	}
}

// TestAllFaultsAtOnce: one run names every fault of every place.
func TestAllFaultsAtOnce(t *testing.T) {
	cleanPG(t)
	path := writeFile(t, "slto: x\nstall-timeout: 5\nstall-timeout: 6\nkafka:\n  brokers: x\nkafka-compression: zip\n")
	got := faultsOf(t,
		[]string{"--config", path, "--unknown-a", "value", "--unknown-b=value", "--status-interval", "1h", "--topic=a/b"},
		[]string{"WALSTREAM_LOG_LEVL=x", "WALSTREAM_LOG_FORMAT=xml", "WALSTREAM_POSTGRES=host=h port=x"})
	for _, want := range []string{
		"--unknown-a (flag)", "--unknown-b (flag)", "WALSTREAM_LOG_LEVL (variable)", "slto (", "stall-timeout (", "kafka.brokers (",
		"status-interval = \"1h\"", "log-format = \"xml\"", "kafka-compression = \"zip\"", "topic = \"a/b\"", "slot (default): is required", "postgres = \"***\"",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if !strings.Contains(got, "has 12 faults:") || strings.Count(got, "\n") != 12 {
		t.Errorf("faults:\n%s", got)
	}
}
