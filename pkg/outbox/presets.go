package outbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ownTable is the table of sql/publication.sql, and what is looked for in a
// table without a preset: a column of it that the table does not have is done
// without, as long as topic, key and value still come from somewhere.
var ownTable = shape{
	topicColumn: "topic", topicPattern: "outbox.event.{aggregate_type}",
	keys:          []string{"key", "aggregate_id"},
	value:         "payload",
	headers:       "headers",
	headerColumns: []string{"event_type"},
	rowID:         "id", eventID: "event_id",
	eventType: "{event_type}",
	lenient:   true,
}

// presets are the known shapes of other people's tables. Their columns must be
// there, but for that of the trace. Tables and records: docs/bring-your-outbox.md.
var presets = map[string]shape{
	// bank has no event id: walstream-event-id is the position, which unlike its
	// bigserial is not given out again after a failover that lost rows.
	"bank": {
		topicColumn: "topic", keys: []string{"key"}, value: "payload",
		headerColumns: []string{"aggregate_id"}, rowID: "id",
	},
	// relay: as with bank, the bigserial is no event id of ours; consumers of such
	// tables look for it under x-event-id.
	"relay": {
		topicPattern: "outbox.event.{aggregate_type}", keys: []string{"aggregate_id"}, value: "payload",
		headers: "headers", headerColumns: []string{"tenant_id", "event_type"},
		rowID: "id", idHeader: "x-event-id", idempotencyColumn: "idempotency_key", eventType: "{event_type}",
	},
	"events": {
		topicColumn: "topic", keys: []string{"key"}, value: "payload",
		rowID: "outbox_id", eventID: "event_id", idempotencyColumn: "idempotency_key", idempotency: Derived,
	},
	// debezium is what the event router does without a setting.
	"debezium": {
		route: routeSettings{column: "aggregatetype"}, keys: []string{"aggregateid"}, value: "payload",
		rowID: "id", eventID: "id", idHeader: "id", trace: "tracingspancontext", eventType: "{type}",
	},
}

// shape says which column each part of the record comes from.
type shape struct {
	topic, topicColumn, topicPattern     string
	route                                routeSettings
	keys                                 []string // the first that is not NULL
	key                                  string
	value, headers, partition, timestamp string
	headerColumns                        []string // [header=]column
	rowID, eventID, idHeader             string
	idempotencyColumn, idempotency       string
	trace                                string
	eventType                            string // a CloudEvent's type, as ce-type has it
	lenient                              bool   // columns not named by a setting may be missing
}

// Presets are the names that MappingConfig.Preset can have, beside none.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

func shapeOf(preset string) (shape, error) {
	if preset == "" {
		return ownTable, nil
	}
	if s, ok := presets[preset]; ok {
		return s, nil
	}
	return shape{}, fmt.Errorf("preset %q is unknown: it can be empty or %s", preset, strings.Join(Presets(), ", "))
}

// overrideBy puts the settings over the shape. A setting of a part replaces all
// that the shape says about it.
func (s *shape) overrideBy(c *MappingConfig) {
	route := routeSettings{c.RouteColumn, c.RouteRegex, c.RouteReplacement}
	if c.Topic != "" || c.TopicColumn != "" || c.TopicPattern != "" || route != (routeSettings{}) {
		s.topic, s.topicColumn, s.topicPattern = c.Topic, c.TopicColumn, c.TopicPattern
		s.route.overrideBy(route)
	}
	if c.KeyColumn != "" || c.Key != "" {
		s.keys, s.key = []string{c.KeyColumn}, c.Key
	}
	if c.HeaderColumns != nil {
		s.headerColumns = c.HeaderColumns
	}
	if c.IDColumn != "" {
		s.rowID, s.eventID = c.IDColumn, c.IDColumn
	}
	if c.IdempotencyKeyColumn != "" {
		s.idempotencyColumn, s.idempotency = c.IdempotencyKeyColumn, ""
	}
	switch c.IdempotencyKey {
	case Derived:
		s.idempotency = Derived
	case None:
		s.idempotencyColumn, s.idempotency = "", ""
	}
	for _, o := range []struct{ setting, word *string }{
		{&c.ValueColumn, &s.value},
		{&c.HeadersColumn, &s.headers},
		{&c.PartitionColumn, &s.partition},
		{&c.TimestampColumn, &s.timestamp},
		{&c.TraceColumn, &s.trace},
		{&c.IDHeader, &s.idHeader},
	} {
		if *o.setting != "" {
			*o.word = *o.setting
		}
	}
}

// splitPair reads [name=]column of a list.
func splitPair(setting, text string) (name, column string, err error) {
	name, column, found := strings.Cut(text, "=")
	if !found {
		column = name
	}
	if name == "" || column == "" {
		return "", "", fmt.Errorf("%s: %q is not COLUMN or NAME=COLUMN", setting, text)
	}
	return name, column, nil
}

// checkHeaderName refuses a header that is walstream's own.
func checkHeaderName(setting, name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return fmt.Errorf("%s: names that begin with %s are walstream's own: %q", setting, reservedPrefix, name)
	}
	return nil
}
