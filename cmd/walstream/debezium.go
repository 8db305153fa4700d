package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/walstream/walstream/pkg/outbox"
)

// The file's debezium section takes the options of Debezium's outbox event router
// by their own names, so that a connector's configuration can be pasted, and says
// them in ours. docs/debezium-options.md has the table with the reasons.

const (
	sectionDebezium = "debezium"
	presetDebezium  = "debezium"
)

// routerOptions are all of 3.6, each with our setting; those without one are
// answered by special.
// https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
var routerOptions = map[string]string{
	"table.field.event.id":              "id-column",
	"table.field.event.key":             "key-column",
	"table.field.event.payload":         "value-column",
	"table.field.event.timestamp":       "timestamp-column",
	"table.field.additional.missing":    "missing-columns",
	"route.by.field":                    "route-column",
	"route.topic.regex":                 "route-regex",
	"route.topic.replacement":           "route-replacement",
	"tracing.span.context.field":        "trace-column",
	"table.fields.additional.placement": "",
	"route.tombstone.on.empty.payload":  "",
	"table.expand.json.payload":         "",
	"table.json.payload.null.behavior":  "",
	"table.op.invalid.behavior":         "",
	"table.field.event.type":            "",
	"table.field.event.schema.version":  "",
	"tracing.operation.name":            "",
	"tracing.with.context.field.only":   "",
	"type":                              "",
}

const routerClass = "io.debezium.transforms.outbox.EventRouter"

// routerWord is an option as the file has it.
type routerWord struct {
	text string
	node *yaml.Node
}

// router is one debezium section.
type router struct {
	walk    *fileWalk
	path    string // of the section, for messages
	options map[string]routerWord
	said    map[string]given // by our setting
}

// readRouter reads a section and returns what it says in our settings.
func (w *fileWalk) readRouter(path string, key, section *yaml.Node) map[string]given {
	r := &router{walk: w, path: path, options: map[string]routerWord{}, said: map[string]given{}}
	if section.Kind != yaml.MappingNode {
		w.report.add(path, w.at(key), "wants options of Debezium's outbox event router, such as route.by.field: aggregatetype")
		return nil
	}
	w.pairs(section, path+".", func(key, value *yaml.Node) {
		name := key.Value
		if rest, ok := strings.CutPrefix(name, "transforms."); ok { // as a connector has it: transforms.outbox.route.by.field
			_, name, _ = strings.Cut(rest, ".")
		}
		if _, known := routerOptions[name]; !known {
			w.report.add(path+"."+key.Value, w.at(key), "is no option of Debezium's outbox event router; nearest: "+
				nearestOr(name, "docs/debezium-options.md has all"))
			return
		}
		if earlier, twice := r.options[name]; twice { // of two transforms, or with and without the prefix
			w.report.add(path+"."+key.Value, w.at(key), fmt.Sprintf("is the option of line %d once more (%s): keep one of the two", earlier.node.Line, earlier.node.Value))
			return
		}
		if text, ok := w.text(path+"."+key.Value, value, name == "table.fields.additional.placement"); ok {
			r.options[name] = routerWord{text, key}
		}
	})
	r.say("preset", presetDebezium, key, sectionDebezium)
	for _, option := range slices.Sorted(maps.Keys(r.options)) {
		if setting := routerOptions[option]; setting != "" {
			r.say(setting, r.options[option].text, r.options[option].node, option)
		}
	}
	r.special()
	return r.said
}

func nearestOr(name, otherwise string) string {
	if near := nearest(name, slices.Sorted(maps.Keys(routerOptions))); near != "" {
		return near
	}
	return otherwise
}

// say notes one of our settings.
func (r *router) say(setting, text string, node *yaml.Node, option string) {
	r.said[setting] = given{text: text, origin: r.walk.at(node) + ", " + option}
}

func (r *router) refuse(option, problem string) {
	word := r.options[option]
	r.walk.report.faults = append(r.walk.report.faults, fault{
		name: r.path + "." + option, value: word.text, origin: r.walk.at(word.node), problem: problem,
	})
}

// is reports a switch's value; Debezium's switches are off by default.
func (r *router) is(option string) (on bool) {
	word, given := r.options[option]
	switch {
	case !given:
	case strings.EqualFold(word.text, "true"):
		on = true
	case !strings.EqualFold(word.text, "false"):
		r.refuse(option, "is neither true nor false")
	}
	return on
}

// special goes through the options that are not one setting's other name.
func (r *router) special() {
	envelope := r.placement()
	expand := r.is("table.expand.json.payload")
	empty := r.is("route.tombstone.on.empty.payload")
	switch node := r.options["route.tombstone.on.empty.payload"].node; {
	case empty:
		r.say("tombstone", outbox.OnBlank, node, "route.tombstone.on.empty.payload")
	case envelope: // then a NULL payload is null in the object
		r.say("tombstone", outbox.Never, r.options["table.fields.additional.placement"].node, "route.tombstone.on.empty.payload is not set")
	}
	if envelope {
		form := outbox.EnvelopeString
		if expand {
			form = outbox.EnvelopeJSON
		}
		r.say("envelope-payload", form, r.options["table.fields.additional.placement"].node, fmt.Sprintf("table.expand.json.payload is %v", expand))
	}
	for option, accepted := range map[string]string{
		"table.op.invalid.behavior":       "warn,error",
		"tracing.with.context.field.only": "true",
		"type":                            routerClass,
	} {
		if word, given := r.options[option]; given && !contains(accepted, word.text) {
			r.refuse(option, routerReasons[option])
		}
	}
	if r.options["table.json.payload.null.behavior"].text == "ignore" && expand {
		r.refuse("table.json.payload.null.behavior", routerReasons["table.json.payload.null.behavior"])
	}
	for _, option := range []string{"table.field.event.schema.version", "tracing.operation.name"} {
		if _, given := r.options[option]; given {
			r.refuse(option, routerReasons[option])
		}
	}
}

// routerReasons say why an option, or a value of it, has no counterpart.
var routerReasons = map[string]string{
	"table.op.invalid.behavior": "is not to be had: updates of outbox rows never reach walstream, whose publication carries inserts only; " +
		"to forbid them, take UPDATE from the application. allowed: warn, error",
	"tracing.with.context.field.only": "is not to be had: walstream makes no spans of its own, and passes on what the row has. allowed: true",
	"type":                            "is another transform; allowed: " + routerClass,
	"table.json.payload.null.behavior": "is not to be had: walstream never rewrites JSON, so members that are null stay. " +
		"allowed: optional_bytes",
	"table.field.event.schema.version": "has no counterpart: records carry no Connect schema that could have a version; to publish the column, " +
		"place it as a header by table.fields.additional.placement",
	"tracing.operation.name": "has no counterpart: walstream makes no spans of its own, and passes on what the row has; take it out",
}

// placement reads field:header|envelope|partition[:alias], ...
func (r *router) placement() (envelope bool) {
	const option = "table.fields.additional.placement"
	word, given := r.options[option]
	if !given {
		return false
	}
	lists := map[string][]string{}
	for _, text := range splitList(word.text) {
		parts := strings.Split(text, ":")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		setting := map[string]string{"header": "header-columns", "envelope": "envelope-columns", "partition": "partition-column"}[strings.ToLower(parts[min(1, len(parts)-1)])]
		if len(parts) < 2 || len(parts) > 3 || setting == "" || slices.Contains(parts, "") {
			r.refuse(option, fmt.Sprintf("%q is not COLUMN:header, COLUMN:envelope or COLUMN:partition, with an :ALIAS behind it or not", text))
			return false
		}
		column := parts[0]
		if len(parts) == 3 && setting != "partition-column" {
			column = parts[2] + "=" + column
		}
		lists[setting] = append(lists[setting], column)
	}
	if len(lists["partition-column"]) > 1 {
		r.refuse(option, "names more than one column for the partition")
	}
	for setting, columns := range lists {
		r.say(setting, strings.Join(columns, ","), word.node, option)
	}
	return len(lists["envelope-columns"]) > 0
}
