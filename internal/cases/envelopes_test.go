package cases

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// walstream check has a finding for the registry, and one for each schema that the
// settings name; it registers nothing. Looking shows values as they are, and says so.
func TestCheckSchemaRegistry(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	fake := srfake.New()
	t.Cleanup(fake.Close)
	file := filepath.Join(t.TempDir(), "schema.json")
	r.check(os.WriteFile(file, []byte(`{"required":["i"]}`), 0o600))
	settings := func(more ...string) []string {
		return append([]string{"--registry-url", fake.URL(), "--schema-format", "json"}, more...)
	}
	for _, c := range []struct {
		name  string
		args  []string
		fails bool
		says  []string
	}{
		{"nothing is there", settings(), true, []string{"ok    schema registry: " + fake.URL(), "fail  schema of public.bank_outbox: subject", "-> register the schema"}},
		{"it would be registered", settings("--schema-file", file), false, []string{"walstream registers the schema of schema-file at its start"}},
		{"the rows say", settings("--schema-subject", "{event_type}s"), false, []string{"named by the rows"}},
		{"nobody answers", []string{"--registry-url", "http://127.0.0.1:1", "--schema-format", "json"}, true, []string{"fail  schema registry: ", "-> check registry-url"}},
	} {
		out, code := r.command([]string{"check"}, c.args...)
		for _, want := range c.says {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, out)
			}
		}
		if failed := code != 0; failed != c.fails {
			t.Errorf("%s: exit code %d\n%s", c.name, code, out)
		}
	}
	if fake.SubjectExists(r.topic + "-value") {
		t.Error("checking has registered a schema")
	}
}

// A schema registry that is down when walstream starts: rows wait, nothing is
// confirmed past them, and they go out framed, as CloudEvents, when it is back. A
// value that does not fit its schema stops walstream at that row.
func TestSchemaRegistryDown(t *testing.T) { inBothAtOnce(t, schemaRegistryDown) }

func schemaRegistryDown(t *testing.T) {
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox ALTER payload TYPE jsonb USING payload::text::jsonb`)
	fake := srfake.New()
	t.Cleanup(fake.Close)
	var down atomic.Bool
	var asked atomic.Int64
	fake.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return down.Load()
	})
	_, _, err := fake.RegisterSchema("deposits", sr.Schema{Schema: `{"required":["i"]}`, Type: sr.TypeJSON})
	r.check(err)
	args := []string{
		"--registry-url", fake.URL(), "--schema-format", "json", "--schema-subject", "{event_type}s", "--schema-check", "true",
		"--envelope", "cloudevents-binary", "--ce-subject", "{aggregate_id}", "--shutdown-grace", "1s",
	}
	s := r.stream(args...)
	insert := func(kind, payload string) {
		r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', 'acc-1', $1, $2::text::jsonb)`, kind, payload)
	}
	down.Store(true)
	insert("deposit", `{"i": 1}`)
	insert("deposit", `{"i": 2}`)
	r.until("the registry was asked twice", func() bool { return asked.Load() >= 2 })
	if got := r.published(); len(got) != 0 {
		t.Errorf("%d records though the registry is down", len(got))
	}
	// A stop cannot wait for it either, and says what the rows waited for.
	r.check(s.Signal(syscall.SIGTERM))
	if code := r.ends(s, 10*time.Second); code != 7 || !strings.Contains(s.Log(), "the grace ran out (1s): look up subject") {
		t.Errorf("exit code %d\n%s", code, s.Log())
	}
	s = r.start(args...)
	down.Store(false)
	r.untilConfirmed()
	got := r.published()
	if len(got) != 2 {
		t.Fatalf("%d records\n%s", len(got), s.Log())
	}
	for i, want := range []string{"\x00\x00\x00\x00\x01{\"i\": 1}", "\x00\x00\x00\x00\x01{\"i\": 2}"} {
		if string(got[i].Value) != want || header(got[i], "ce_type") != "deposit" || header(got[i], "ce_subject") != "acc-1" || header(got[i], "content-type") != "application/json" {
			t.Errorf("record %d: %q %v", i, got[i].Value, got[i].Headers)
		}
	}
	insert("deposit", `{"secret": 1}`)
	if code := r.ends(s, 20*time.Second); code != 6 || !strings.Contains(s.Log(), "does not fit schema id 1") || strings.Contains(s.Log(), "secret") {
		t.Errorf("exit code %d\n%s", code, s.Log())
	}
}
