package outbox

import (
	"fmt"
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
	lenient: true,
}

// presets are the known shapes of other people's tables. Their columns must be
// there.
var presets = map[string]shape{
	// bank has no event id: walstream-event-id is the position, which unlike its
	// bigserial is not given out again after a failover that lost rows.
	"bank": {
		topicColumn: "topic", keys: []string{"key"}, value: "payload",
		headerColumns: []string{"aggregate_id"}, rowID: "id",
	},
}

// laterPresets are decided but not built.
var laterPresets = map[string]bool{"relay": true, "events": true, "debezium": true}

// shape says which column each part of the record comes from.
type shape struct {
	topic, topicColumn, topicPattern     string
	keys                                 []string // the first that is not NULL
	value, headers, partition, timestamp string
	headerColumns                        []string // [header=]column
	rowID, eventID                       string
	lenient                              bool // columns not named by a setting may be missing
}

func shapeOf(preset string) (shape, error) {
	if preset == "" {
		return ownTable, nil
	}
	if s, ok := presets[preset]; ok {
		return s, nil
	}
	if laterPresets[preset] {
		return shape{}, fmt.Errorf("preset %q comes with a later version: name the columns by the single settings", preset)
	}
	return shape{}, fmt.Errorf("preset %q is unknown: it can be empty or bank", preset)
}

// splitHeaderColumn reads [header=]column.
func splitHeaderColumn(text string) (header, column string, err error) {
	header, column, found := strings.Cut(text, "=")
	if !found {
		column = header
	}
	switch {
	case header == "" || column == "":
		return "", "", fmt.Errorf("header-columns: %q is not COLUMN or HEADER=COLUMN", text)
	case strings.HasPrefix(header, reservedPrefix):
		return "", "", fmt.Errorf("header-columns: names that begin with %s are walstream's own: %q", reservedPrefix, header)
	}
	return header, column, nil
}
