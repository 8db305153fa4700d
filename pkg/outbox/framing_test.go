package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

func framedTable(change func(*MappingConfig)) MappingConfig {
	c := own()
	c.SchemaFormat = SchemaAvro
	if change != nil {
		change(&c)
	}
	return c
}

func TestWhichSchemaARowMeans(t *testing.T) {
	for _, c := range []struct {
		change func(*MappingConfig)
		cols   []col
		want   string // the place; or the error
	}{
		{nil, nil, `{deposits-value 0 0}`},
		{nil, []col{{"topic", pgtype.TextOID, nil}}, `{outbox.event.account-value 0 0}`},
		{func(c *MappingConfig) { c.SchemaSubject = "com.bank.{event_type}" }, nil, `{com.bank.deposited 0 0}`},
		{func(c *MappingConfig) { c.SchemaSubject, c.SchemaVersion = "{topic}-com.bank.{event_type}", "3" }, nil, `{deposits-com.bank.deposited 0 3}`},
		{func(c *MappingConfig) { c.SchemaSubject, c.SchemaVersion = "fixed", "{id}" }, nil, `{fixed 0 41}`},
		{func(c *MappingConfig) { c.SchemaID = "7" }, nil, `{ 7 0}`},
		{func(c *MappingConfig) { c.SchemaID = "{id}" }, nil, `{ 41 0}`},
		{func(c *MappingConfig) { c.SchemaID = "{id}" }, []col{{"id", pgtype.Int8OID, "0"}}, `column "id" (1 bytes): is no number`},
		{func(c *MappingConfig) { c.SchemaID = "{key}" }, []col{{"key", pgtype.TextOID, nil}}, `column "key" (0 bytes): is NULL or empty`},
		{func(c *MappingConfig) { c.SchemaSubject = "{key}" }, []col{{"key", pgtype.TextOID, nil}}, `column "key" (0 bytes): is NULL or empty`},
		{func(c *MappingConfig) { c.SchemaSubject = "{key}" }, []col{{"key", pgtype.TextOID, ""}}, `column "key" (0 bytes): is NULL or empty`},
	} {
		var e Event
		_, err := mustMapping(t, framedTable(c.change)).Map(ownRow(c.cols...), &e)
		got := fmt.Sprint(e.SchemaAt)
		if err != nil {
			var bad *RowError
			if got = err.Error(); !errors.As(err, &bad) {
				t.Errorf("%v is no bad row", err)
			}
		} else if e.Schema == nil || string(e.Value) != "\x00\xff" {
			t.Errorf("schema %v, value %q", e.Schema, e.Value)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestTombstonesHaveNoSchema, nor has the row behind one of a table without.
func TestTombstonesHaveNoSchema(t *testing.T) {
	plain := own()
	plain.Table = "plain"
	m := mustMapping(t, framedTable(nil), plain)
	var e Event
	for _, c := range []struct {
		table  string
		value  any
		framed bool
	}{{"outbox", `\x00`, true}, {"outbox", nil, false}, {"outbox", `\x`, true}, {"plain", `\x00`, false}} {
		row := ownRow(col{"payload", pgtype.ByteaOID, c.value})
		row.Relation.Name = c.table
		if _, err := m.Map(row, &e); err != nil || (e.Schema != nil) != c.framed {
			t.Errorf("%+v: schema %v, %v", c, e.Schema, err)
		}
	}
}

func TestSchemasThatSettingsName(t *testing.T) {
	for want, change := range map[string]func(*MappingConfig){
		"[]":              nil, // the topic comes from a column
		"[{t-value 0 0}]": func(c *MappingConfig) { c.Topic = "t" },
		"[{t-a 0 2}]":     func(c *MappingConfig) { c.Topic, c.SchemaSubject, c.SchemaVersion = "t", "{topic}-a", "2" },
		"[{a 0 0}]":       func(c *MappingConfig) { c.SchemaSubject = "a" },
		"[{ 9 0}]":        func(c *MappingConfig) { c.SchemaID = "9" },
		"[] ":             func(c *MappingConfig) { c.SchemaID = "{id}" },
		"[]  ":            func(c *MappingConfig) { c.SchemaSubject = "{event_type}" },
	} {
		_, at := mustMapping(t, framedTable(change)).Schemas()
		if got := fmt.Sprint(at); got != strings.TrimSpace(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestFramingAllocatesNothing(t *testing.T) {
	m, row := mustMapping(t, framedTable(func(c *MappingConfig) { c.SchemaSubject = "{topic}-com.bank.{event_type}" })), ownRow()
	var e Event
	if n := testing.AllocsPerRun(1000, func() { _, _ = m.Map(row, &e) }); n >= 0.1 {
		t.Errorf("%v allocations for each row", n)
	}
}
