package main

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

//go:embed corpus/*.yaml
var corpusFiles embed.FS

// theme is a file of the corpus.
type theme struct {
	Title  string  `yaml:"title"`
	About  string  `yaml:"about"`
	Groups []group `yaml:"groups"`
}

// group is a table, the settings of both sides for it, and its rows. What it does
// not say is as in standardColumns, standardRow and standardConverters.
type group struct {
	Name    string            `yaml:"name"`
	Shows   string            `yaml:"shows"`
	Columns map[string]string `yaml:"columns"` // of the table; "" takes a column away
	// Connector, Router and Converters are options of the connector, of its outbox
	// event router, and of the Connect worker. A converter may be a short name.
	Connector  map[string]string `yaml:"connector"`
	Router     map[string]string `yaml:"router"`
	Converters map[string]string `yaml:"converters"`
	// Without are options of the router that walstream refuses to take.
	Without []string `yaml:"without"`
	// Walstream are the settings of the table. By default the router's options are,
	// pasted into the section debezium.
	Walstream map[string]any `yaml:"walstream"`
	// Alone: a walstream for this group's one row, which is to end with it.
	Alone bool `yaml:"alone"`
	// Live groups go through Kafka Connect itself too, in make parity-live.
	Live bool               `yaml:"live"`
	Row  map[string]*string `yaml:"row"` // of all rows, unless they say otherwise
	Rows []row              `yaml:"rows"`
}

// row is what is written. A text that begins with "sql: " is an expression.
type row struct {
	Name string             `yaml:"name"`
	Set  map[string]*string `yaml:"set"`
	Then string             `yaml:"then"` // update or delete: the change that counts
}

const expression = "sql: "

// standardColumns is the table that Debezium's documentation shows.
var standardColumns = map[string]string{
	"id": "uuid", "aggregatetype": "varchar(255) NOT NULL", "aggregateid": "varchar(255) NOT NULL",
	"type": "varchar(255) NOT NULL", "payload": "jsonb",
}

// standardRow has an id that depends on the row's name alone, so that answers stay
// the same when the corpus grows.
func standardRow(name string) map[string]string {
	hash := sha256.Sum256([]byte(name))
	return map[string]string{
		"id": fmt.Sprintf("%x-0000-4000-8000-%x", hash[:4], hash[4:10]), "aggregatetype": "order", "aggregateid": "42",
		"type": "OrderCreated", "payload": `{"id": 42, "lines": [1, 2]}`,
	}
}

// standardConverters: text as it is; what the documentation of the router shows
// with a payload that is not expanded.
var standardConverters = map[string]string{"key.converter": "string", "value.converter": "string", "header.converter": "simple"}

// converters are the short names. The router's users switch JsonConverter's
// schemas off.
var converters = map[string]string{
	"string": "org.apache.kafka.connect.storage.StringConverter",
	"simple": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
	"json":   "org.apache.kafka.connect.json.JsonConverter",
	"bytes":  "org.apache.kafka.connect.converters.ByteArrayConverter",
	"binary": "io.debezium.converters.BinaryDataConverter",
}

// loadCorpus reads the themes in the order of their files' names.
func loadCorpus() ([]theme, error) {
	names, err := fs.Glob(corpusFiles, "corpus/*.yaml")
	if err != nil {
		return nil, err
	}
	var themes []theme
	for _, name := range names {
		data, err := corpusFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var t theme
		if err := yaml.Load(data, &t, yaml.WithKnownFields()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		themes = append(themes, t)
	}
	return themes, checkCorpus(themes)
}

// checkCorpus refuses what would be compared by mistake or not at all.
func checkCorpus(themes []theme) error {
	var faults []error
	seen := map[string]bool{}
	for _, g := range groupsOf(themes) {
		refuse := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("group %q: %s", g.Name, fmt.Sprintf(format, args...)))
		}
		if g.Name == "" || g.Shows == "" || len(g.Rows) == 0 {
			refuse("wants name, shows and rows")
		}
		if g.Alone && len(g.Rows) != 1 {
			refuse("alone has one row")
		}
		if seen[g.Name] {
			refuse("is there twice")
		}
		seen[g.Name] = true
		for _, option := range g.Without {
			if g.Router[option] == "" || g.Walstream != nil {
				refuse("is without %s, which it does not have", option)
			}
		}
		columns := g.columns()
		for _, r := range g.Rows {
			if r.Name == "" || seen[g.Name+"/"+r.Name] {
				refuse("row %q has no name of its own", r.Name)
			}
			seen[g.Name+"/"+r.Name] = true
			if r.Then != "" && r.Then != "update" && r.Then != "delete" {
				refuse("row %q: then %q", r.Name, r.Then)
			}
			for _, set := range []map[string]*string{g.Row, r.Set} {
				for column := range set {
					if columns[column] == "" {
						refuse("row %q: no column %q", r.Name, column)
					}
				}
			}
		}
	}
	return errors.Join(faults...)
}

func groupsOf(themes []theme) (groups []*group) {
	for i := range themes {
		for j := range themes[i].Groups {
			groups = append(groups, &themes[i].Groups[j])
		}
	}
	return groups
}

// table is the name of the group's table in the schema parity.
func (g *group) table() string { return strings.ReplaceAll(g.Name, "-", "_") }

func (g *group) columns() map[string]string {
	columns := maps.Clone(standardColumns)
	maps.Copy(columns, g.Columns)
	maps.DeleteFunc(columns, func(_, kind string) bool { return kind == "" })
	return columns
}

// create is the table's DDL.
func (g *group) create() string {
	columns := g.columns()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		key := ""
		if name == "id" {
			key = " PRIMARY KEY"
		}
		list = append(list, quoteName(name)+" "+columns[name]+key)
	}
	return fmt.Sprintf("CREATE TABLE parity.%s (%s)", quoteName(g.table()), strings.Join(list, ", "))
}

// insert is the statement for a row.
func (g *group) insert(r *row) string {
	columns := g.columns()
	values := map[string]string{}
	for column, text := range standardRow(g.Name + "/" + r.Name) {
		if columns[column] != "" {
			values[column] = quoteText(text)
		}
	}
	for _, set := range []map[string]*string{g.Row, r.Set} {
		for column, text := range set {
			switch {
			case text == nil:
				values[column] = "NULL"
			case strings.HasPrefix(*text, expression):
				values[column] = strings.TrimPrefix(*text, expression)
			default:
				values[column] = quoteText(*text)
			}
		}
	}
	var names, texts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		names, texts = append(names, quoteName(name)), append(texts, values[name])
	}
	return fmt.Sprintf("INSERT INTO parity.%s (%s) VALUES (%s)", quoteName(g.table()), strings.Join(names, ", "), strings.Join(texts, ", "))
}

// then is the statement of a row's second change: the row that was written last.
func (g *group) then(r *row) string {
	table := "parity." + quoteName(g.table())
	last := " WHERE ctid = (SELECT max(ctid) FROM " + table + ")"
	if r.Then == "delete" {
		return "DELETE FROM " + table + last
	}
	return "UPDATE " + table + " SET type = type || ', once more'" + last
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// workerOptions are the converters with their classes.
func (g *group) workerOptions() map[string]string {
	options := maps.Clone(standardConverters)
	maps.Copy(options, g.Converters)
	for name, value := range maps.Clone(options) {
		class, short := converters[value]
		if short {
			options[name] = class
		}
		if value == "json" {
			if _, said := options[name+".schemas.enable"]; !said {
				options[name+".schemas.enable"] = "false"
			}
		}
	}
	return options
}

// settings are the group's entry in walstream's list of outboxes.
func (g *group) settings() map[string]any {
	settings := maps.Clone(g.Walstream)
	if settings == nil {
		pasted := maps.Clone(g.Router)
		for _, option := range g.Without {
			delete(pasted, option)
		}
		settings = map[string]any{"debezium": pasted}
		if len(pasted) == 0 {
			settings = map[string]any{"preset": "debezium"}
		}
	}
	settings["table"] = "parity." + g.table()
	return settings
}
