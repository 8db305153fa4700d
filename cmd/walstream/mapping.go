package main

import (
	"fmt"
	"strings"

	"github.com/walstream/walstream/pkg/outbox"
)

// mapping says the settings of one table in the words of package outbox.
func (o *Outbox) mapping(pipeline string) outbox.MappingConfig {
	return outbox.MappingConfig{
		Schema: o.Table.Schema, Table: o.Table.Name, Preset: o.Preset, Pipeline: pipeline,
		Topic: o.Topic, TopicColumn: o.TopicColumn, TopicPattern: o.TopicPattern,
		RouteColumn: o.RouteColumn, RouteRegex: o.RouteRegex, RouteReplacement: o.RouteReplace,
		KeyColumn: o.KeyColumn, KeyFormat: o.KeyFormat, Key: o.Key, ValueColumn: o.ValueColumn, ValueFormat: o.ValueFormat, Tombstone: o.Tombstone,
		HeadersColumn: o.HeadersColumn, HeaderColumns: o.HeaderColumns, HeaderFormat: o.HeaderFormat, HeaderConstants: o.HeaderConstants,
		Envelope: o.Envelope, CESource: o.CESource, CEType: o.CEType, CESubject: o.CESubject,
		CEDataContentType: o.CEContentType, CEDataSchema: o.CEDataSchema, CEExtensions: o.CEExtensions,
		SchemaFormat: o.SchemaFormat, SchemaSubject: o.SchemaSubject, SchemaVersion: o.SchemaVersion, SchemaID: o.SchemaID,
		SchemaText: o.schemaText(), SchemaMessage: o.SchemaMessage, SchemaCheck: o.SchemaCheck,
		TraceColumn: o.TraceColumn, EnvelopeColumns: o.EnvelopeColumns, EnvelopePayload: o.EnvelopePayload,
		MissingColumns: o.MissingColumns, PartitionColumn: o.PartitionColumn, TimestampColumn: o.TimestampColumn,
		IDColumn: o.IDColumn, IDHeader: o.IDHeader,
		IdempotencyKeyColumn: o.IdempotencyKeyColumn, IdempotencyKey: o.IdempotencyKey, IdempotencyHeader: o.IdempotencyHeader,
	}
}

// emptied keeps apart header-columns that were given without a column, which takes
// the preset's away, from those that were not given.
func (c *Config) emptied() {
	const name = "header-columns"
	empty := func(o *Outbox, path string) {
		if c.report.set(path+name) && o.HeaderColumns == nil {
			o.HeaderColumns = []string{}
		}
	}
	empty(&c.Outbox, "")
	for i := range c.Outboxes {
		empty(&c.Outboxes[i], fmt.Sprintf("outboxes[%d].", i))
	}
}

// checkMapping checks how one table's rows become records, as far as it can be
// known without the table. path is what stands before its settings' names.
func (c *Config) checkMapping(path string, o *Outbox) {
	r := c.report
	if o.Topic != "" && !validTopic(o.Topic) {
		r.refuse(path+"topic", "is no topic name; Kafka allows 1 to 249 of letters, digits and ._-")
	}
	if o.Topic != "" && o.TopicPattern != "" {
		r.refuse(path+"topic-pattern", "does not go with topic: both are for rows that name none; choose one")
	}
	if text := placeholder.ReplaceAllString(o.TopicPattern, ""); strings.Trim(text, topicLetters+"{}") != "" {
		r.refuse(path+"topic-pattern", "makes no topic name; Kafka allows letters, digits and ._-, and a {column}")
	}
	c.checkSchema(path, o)
	fields := outboxFields(o)
	_, err := outbox.NewMapping([]outbox.MappingConfig{o.mapping(c.Pipeline)})
	if err == nil {
		return
	}
	said := map[string]string{} // all that is wrong with a setting; what is refused already is not said again
	var names []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "outbox "+o.Table.Schema+"."+o.Table.Name+": ")
		name := "table"
		for _, f := range fields { // the longest name: topic is not topic-pattern
			if strings.HasPrefix(line, f.name) && (name == "table" || len(f.name) > len(name)) {
				name = f.name
			}
		}
		if said[name] == "" {
			names = append(names, name)
		} else {
			line = said[name] + "; " + line
		}
		said[name] = line
	}
	for _, name := range names {
		r.refuse(path+name, said[name])
	}
}
