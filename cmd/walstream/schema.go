package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// The settings file as a JSON schema, for editors that complete and check YAML. It
// is made from the one table of settings, so it cannot say otherwise; the copy in
// deploy/ is held against it by a test.

// schema is one JSON schema, or a part of one.
type schema map[string]any

const (
	schemaDraft = "http://json-schema.org/draft-07/schema#" // what editors of YAML know
	schemaID    = "https://github.com/walstream/walstream/blob/main/deploy/walstream.schema.json"
	lsnPattern  = `[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}`
)

// printSchema writes the schema of the settings file.
func printSchema(out io.Writer, r *report) error {
	properties, table := schema{}, schema{}
	for _, f := range r.settings {
		properties[f.Name] = settingSchema(f.Tag, f.Target, f.Help, f.Default)
	}
	for _, f := range outboxFields(&Outbox{}) {
		table[f.name] = settingSchema(f.tags, f.value, f.tags.Get("help"), "")
	}
	section := routerSchema()
	table[sectionDebezium], properties[sectionDebezium] = section, section
	properties["outboxes"] = schema{
		"description": "outbox tables, instead of the settings of a single one",
		"type":        "array", "minItems": 1,
		"items": schema{"type": "object", "properties": table, "required": []string{"table"}, "additionalProperties": false},
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(schema{
		"$schema": schemaDraft, "$id": schemaID, "title": "Settings of walstream",
		"description": "The file of --config. A setting may also be a flag, or a variable WALSTREAM_<NAME>.",
		"type":        "object", "properties": properties, "additionalProperties": false,
	})
}

// settingSchema is that of one setting: its type with its unit, what it may be, its
// default, and its help.
func settingSchema(t tags, value reflect.Value, help, byDefault string) schema {
	s := schema{"description": help}
	if low, high, ok := strings.Cut(t.Get("range"), ".."); ok {
		s["description"] = fmt.Sprintf("%s; %s to %s", help, low, high)
	}
	pattern := ""
	switch value.Interface().(type) {
	case bool:
		s["type"] = "boolean"
	case int:
		s["type"] = "integer"
		if low, high, ok := strings.Cut(t.Get("range"), ".."); ok {
			s["minimum"], s["maximum"] = json.Number(low), json.Number(high)
		}
	case []string:
		s["type"], s["items"] = []string{"array", "string"}, schema{"type": []string{"string", "number", "boolean"}}
	case time.Duration:
		pattern = `(([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+|[0-9]+(\.[0-9]+)?d)`
	case Size:
		pattern = `[0-9]+(\.[0-9]+)? ?([kKmMgGtT][iI]?)?[bB]`
	case pglogrepl.LSN: // empty: none
		pattern = "(" + lsnPattern + ")?"
	case LSNRange:
		pattern = "(" + lsnPattern + `\.\.` + lsnPattern + ")?"
	case Table:
		s["type"] = "string"
	case string:
		s["type"] = []string{"string", "number"} // 5 is as good as "5" where a text is wanted
	default:
		panic(fmt.Sprintf("walstream: bug: no schema for a setting of type %s", value.Type()))
	}
	if pattern != "" {
		s["type"], s["pattern"] = "string", "^"+pattern+"$"
	}
	if values := t.Get("values"); values != "" {
		s["type"], s["enum"] = "string", strings.Split(values, ",")
	}
	if byDefault != "" {
		s["default"] = defaultOf(value, byDefault)
	}
	return s
}

func defaultOf(value reflect.Value, text string) any {
	switch value.Interface().(type) {
	case bool:
		return text == "true"
	case int:
		return json.Number(text)
	case []string:
		return splitList(text)
	}
	return text
}

// routerSchema is the section of Debezium's options, by their own names or as a
// connector has them.
func routerSchema() schema {
	names := make([]string, 0, len(routerOptions))
	for name := range routerOptions {
		names = append(names, strings.ReplaceAll(name, ".", `\.`))
	}
	slices.Sort(names)
	return schema{
		"description":          "options of Debezium's outbox event router by their own names; docs/debezium-options.md has each",
		"type":                 "object",
		"patternProperties":    schema{`^(transforms\.[^.]+\.)?(` + strings.Join(names, "|") + `)$`: schema{"type": []string{"string", "boolean", "number"}}},
		"additionalProperties": false,
	}
}
