package cases

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/testenv"
)

// sql/role.sql and deploy/kafka/acls.sh are all the rights that walstream needs,
// and none of them is one too many: check names each that is taken away.

// granted is one right of a line of the script.
type granted struct {
	operation kadm.ACLOperation
	kind      string // topic or transactional-id
	name      string
	prefixed  bool
}

func (g granted) builder() *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:writer").AllowHosts("*").Operations(g.operation)
	if g.kind == "topic" {
		b.Topics(g.name)
	} else {
		b.TransactionalIDs(g.name)
	}
	if g.prefixed {
		return b.ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	return b.ResourcePatternType(kadm.ACLPatternLiteral)
}

// scriptOfACLs runs the script with echo in the tool's place, and reads its lines
// as strictly as the tool would.
func scriptOfACLs(t *testing.T, settings map[string]string) (rights []granted) {
	t.Helper()
	cmd := exec.Command("sh", "../../deploy/kafka/acls.sh")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "KAFKA_ACLS=echo", "BOOTSTRAP=kafka:9092", "PRINCIPAL=User:writer"}
	for name, value := range settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if !slices.Equal(words[:5], []string{"--bootstrap-server", "kafka:9092", "--add", "--allow-principal", "User:writer"}) {
			t.Fatalf("unlike a command: %s", line)
		}
		var operations []kadm.ACLOperation
		g := granted{}
		for words = words[5:]; len(words) >= 2; words = words[2:] {
			switch words[0] {
			case "--operation":
				operation := kadm.OpUnknown
				if err := operation.UnmarshalText([]byte(words[1])); err != nil {
					t.Fatal(err)
				}
				operations = append(operations, operation)
			case "--topic", "--transactional-id":
				g.kind, g.name = words[0][2:], words[1]
			case "--resource-pattern-type":
				g.prefixed = words[1] == "prefixed"
			default:
				t.Fatalf("unlike a command: %s", line)
			}
		}
		for _, operation := range operations {
			g.operation = operation
			rights = append(rights, g)
		}
	}
	return rights
}

// leastRole runs sql/role.sql in the rig's database, on a server where PUBLIC may
// nothing, and returns the address of the role. The role is the server's; one test
// at a time has it.
func (r *rig) leastRole() (address string) {
	r.t.Helper()
	text, err := os.ReadFile("../../sql/role.sql")
	r.check(err)
	for range 2 { // again, it changes nothing
		r.exec(string(text))
	}
	r.exec(`ALTER ROLE walstream PASSWORD 'least'`)
	return r.loginAs("walstream", "least", nil)
}

// closeToPublic takes what PostgreSQL gives to everybody.
func (r *rig) closeToPublic() {
	r.t.Helper()
	r.exec(`DO $$ BEGIN EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database()); END $$`)
	r.exec(`REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	r.exec(`CREATE PUBLICATION ` + r.slotsPublication() + ` FOR TABLE bank_outbox WITH (publish = 'insert')`)
}

// slotsPublication is the name that follows from the slot's.
func (r *rig) slotsPublication() string { return strings.TrimSuffix(r.slot, "_slot") + "_pub" }

// TestLeastRights: with exactly the role and the ACLs of the shipped files, rows go
// through in both deliveries, with and without dead letters and --create-topics.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	kafka, proxy := guarded(t)
	pg := testenv.NewPostgres(t, testenv.PGOptions{})
	for name, c := range map[string]struct{ settings, flags []string }{
		"plain":         {nil, []string{"--create-topics", "false", "--topic-partitions", unset}},
		"create topics": {[]string{"CREATE_TOPICS=yes"}, nil},
		"dead letters":  {[]string{"CREATE_TOPICS=yes", "DEAD_LETTERS=yes", "READ=yes"}, []string{"--on-poison", "dead-letter"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBoth(t, func(t *testing.T) {
				r := newRig(t, pg, kafka.Brokers)
				r.brokersSeen = proxy.Addrs
				r.closeToPublic()
				args := append([]string{
					"--postgres", r.leastRole(), "--kafka-sasl-mechanism", "plain", "--kafka-sasl-user", "writer", "--kafka-sasl-password", "secret",
				}, c.flags...)
				settings := map[string]string{"PIPELINE": r.pipeline, "TOPICS": r.topic}
				for _, setting := range c.settings {
					name, value, _ := strings.Cut(setting, "=")
					settings[name] = value
				}
				for _, right := range scriptOfACLs(t, settings) {
					r.acl(right.builder())
				}
				if name == "plain" {
					_, err := r.admin.CreateTopic(r.ctx, 3, 1, nil, r.topic)
					r.check(err)
				}
				if out, code := r.command([]string{"check"}, args...); code != 0 {
					t.Errorf("check before the first start: %d\n%s", code, out)
				}
				s := r.warm(args...)
				r.put(20)
				r.untilConfirmed()
				if name == "dead letters" {
					r.exec(large, 3_000_000)
					r.put(1)
					r.untilConfirmed()
					r.until("one dead letter", func() bool { return len(r.letters()) == 1 })
					r.exec(`DELETE FROM bank_outbox WHERE aggregate_id = 'large'`)
				}
				r.check(s.Stop(10 * time.Second))
				s = r.stream(args...) // and a start on what is there
				r.check(s.Stop(10 * time.Second))
				if out, code := r.command([]string{"check"}, args...); code != 0 {
					t.Errorf("check: %d\n%s", code, out)
				}
				if duplicates := r.verify(); duplicates > 0 {
					t.Errorf("%d duplicates", duplicates)
				}
				r.exec(`DROP OWNED BY walstream; DROP ROLE walstream`)
			})
		})
	}
}

// TestCheckNamesEachRight: each right of the shipped files is named by check when
// it is the one that is missing, with the way to grant it.
func TestCheckNamesEachRight(t *testing.T) {
	t.Parallel()
	kafka, proxy := guarded(t)
	pg := testenv.NewPostgres(t, testenv.PGOptions{})
	r := newRig(t, pg, kafka.Brokers)
	r.brokersSeen = proxy.Addrs
	r.closeToPublic()
	args := []string{
		"--postgres", r.leastRole(), "--kafka-sasl-mechanism", "plain", "--kafka-sasl-user", "writer", "--kafka-sasl-password", "secret",
		"--on-poison", "dead-letter", "--delivery", "exactly-once",
	}
	rights := scriptOfACLs(t, map[string]string{"PIPELINE": r.pipeline, "TOPICS": r.topic, "CREATE_TOPICS": "yes", "DEAD_LETTERS": "yes"})
	for _, right := range rights {
		r.acl(right.builder())
	}
	missing := func(name string, wantCode int, says ...string) {
		t.Helper()
		out, code := r.command([]string{"check"}, args...)
		for _, part := range says {
			if !strings.Contains(out, part) {
				t.Errorf("without %s check does not say %q:\n%s", name, part, out)
			}
		}
		if code != wantCode {
			t.Errorf("without %s check ends with %d, want %d:\n%s", name, code, wantCode, out)
		}
	}
	without := func(right granted, wantCode int) {
		t.Helper()
		_, err := r.admin.DeleteACLs(r.ctx, right.builder())
		r.check(err)
		name := right.name
		if right.prefixed {
			name = strings.TrimSuffix(name, ".")
		}
		operation := strings.ReplaceAll(right.operation.String(), "_", "")
		out, code := "", 0
		r.until(fmt.Sprintf("check to name %s on %s", operation, name), func() bool { // Kafka tells its authorizer a moment later
			out, code = r.command([]string{"check"}, args...)
			for line := range strings.Lines(strings.ToLower(out)) {
				if strings.Contains(line, strings.ToLower(operation)) && strings.Contains(line, name) || strings.Contains(line, "describeconfigs") && operation == "DESCRIBECONFIGS" {
					return code == wantCode
				}
			}
			return false
		})
		r.acl(right.builder())
	}
	for _, right := range rights {
		if right.operation == kadm.OpCreate || right.kind == "transactional-id" {
			without(right, 8)
		}
	}
	s := r.warm(args...)
	r.check(s.Stop(10 * time.Second))
	for _, right := range rights {
		switch {
		case right.operation == kadm.OpCreate || right.kind == "transactional-id":
		case strings.Contains(right.name, "walstream.control"):
			without(right, 0) // no pause would be seen: a warning
		case right.operation == kadm.OpRead && right.name == r.topic:
			without(right, 0) // whose an open transaction is cannot be told: a warning
		case strings.Contains(right.name, "walstream.history") && right.operation == kadm.OpRead:
			without(right, 0) // it is written, and no replay could read it: a warning
		case right.operation == kadm.OpDescribeConfigs && !strings.Contains(right.name, "checkpoints") && !strings.Contains(right.name, "history"):
			without(right, 0) // Kafka's default limit is assumed: a warning
		case strings.Contains(right.name, "dead-letters"): // nobody has written there yet
		default:
			without(right, 8)
		}
	}
	for name, c := range map[string]struct {
		take, give string
		code       int
		says       []string
	}{
		"LOGIN":             {"ALTER ROLE walstream NOLOGIN", "ALTER ROLE walstream LOGIN", 8, []string{"not permitted to log in", `ALTER ROLE "walstream" LOGIN;`}},
		"REPLICATION":       {"ALTER ROLE walstream NOREPLICATION", "ALTER ROLE walstream REPLICATION", 8, []string{`ALTER ROLE "walstream" REPLICATION;`}},
		"pg_read_all_stats": {"REVOKE pg_read_all_stats FROM walstream", "GRANT pg_read_all_stats TO walstream", 0, []string{`GRANT pg_read_all_stats TO "walstream";`}},
		"CONNECT": {
			"DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM walstream', current_database()); END $$",
			"DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO walstream', current_database()); END $$", 8,
			[]string{"GRANT CONNECT ON DATABASE", `TO "walstream";`},
		},
	} {
		r.exec(c.take)
		missing(name, c.code, c.says...)
		r.exec(c.give)
	}
	// Reading the table is a right of its own.
	fresh := append(slices.Clone(args), "--slot", "other_slot", "--pipeline", r.pipeline+"_2", "--publication", r.slotsPublication(), "--snapshot", "initial")
	args = fresh
	for _, b := range scriptOfACLs(t, map[string]string{"PIPELINE": r.pipeline + "_2", "TOPICS": r.topic, "DEAD_LETTERS": "yes"}) {
		r.acl(b.builder())
	}
	missing("USAGE", 8, "GRANT USAGE ON SCHEMA")
	r.exec(`GRANT USAGE ON SCHEMA public TO walstream`)
	missing("SELECT", 8, "GRANT SELECT ON")
	r.exec(`GRANT SELECT ON bank_outbox TO walstream`)
	missing("nothing", 0)
}

// TestACLsByKafkasTool: the script runs with the tool that it is for.
func TestACLsByKafkasTool(t *testing.T) {
	t.Parallel()
	kafka, _ := guarded(t)
	tool := kafkaTool(t, "org.apache.kafka.tools.AclCommand", "kafka.admin.AclCommand")
	cmd := exec.Command("sh", "../../deploy/kafka/acls.sh")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "KAFKA_ACLS=" + tool, "BOOTSTRAP=" + kafka.Brokers[0], "PRINCIPAL=User:writer",
		"PIPELINE=bank.s", "TOPIC_PREFIXES=outbox.event.",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := newRig(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	want := scriptOfACLs(t, map[string]string{"PIPELINE": "bank.s", "TOPIC_PREFIXES": "outbox.event."})
	results, err := r.admin.DescribeACLs(r.ctx, kadm.NewACLs().AnyResource().Allow("User:writer").AllowHosts().Operations().ResourcePatternType(kadm.ACLPatternAny))
	r.check(err)
	found := 0
	for _, result := range results {
		r.check(result.Err)
		found += len(result.Described)
	}
	if found != len(want) {
		t.Errorf("%d rights were granted, want %d: %v", found, len(want), results)
	}
}

// kafkaTool is a script that runs the first of the classes that Kafka's jars have.
func kafkaTool(t *testing.T, classes ...string) string {
	t.Helper()
	java, classpath, err := testenv.KafkaClasses(t.Context())
	if err != nil {
		testenv.SkipOrFail(t, err)
	}
	path := filepath.Join(t.TempDir(), "tool.sh")
	for _, class := range classes {
		text := fmt.Sprintf("#!/bin/sh\nexec '%s' -Xmx128m -XX:TieredStopAtLevel=1 -cp '%s' %s \"$@\"\n", java, classpath, class)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, _ := exec.Command(path, "--version").CombinedOutput(); !strings.Contains(string(out), "ClassNotFound") {
			return path
		}
	}
	t.Skip("Kafka's jars have no such tool")
	return ""
}
