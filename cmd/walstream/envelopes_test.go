package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/registry"
)

// documentedRow is the row of docs/envelopes-and-schemas.md, read from its table.
func documentedRow(t *testing.T, page string) *decode.Row {
	t.Helper()
	lines := strings.Split(page, "\n")
	row := &decode.Row{
		Position: decode.Position{CommitLSN: pglogrepl.LSN(0x16B374D848), Ordinal: 2},
		Relation: &decode.Relation{ID: 7, Namespace: "public", Name: "outbox"},
		Begin:    &decode.Begin{CommitTime: time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)},
	}
	types := map[string]uint32{"id": pgtype.Int8OID, "event_id": pgtype.UUIDOID, "payload": pgtype.JSONBOID, "headers": pgtype.JSONBOID}
	for i, line := range lines {
		if !strings.HasPrefix(line, "| id | event_id") {
			continue
		}
		names, values := strings.Split(line, "|"), strings.Split(lines[i+2], "|")
		for j := 1; j < len(names)-1; j++ {
			name := strings.TrimSpace(names[j])
			oid := types[name]
			if oid == 0 {
				oid = pgtype.TextOID
			}
			row.Relation.Columns = append(row.Relation.Columns, decode.Column{Name: name, TypeOID: oid})
			row.Values = append(row.Values, decode.Value{Format: decode.ValueText, Data: []byte(strings.TrimSpace(values[j]))})
		}
	}
	if len(row.Values) != 9 {
		t.Fatalf("the page has a row of %d columns", len(row.Values))
	}
	return row
}

// printed is the event as the page has it.
func printed(t *testing.T, e *outbox.Event, schemas *registry.Registry) string {
	t.Helper()
	var s strings.Builder
	line := func(name, value string) { fmt.Fprintf(&s, "%-24s %s\n", name, value) }
	line("topic", e.Topic)
	line("key", string(e.Key))
	line("timestamp", e.Timestamp.UTC().Format(time.RFC3339Nano))
	for _, h := range e.Headers {
		line(h.Key, string(h.Value))
	}
	value := string(e.Value)
	if e.Schema != nil {
		line("schema", "the latest of subject "+e.SchemaAt.Subject)
		framer, err := schemas.Find(t.Context(), *e.Schema, e.SchemaAt)
		if err == nil {
			err = framer.Check(e.Value)
		}
		if err != nil {
			t.Fatal(err)
		}
		value = strings.Trim(fmt.Sprintf("%q", framer.Prefix()), `"`) + value
	}
	line("value", value)
	return s.String()
}

// TestRecordsOfTheEnvelopesPage: every record that it shows is what its settings
// make of its row.
func TestRecordsOfTheEnvelopesPage(t *testing.T) {
	cleanPG(t)
	text, err := os.ReadFile("../../docs/envelopes-and-schemas.md")
	if err != nil {
		t.Fatal(err)
	}
	fake := srfake.New()
	defer fake.Close()
	if _, _, err := fake.RegisterSchema("deposits-value", sr.Schema{Schema: `{"required":["amount"]}`, Type: sr.TypeJSON}); err != nil {
		t.Fatal(err)
	}
	schemas, err := registry.New(registry.Config{URLs: []string{fake.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	row := documentedRow(t, string(text))
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```\n\n```record\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, example := range examples {
		c, err := load([]string{"--config", writeFile(t, example[1])}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := outbox.NewMapping(c.config.mappingConfigs())
		if err != nil {
			t.Fatal(err)
		}
		m.SetTimeline(3)
		var e outbox.Event
		if ok, err := m.Map(row, &e); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if got := printed(t, &e, schemas); got != example[2] {
			t.Errorf("%s\ngives\n%s\nthe page has\n%s", example[1], got, example[2])
		}
	}
	if len(examples) != 3 {
		t.Errorf("the page has %d examples", len(examples))
	}
}

func TestRegistrySettings(t *testing.T) {
	cleanPG(t)
	schema := writeFile(t, `{"type":"string"}`)
	base := []string{"--slot", "s", "--postgres", "postgres://u@h/d"}
	with := func(args ...string) []string { return append(append([]string{}, base...), args...) }
	url := "--registry-url=http://r:8081"
	for _, c := range []struct {
		args []string
		want string // empty: they are in order
	}{
		{with(url, "--schema-format=avro", "--schema-file="+schema, "--schema-subject=a"), ""},
		{with("--registry-url=https://a,https://b/api", "--registry-user=u", "--registry-password=hush", "--schema-format=json", "--schema-id={schema_id}"), ""},
		{with("--schema-format=avro"), "needs registry-url beside it"},
		{with("--schema-check"), "schema-check has no effect without schema-format"},
		{with("--registry-user=u"), "has no effect without --registry-url"},
		{with("--registry-url=r:8081"), "is no URL such as"},
		{with("--registry-url=http://u:hush@r"), "say it by registry-user and"},
		{with("--registry-url=http://r?a=b"), "has more than a path"},
		{with(url, "--registry-tls-ca=x"), "has no effect without an https://"},
		{with("--registry-url=https://r", "--registry-tls-cert=x"), "needs registry-tls-key beside it"},
		{with(url, "--registry-user=u"), "is required by registry-user"},
		{with(url, "--registry-password=a", "--registry-password-file=b"), "choose one"},
		{with(url, "--registry-password-file=/nowhere"), "cannot be read"},
		{with(url, "--schema-format=avro", "--schema-file=/nowhere"), "cannot be read"},
		{with(url, "--schema-format=avro", "--schema-file="+writeFile(t, " \n")), "is an empty file"},
		{with(url, "--schema-format=avro", "--schema-file="+schema, "--schema-version=1"), "does not go with schema-file"},
		{with(url, "--schema-format=avro", "--schema-version=0"), "is no number of a schema or version"},
		{with(url, "--schema-format=avro", "--schema-id=1", "--schema-subject=a"), "schema-id does not go with schema-subject"},
		{with(url, "--schema-format=avro", "--value-format=json"), "schema-format avro does not go with"},
		{with(url, "--schema-format=xml"), "is not known"},
	} {
		_, err := load(c.args, nil)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%v: got %v, want %s", c.args[4:], err, c.want)
		}
	}
}
