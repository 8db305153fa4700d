package main

import (
	"strings"

	"github.com/walstream/walstream/pkg/outbox"
)

// mapping says the settings of one table in the words of package outbox.
func (o *Outbox) mapping(pipeline string) outbox.MappingConfig {
	return outbox.MappingConfig{
		Schema: o.Table.Schema, Table: o.Table.Name, Preset: o.Preset, Pipeline: pipeline,
		Topic: o.Topic, TopicColumn: o.TopicColumn, TopicPattern: o.TopicPattern,
		KeyColumn: o.KeyColumn, ValueColumn: o.ValueColumn,
		HeadersColumn: o.HeadersColumn, HeaderColumns: o.HeaderColumns,
		PartitionColumn: o.PartitionColumn, TimestampColumn: o.TimestampColumn, IDColumn: o.IDColumn,
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
	fields := outboxFields(o)
	for _, f := range fields {
		if r.faulty(path + f.name) { // outbox would say it again
			return
		}
	}
	_, err := outbox.NewMapping([]outbox.MappingConfig{o.mapping(c.Pipeline)})
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "outbox "+o.Table.Schema+"."+o.Table.Name+": ")
		name := "table"
		for _, f := range fields { // the longest name: topic is not topic-pattern
			if strings.HasPrefix(line, f.name) && (name == "table" || len(f.name) > len(name)) {
				name = f.name
			}
		}
		r.refuse(path+name, line)
	}
}
