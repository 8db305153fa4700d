package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

const schemaFile = "../../deploy/walstream.schema.json"

// TestSchemaFile: the copy that editors are pointed to is what the binary prints.
func TestSchemaFile(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"config", "--schema"}, nil, streams{out: &out, err: &errs}); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if *update {
		if err := os.WriteFile(schemaFile, out.Bytes(), 0o644); err != nil { //nolint:gosec // read by everybody
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, out.Bytes()) {
		t.Errorf("%s is not what walstream config --schema prints; go test ./cmd/walstream -run TestSchemaFile -update writes it", schemaFile)
	}
}

// compiledSchema is the schema of the copy.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("walstream.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("walstream.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// validateYAML holds a settings file against the schema, as an editor does.
func validateYAML(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return s.Validate(document)
}

// yamlExamples are the settings files that the repository shows: in its pages, in
// the scripts, and what walstream config prints of all defaults.
func yamlExamples(t *testing.T) map[string]string {
	t.Helper()
	examples := map[string]string{}
	fence := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, pattern := range []string{"../../docs/*.md", "../../README.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
				if strings.HasPrefix(block[1], "slot:") {
					examples[page+": "+block[1]] = block[1]
				}
			}
		}
	}
	script, err := os.ReadFile("testdata/script/config.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(script), "\n-- ")[1:] {
		name, text, _ := strings.Cut(part, " --\n")
		if strings.HasSuffix(name, ".yaml") {
			examples[name] = text
		}
	}
	return examples
}

func TestExamplesFitTheSchema(t *testing.T) {
	s := compiledSchema(t)
	examples := yamlExamples(t)
	if len(examples) < 12 {
		t.Errorf("only %d examples found", len(examples))
	}
	for name, text := range examples {
		if err := validateYAML(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaAgreesWithTheReader: what the schema refuses is refused by the reader
// too, and a setting that fits is taken by both.
func TestSchemaAgreesWithTheReader(t *testing.T) {
	cleanPG(t)
	s := compiledSchema(t)
	for _, c := range []struct {
		text string
		fits bool
	}{
		{"stall-timeout: 90s", true},
		{"stall-timeout: 1m30s", true},
		{"stall-timeout: 90", false},
		{"max-in-flight-bytes: 64MiB", true},
		{"max-in-flight-bytes: 64", false},
		{"sink: kafka", true},
		{"sink: Kafka", false},
		{"kafka-brokers: [a:1, b:2]", true},
		{"kafka-brokers: a:1,b:2", true},
		{"kafka-tls: true", true},
		{"kafka-tls: 1", false},
		{"create-topics: true\ntopic-partitions: 12", true},
		{"create-topics: true\ntopic-partitions: 10001", false},
		{"create-topics: true\ntopic-partitions: many", false},
		{"slot_nmae: x", false},
		{"kafka: {brokers: a}", false},
		{"adopt-slot: 16/B374D848", true},
		{"adopt-slot: 16", false},
		{"accept-gap: 0/1..0/2", true},
		{"accept-gap: 0/1", false},
		{"outboxes: [{table: a.b, preset: bank}]", true},
		{"outboxes: [{preset: bank}]", false},
		{"outboxes: []", false},
		{"outboxes: [{table: a, slot: s}]", false},
		{"debezium: {route.by.field: aggregatetype}", true},
		{"debezium: {transforms.outbox.route.by.field: aggregatetype}", true},
		{"debezium: {route.by.feild: aggregatetype}", false},
		{"preset: nobody", false},
	} {
		text := "slot: s\n" + c.text + "\n"
		if err := validateYAML(t, s, text); (err == nil) != c.fits {
			t.Errorf("%s: the schema says %v", c.text, err)
		}
		if _, err := load([]string{"--config", writeFile(t, text)}, nil); (err == nil) != c.fits {
			t.Errorf("%s: the reader says %v", c.text, err)
		}
	}
}

// TestSchemaHasEverySetting with its help, and its default where there is one.
func TestSchemaHasEverySetting(t *testing.T) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties map[string]struct {
			Description string
			Default     any
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	inv, _ := load(nil, nil)
	for _, f := range inv.config.report.settings {
		p, found := s.Properties[f.Name]
		if !found || !strings.HasPrefix(p.Description, f.Help) || (p.Default != nil) != (f.Default != "") {
			t.Errorf("%s: %+v", f.Name, p)
		}
	}
}
