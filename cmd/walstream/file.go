package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// readFile reads the settings file; without a path there is none. The nodes are
// walked here rather than decoded into Config, because a file's word has to wait
// for those of variables and flags, because an origin needs the line, and
// because all unknown and double keys are to be reported together.
func readFile(path string, r *report) (file layer, outboxes []Outbox) {
	w := &fileWalk{path: path, report: r, layer: layer{report: r, values: map[string]given{}}}
	if path == "" {
		if r.set(flagConfig) {
			r.refuse(flagConfig, "is empty: name a file, or leave it out")
		}
		return w.layer, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		r.add(path, r.origin(flagConfig), "cannot be read: "+cause(err).Error())
		r.blind = true
		return w.layer, nil
	}
	var document yaml.Node
	if err := yaml.Load(data, &document); err != nil {
		if !emptyYAML(data) {
			w.syntax(err)
			r.blind = true
		}
		return w.layer, nil
	}
	root := document.Content[0]
	switch {
	case root.Kind == yaml.MappingNode:
		w.settings(root)
	case root.Tag != "!!null":
		r.add(path, w.at(root), "holds no settings; they are written name: value")
	}
	return w.layer, w.outboxes
}

// cause drops the path that os puts into its errors: it is named already.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// emptyYAML tells whether a file has nothing but blank lines and comments.
func emptyYAML(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// fileWalk is one walk over a settings file.
type fileWalk struct {
	path     string
	report   *report
	layer    layer
	outboxes []Outbox
}

func (w *fileWalk) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", w.path, n.Line) }

// syntax reports what the YAML parser said, without the text it said it about:
// that may be half of a password.
func (w *fileWalk) syntax(err error) {
	const hint = `; a value that begins with one of [ { * & ! @ % or holds ": " is put in quotes`
	var load *yaml.LoadError
	if errors.As(err, &load) && load.Mark.Line > 0 {
		message, _, _ := strings.Cut(load.Message, " '")
		w.report.add(w.path, fmt.Sprintf("%s:%d", w.path, load.Mark.Line), "is not YAML: "+message+hint)
		return
	}
	w.report.add(w.path, "", "is not one YAML document")
}

// pairs visits the keys of a mapping and refuses those that are no plain names
// or stand there twice. path is what stands above them.
func (w *fileWalk) pairs(n *yaml.Node, path string, visit func(key, value *yaml.Node)) {
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			w.report.add(strings.TrimSuffix(path, "."), w.at(key), "has a key that is not a name")
			continue
		}
		if earlier := first[key.Value]; earlier != nil {
			w.report.add(path+key.Value, w.at(key), fmt.Sprintf("stands there twice, first in line %d", earlier.Line))
			continue
		}
		first[key.Value] = key
		visit(key, n.Content[i+1])
	}
}

func (w *fileWalk) settings(root *yaml.Node) {
	var said map[string]given
	w.pairs(root, "", func(key, value *yaml.Node) {
		name := key.Value
		flag := w.report.flags[name]
		switch {
		case name == sectionDebezium:
			said = w.readRouter(name, key, value)
		case name == "outboxes":
			w.list(value)
		case flag == nil || name == flagConfig || name == flagHelp:
			w.strange(name, key, value)
		default:
			if text, ok := w.text(name, value, flag.IsSlice()); ok {
				w.layer.values[name] = given{text: text, origin: w.at(key)}
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if own, twice := w.layer.values[name]; !twice {
			w.layer.values[name] = said[name]
		} else if name != "preset" {
			w.saidTwice(name, own.origin, said[name].origin)
		}
	}
}

// saidTwice refuses a setting that stands beside Debezium's word for it.
func (w *fileWalk) saidTwice(name, own, router string) {
	w.report.add(name, own, "is said by the debezium section too ("+router+"): keep one of the two")
}

// strange reports a key that is no setting, and, where it has keys below it,
// those too: people nest what is flat here.
func (w *fileWalk) strange(path string, key, value *yaml.Node) {
	if value.Kind != yaml.MappingNode {
		w.report.add(path, w.at(key), w.report.unknown(path, ""))
		return
	}
	w.pairs(value, path+".", func(inner, innerValue *yaml.Node) {
		w.nested(path, inner, innerValue)
	})
}

func (w *fileWalk) nested(path string, key, value *yaml.Node) {
	full := path + "." + key.Value
	if value.Kind == yaml.MappingNode {
		w.pairs(value, full+".", func(inner, innerValue *yaml.Node) { w.nested(full, inner, innerValue) })
		return
	}
	flat := strings.ReplaceAll(full, ".", "-")
	for _, name := range []string{flat, key.Value} {
		if w.report.flags[name] != nil {
			w.report.add(full, w.at(key), "stands at the wrong level; settings are flat: "+name)
			return
		}
	}
	if elsewhere[key.Value] != "" {
		flat = key.Value
	}
	w.report.add(full, w.at(key), w.report.unknown(flat, ""))
}

// text is a value as a flag would have it. null is the empty text, like a
// variable set to nothing.
func (w *fileWalk) text(name string, n *yaml.Node, list bool) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return "", true
	case n.Kind == yaml.ScalarNode:
		return n.Value, true
	case n.Kind == yaml.SequenceNode && list:
		var items []string
		for _, item := range n.Content {
			several := name == "kafka-brokers" && strings.Contains(item.Value, ",") // a column may have a comma in its name
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || several {
				w.report.add(name, w.at(item), "wants a list of plain values")
				return "", false
			}
			items = append(items, item.Value)
		}
		return joinList(items), true
	}
	problem := "wants one plain value"
	if list {
		problem = "wants a list of plain values"
	}
	if n.Kind == yaml.MappingNode {
		problem += ", and has keys below it; settings are flat"
	}
	w.report.add(name, w.at(n), problem)
	return "", false
}

// list reads outboxes, the one setting that has structure.
func (w *fileWalk) list(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		w.report.add("outboxes", w.at(n), "wants a list of tables, each with its mapping: - table: public.outbox")
		return
	}
	w.report.origins["outboxes"] = w.at(n)
	for i, item := range n.Content {
		var o Outbox
		path := fmt.Sprintf("outboxes[%d].", i)
		w.report.origins[strings.TrimSuffix(path, ".")] = w.at(item)
		if item.Kind != yaml.MappingNode {
			w.report.add(strings.TrimSuffix(path, "."), w.at(item), "wants a table with its mapping: table: public.outbox")
			continue
		}
		var said map[string]given
		w.pairs(item, path, func(key, value *yaml.Node) {
			if key.Value == sectionDebezium {
				said = w.readRouter(path+sectionDebezium, key, value)
				return
			}
			w.outboxKey(&o, path, key, value)
		})
		w.outboxRouter(&o, path, said)
		w.outboxes = append(w.outboxes, o)
	}
}

func (w *fileWalk) outboxKey(o *Outbox, path string, key, value *yaml.Node) {
	name, r := path+key.Value, w.report
	for _, f := range outboxFields(o) {
		if f.name != key.Value {
			continue
		}
		text, ok := w.text(name, value, f.value.Kind() == reflect.Slice)
		if !ok {
			return
		}
		r.origins[name], r.texts[name] = w.at(key), text
		if err := parseValue(f.value, text); err != nil {
			r.refuse(name, explain(err, f.tags))
		}
		return
	}
	if r.flags[key.Value] != nil {
		r.add(name, w.at(key), "stands at the wrong level; it belongs to the top of the file")
		return
	}
	var valid []string
	for _, f := range outboxFields(o) {
		valid = append(valid, f.name)
	}
	problem := "is no setting of a table; those are " + strings.Join(valid, ", ")
	if near := nearest(key.Value, valid); near != "" {
		problem = "is no setting of a table; nearest: " + near
	}
	r.add(name, w.at(key), problem)
}

// outboxRouter sets what a table's debezium section says.
func (w *fileWalk) outboxRouter(o *Outbox, path string, said map[string]given) {
	r := w.report
	for _, f := range outboxFields(o) {
		word, ok := said[f.name]
		name := path + f.name
		switch {
		case !ok:
		case !r.set(name):
			r.origins[name], r.texts[name] = word.origin, word.text
			if err := parseValue(f.value, word.text); err != nil {
				r.refuse(name, explain(err, f.tags))
			}
		case f.name != "preset":
			w.saidTwice(name, r.origin(name), word.origin)
		}
	}
}

// field is one setting of a table.
type field struct {
	name  string
	tags  tags
	value reflect.Value
}

// outboxFields are the settings of one table, by the names Config has for them.
func outboxFields(o *Outbox) []field {
	v := reflect.ValueOf(o).Elem()
	var fields []field
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		fields = append(fields, field{name: tag.Get("name"), tags: tag, value: v.Field(i)})
	}
	return fields
}
