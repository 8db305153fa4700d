package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/walstream/walstream/pkg/outbox"
)

// TestDebeziumOptions: each option, and what it comes to in our settings.
func TestDebeziumOptions(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct {
		options string
		want    outbox.MappingConfig
	}{
		{"type: io.debezium.transforms.outbox.EventRouter", outbox.MappingConfig{}},
		{"table.field.event.id: event_id", outbox.MappingConfig{IDColumn: "event_id"}},
		{"table.field.event.key: k", outbox.MappingConfig{KeyColumn: "k"}},
		{"table.field.event.payload: body", outbox.MappingConfig{ValueColumn: "body"}},
		{"table.field.event.timestamp: at", outbox.MappingConfig{TimestampColumn: "at"}},
		{"table.field.event.type: kind", outbox.MappingConfig{}},
		{"table.field.additional.missing: ignore", outbox.MappingConfig{MissingColumns: outbox.MissingIgnore}},
		{"route.by.field: kind", outbox.MappingConfig{RouteColumn: "kind"}},
		{"route.topic.regex: (?<routedByValue>.*)Event", outbox.MappingConfig{RouteRegex: "(?<routedByValue>.*)Event"}},
		{"route.topic.replacement: ${routedByValue}.events", outbox.MappingConfig{RouteReplacement: "${routedByValue}.events"}},
		{"transforms.outbox.route.topic.replacement: events", outbox.MappingConfig{RouteReplacement: "events"}},
		{"tracing.span.context.field: ctx", outbox.MappingConfig{TraceColumn: "ctx"}},
		{"tracing.with.context.field.only: true", outbox.MappingConfig{}},
		{"table.op.invalid.behavior: error", outbox.MappingConfig{}},
		{"route.tombstone.on.empty.payload: true", outbox.MappingConfig{Tombstone: outbox.OnBlank}},
		{"route.tombstone.on.empty.payload: false", outbox.MappingConfig{}},
		{"table.expand.json.payload: true", outbox.MappingConfig{}}, // the value is the column's JSON anyway
		{"table.json.payload.null.behavior: optional_bytes", outbox.MappingConfig{}},
		{"table.json.payload.null.behavior: ignore", outbox.MappingConfig{}}, // nothing is expanded
		{
			"table.fields.additional.placement: type:header:eventType, tenant:header,shard:partition",
			outbox.MappingConfig{HeaderColumns: []string{"eventType=type", "tenant"}, PartitionColumn: "shard"},
		},
		{
			"table.fields.additional.placement: [type:envelope, at:envelope:time]",
			outbox.MappingConfig{EnvelopeColumns: []string{"type", "time=at"}, EnvelopePayload: outbox.EnvelopeString, Tombstone: outbox.Never},
		},
		{
			"table.fields.additional.placement: type:envelope\n  table.expand.json.payload: true\n  route.tombstone.on.empty.payload: true",
			outbox.MappingConfig{EnvelopeColumns: []string{"type"}, EnvelopePayload: outbox.EnvelopeJSON, Tombstone: outbox.OnBlank},
		},
	} {
		c.want.Schema, c.want.Table, c.want.Preset, c.want.Pipeline = "public", "o", "debezium", "app.s"
		want := fmt.Sprintf("%+v", c.want)
		for where, file := range map[string]string{
			"top":   "table: o\ndebezium:\n  " + c.options + "\n",
			"table": "outboxes:\n- table: o\n  debezium:\n    " + strings.ReplaceAll(c.options, "\n", "\n  ") + "\n",
		} {
			config := mustLoad(t, []string{"--slot=s", "--config", writeFile(t, file)}, nil)
			if got := fmt.Sprintf("%+v", config.mappingConfigs()[0]); got != want {
				t.Errorf("%s: %s\ngot  %s\nwant %s", where, c.options, got, want)
			}
			var out bytes.Buffer // walstream config shows a connector's configuration in our words
			if err := printConfig(&out, config); err != nil {
				t.Fatal(err)
			}
			again := mustLoad(t, []string{"--config", writeFile(t, out.String())}, nil)
			if got := fmt.Sprintf("%+v", again.mappingConfigs()[0]); got != want {
				t.Errorf("%s: %s: printed and read again it is %s", where, c.options, got)
			}
		}
	}
}

func TestDebeziumRefused(t *testing.T) {
	cleanPG(t)
	for _, c := range []struct{ options, want string }{
		{"route.by.feild: x", "debezium.route.by.feild (F:2): is no option of Debezium's outbox event router; nearest: route.by.field"},
		{"transforms.outbox.predicate: x", "is no option of Debezium's outbox event router"},
		{"type: io.debezium.transforms.ExtractNewRecordState", "is another transform"},
		{"table.op.invalid.behavior: fatal", "updates of outbox rows never reach walstream"},
		{"table.field.event.schema.version: v", "debezium.table.field.event.schema.version"},
		{"tracing.operation.name: x", "makes no spans of its own"},
		{"tracing.with.context.field.only: false", "makes no spans of its own"},
		{"table.expand.json.payload: yes", "is neither true nor false"},
		{"table.expand.json.payload: true\n  table.json.payload.null.behavior: ignore", "never rewrites JSON"},
		{"table.fields.additional.placement: type", `"type" is not COLUMN:header`},
		{"table.fields.additional.placement: type:body", `"type:body" is not COLUMN:header`},
		{"table.fields.additional.placement: a:header:b:c", "is not COLUMN:header"},
		{"table.fields.additional.placement: a:partition,b:partition", "more than one column for the partition"},
		{"table.field.additional.missing: warn", "missing-columns = \"warn\" (F:2, table.field.additional.missing): is not known; allowed: error, ignore"},
		{"route.topic.regex: (?=x).*", "no lookaround"},
		{"route.topic.replacement: ${name}", `(F:2, route.topic.replacement): route-replacement "${name}": route-regex has no group named "name"`},
		{"route.by.field: x\nroute-column: y", "route-column (F:3): is said by the debezium section too (F:2, route.by.field): keep one of the two"},
		{"route.by.field: x\ntopic: y", "exclude each other"},
		{"transforms.a.route.by.field: x\n  transforms.b.route.by.field: y", "debezium.transforms.b.route.by.field (F:3): is the option of line 2 once more (transforms.a.route.by.field): keep one of the two"},
		{"transforms.a.route.by.field: x\n  route.by.field: x", "debezium.route.by.field (F:3): is the option of line 2 once more"},
	} {
		path := writeFile(t, "debezium:\n  "+c.options+"\n")
		got := strings.ReplaceAll(faultsOf(t, []string{"--slot=s", "--config", path}, nil), path, "F")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant: %s", c.options, got, c.want)
		}
	}
	for _, c := range []struct{ file, want string }{
		{"debezium: x\n", "debezium (F:1): wants options of Debezium's outbox event router"},
		{"outboxes:\n- table: a\n  route-column: y\n  debezium:\n    route.by.field: x\n", "outboxes[0].route-column (F:3): is said by the debezium section too (F:5, route.by.field)"},
		{"outboxes:\n- table: a\n  debezium:\n    route.topic.regex: (\n", `outboxes[0].route-regex = "(" (F:4, route.topic.regex): route-regex "(" is no regular expression`},
	} {
		path := writeFile(t, c.file)
		got := strings.ReplaceAll(faultsOf(t, []string{"--slot=s", "--config", path}, nil), path, "F")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant: %s", c.file, got, c.want)
		}
	}
	if got := faultsOf(t, []string{"--slot=s", "--debezium=x"}, nil); !strings.Contains(got, "in the file only") {
		t.Errorf("got %s", got)
	}
}
