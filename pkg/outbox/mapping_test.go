package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

// col is a column of a test table and its value in the row: a string is text
// format, []byte is binary format, nil is NULL.
type col struct {
	name  string
	oid   uint32
	value any
}

var commitTime = time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)

func rowOf(table string, cols ...col) *decode.Row {
	r := &decode.Row{
		Position: decode.Position{CommitLSN: pglogrepl.LSN(0x16B374D848), Ordinal: 2},
		Relation: &decode.Relation{ID: 7, Namespace: "public", Name: table},
		Begin:    &decode.Begin{CommitTime: commitTime},
	}
	for _, c := range cols {
		r.Relation.Columns = append(r.Relation.Columns, decode.Column{Name: c.name, TypeOID: c.oid})
		v := decode.Value{Format: decode.ValueNull}
		switch data := c.value.(type) {
		case string:
			v = decode.Value{Format: decode.ValueText, Data: []byte(data)}
		case []byte:
			v = decode.Value{Format: decode.ValueBinary, Data: data}
		}
		r.Values = append(r.Values, v)
	}
	return r
}

// ownRow is a row of our own table, with some values replaced.
func ownRow(replace ...col) *decode.Row {
	cols := []col{
		{"id", pgtype.Int8OID, "41"},
		{"event_id", pgtype.UUIDOID, "0f8fad5b-d9cb-469f-a165-70867728950e"},
		{"aggregate_type", pgtype.TextOID, "account"},
		{"aggregate_id", pgtype.TextOID, "acc-7"},
		{"event_type", pgtype.TextOID, "deposited"},
		{"topic", pgtype.TextOID, "deposits"},
		{"key", pgtype.TextOID, "k1"},
		{"payload", pgtype.ByteaOID, `\x00ff`},
		{"headers", pgtype.JSONBOID, "{}"},
	}
	for _, r := range replace {
		for i := range cols {
			if cols[i].name == r.name {
				cols[i] = r
			}
		}
	}
	return rowOf("outbox", cols...)
}

func own() MappingConfig {
	return MappingConfig{Schema: "public", Table: "outbox", Pipeline: "bank.s"}
}

func mustMapping(t testing.TB, configs ...MappingConfig) *Mapping {
	t.Helper()
	m, err := NewMapping(configs)
	if err != nil {
		t.Fatal(err)
	}
	m.SetTimeline(3)
	return m
}

func mustMap(t testing.TB, m *Mapping, row *decode.Row) Event {
	t.Helper()
	var e Event
	ok, err := m.Map(row, &e)
	if err != nil || !ok {
		t.Fatalf("Map: ok %v, error %v", ok, err)
	}
	return e
}

// show writes an event so that nil, empty and text differ.
func show(e Event) string {
	b := func(v []byte) string {
		if v == nil {
			return "nil"
		}
		return fmt.Sprintf("%q", v)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s|%s|%s|%d|%s|%s", e.Topic, b(e.Key), b(e.Value), e.Partition, e.Timestamp.UTC().Format(time.RFC3339Nano), e.RowID)
	for _, h := range e.Headers {
		if !strings.HasPrefix(h.Key, "walstream-") {
			fmt.Fprintf(&s, " %s=%s", h.Key, b(h.Value))
		}
	}
	return s.String()
}

func TestOwnTable(t *testing.T) {
	const at = "2026-03-04T05:06:07.000008Z"
	for _, c := range []struct {
		name    string
		replace []col
		want    string
	}{
		{"columns", nil, `deposits|"k1"|"\x00\xff"|-1|` + at + `|41 event_type="deposited"`},
		{
			"pattern and aggregate id",
			[]col{{"topic", pgtype.TextOID, nil}, {"key", pgtype.TextOID, nil}},
			`outbox.event.account|"acc-7"|"\x00\xff"|-1|` + at + `|41 event_type="deposited"`,
		},
		{
			"case is kept",
			[]col{{"topic", pgtype.TextOID, nil}, {"aggregate_type", pgtype.TextOID, "Payment"}},
			`outbox.event.Payment|"k1"|"\x00\xff"|-1|` + at + `|41 event_type="deposited"`,
		},
		{"an empty topic is not NULL", []col{{"topic", pgtype.TextOID, ""}}, `|"k1"|"\x00\xff"|-1|` + at + `|41 event_type="deposited"`},
		{
			"no key",
			[]col{{"key", pgtype.TextOID, nil}, {"aggregate_id", pgtype.TextOID, nil}},
			`deposits|nil|"\x00\xff"|-1|` + at + `|41 event_type="deposited"`,
		},
		{"an empty key is a key", []col{{"key", pgtype.TextOID, ""}}, `deposits|""|"\x00\xff"|-1|` + at + `|41 event_type="deposited"`},
		{
			"headers",
			[]col{{"headers", pgtype.JSONBOID, `{"a": 1, "b": "x"}`}},
			`deposits|"k1"|"\x00\xff"|-1|` + at + `|41 event_type="deposited" a="1" b="x"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(mustMap(t, mustMapping(t, own()), ownRow(c.replace...))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestOwnHeaders(t *testing.T) {
	m := mustMapping(t, own())
	row := ownRow(col{"headers", pgtype.JSONBOID, `{"walstream-position": "forged", "z": null}`})
	e := mustMap(t, m, row)
	want := []Header{
		{HeaderPosition, []byte("00000003-00000016B374D848-00000002")},
		{HeaderEventID, []byte("0f8fad5b-d9cb-469f-a165-70867728950e")},
		{HeaderPipeline, []byte("bank.s")},
		{"event_type", []byte("deposited")},
		{"z", nil},
	}
	if fmt.Sprint(e.Headers) != fmt.Sprint(want) || e.Headers[4].Value != nil {
		t.Errorf("got  %q\nwant %q", e.Headers, want)
	}
	if m.ReservedHeaders != 1 {
		t.Errorf("a reserved name was not counted: %d", m.ReservedHeaders)
	}
	e = mustMap(t, m, ownRow(col{"event_id", pgtype.UUIDOID, nil}))
	if string(e.Headers[1].Value) != "00000003-00000016B374D848-00000002" {
		t.Errorf("event id of a row without one: %q", e.Headers[1].Value)
	}
}

func TestTraceparent(t *testing.T) {
	row := ownRow(col{"headers", pgtype.JSONBOID, `{"traceparent": "00-in-headers"}`})
	withColumn := func(r *decode.Row, value any) *decode.Row {
		more := rowOf("outbox", col{"traceparent", pgtype.TextOID, value})
		r.Relation.Columns = append(r.Relation.Columns, more.Relation.Columns...)
		r.Values = append(r.Values, more.Values...)
		return r
	}
	m := mustMapping(t, own())
	for _, c := range []struct {
		name string
		row  *decode.Row
		want string
	}{
		{"headers", row, `traceparent="00-in-headers"`},
		{"column", withColumn(ownRow(), "00-column"), `traceparent="00-column"`},
		{"both", withColumn(ownRow(col{"headers", pgtype.JSONBOID, `{"traceparent": "00-in-headers"}`}), "00-column"), `traceparent="00-in-headers"`},
		{"NULL", withColumn(ownRow(), nil), ``},
	} {
		got := show(mustMap(t, m, c.row))
		if _, got, _ = strings.Cut(got, `event_type="deposited"`); strings.TrimSpace(got) != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestBankPreset(t *testing.T) {
	m := mustMapping(t, MappingConfig{Schema: "public", Table: "outbox", Preset: "bank", Pipeline: "p"})
	cols := []col{
		{"id", pgtype.Int8OID, "9"},
		{"aggregate_id", pgtype.UUIDOID, "0f8fad5b-d9cb-469f-a165-70867728950e"},
		{"topic", pgtype.TextOID, "t"},
		{"key", pgtype.ByteaOID, `\x0102`},
		{"payload", pgtype.ByteaOID, `\x`},
		{"created_at", pgtype.TimestamptzOID, "2026-01-01 00:00:00+00"},
	}
	e := mustMap(t, m, rowOf("outbox", cols...))
	want := `t|"\x01\x02"|""|-1|2026-03-04T05:06:07.000008Z|9 aggregate_id="0f8fad5b-d9cb-469f-a165-70867728950e"`
	if got := show(e); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if string(e.Headers[1].Value) != string(e.Headers[0].Value) {
		t.Errorf("the event id of a table without one is the position: %q", e.Headers[1].Value)
	}
	cols[2].value = nil
	var bad *RowError
	if _, err := m.Map(rowOf("outbox", cols...), &e); !errors.As(err, &bad) || bad.Column != "topic" || bad.RowID != "9" {
		t.Errorf("NULL topic: %v", err)
	}
	cols[2].name = "subject"
	var missing *ColumnError
	if _, err := m.Map(rowOf("outbox", cols...), &e); !errors.As(err, &missing) || missing.Column != "topic" {
		t.Errorf("no topic column: %v", err)
	}
}

// TestRigTable maps the table of the field cases by single settings.
func TestRigTable(t *testing.T) {
	m := mustMapping(t, MappingConfig{
		Schema: "public", Table: "bank_outbox", TopicPattern: "{aggregate_type}.{event_type}.v1",
		IDColumn: "id", TimestampColumn: "created_at", PartitionColumn: "part", HeaderColumns: []string{"type=event_type", "seq"}, Pipeline: "p",
	})
	cols := []col{
		{"seq", pgtype.Int8OID, binary.BigEndian.AppendUint64(nil, 12)},
		{"id", pgtype.UUIDOID, []byte("\x0f\x8f\xad\x5b\xd9\xcb\x46\x9f\xa1\x65\x70\x86\x77\x28\x95\x0e")},
		{"aggregate_type", pgtype.TextOID, []byte("loan")},
		{"aggregate_id", pgtype.TextOID, []byte("a")},
		{"event_type", pgtype.TextOID, []byte("paid")},
		{"payload", pgtype.JSONBOID, []byte("\x01{\"n\": 1.0}")},
		{"headers", pgtype.JSONBOID, []byte("\x01{\"h\": [1, 2]}")},
		{"created_at", pgtype.TimestamptzOID, binary.BigEndian.AppendUint64(nil, 1_000_001)},
		{"part", pgtype.Int4OID, []byte{0, 0, 0, 5}},
	}
	want := `loan.paid.v1|"a"|"{\"n\": 1.0}"|5|2000-01-01T00:00:01.000001Z|0f8fad5b-d9cb-469f-a165-70867728950e type="paid" seq="12" h="[1, 2]"`
	if got := show(mustMap(t, m, rowOf("bank_outbox", cols...))); got != want {
		t.Errorf("binary\ngot  %s\nwant %s", got, want)
	}
	for i, text := range []string{"12", "0f8fad5b-d9cb-469f-a165-70867728950e", "loan", "a", "paid", `{"n": 1.0}`, `{"h": [1, 2]}`, "2000-01-01 00:00:01.000001+00", "5"} {
		cols[i].value = text
	}
	if got := show(mustMap(t, m, rowOf("bank_outbox", cols...))); got != want {
		t.Errorf("text\ngot  %s\nwant %s", got, want)
	}
	if err := m.Resolve(rowOf("bank_outbox", cols...).Relation); err != nil || !m.BinaryOK() {
		t.Errorf("Resolve: %v, BinaryOK %v", err, m.BinaryOK())
	}
	cols[7].oid = pgtype.TextOID
	if err := m.Resolve(rowOf("bank_outbox", cols...).Relation); err == nil {
		t.Error("a text column was taken for a timestamp")
	}
}

func TestOtherTable(t *testing.T) {
	m := mustMapping(t, own())
	var e Event
	for range 2 {
		if ok, err := m.Map(rowOf("noise", col{"id", pgtype.Int8OID, "1"}), &e); ok || err != nil {
			t.Fatalf("a table that is not ours: ok %v, error %v", ok, err)
		}
	}
}

func TestC44NullEmptyAndJSONNull(t *testing.T) {
	m := mustMapping(t, own())
	for _, c := range []struct {
		oid   uint32
		value any
		want  string
	}{
		{pgtype.ByteaOID, nil, "nil"},
		{pgtype.ByteaOID, `\x`, `""`},
		{pgtype.ByteaOID, []byte{}, `""`},
		{pgtype.TextOID, nil, "nil"},
		{pgtype.TextOID, "", `""`},
		{pgtype.TextOID, []byte{}, `""`},
		{pgtype.JSONBOID, nil, "nil"},
		{pgtype.JSONBOID, "null", `"null"`},
		{pgtype.JSONBOID, []byte("\x01null"), `"null"`},
		{pgtype.JSONBOID, "{}", `"{}"`},
	} {
		e := mustMap(t, m, ownRow(col{"payload", c.oid, c.value}))
		if got := strings.Split(show(e), "|")[2]; got != c.want {
			t.Errorf("payload %v of type %d: got %s, want %s", c.value, c.oid, got, c.want)
		}
	}
}

func TestC36ColumnVanishes(t *testing.T) {
	m := mustMapping(t, own())
	var e Event
	rename := func(r *decode.Row, from, to string) *decode.Row {
		r.Relation.Columns[columnIndex(r.Relation, from)].Name = to
		return r
	}
	if err := m.Resolve(ownRow().Relation); err != nil {
		t.Fatal(err)
	}
	mustMap(t, m, rename(ownRow(), "key", "not_yet_named_key")) // history from before the column was there
	mustMap(t, m, ownRow())
	mustMap(t, m, rename(ownRow(), "event_type", "event_type")) // a new layout, nothing mapped changed
	for _, column := range []string{"payload", "topic", "key", "headers", "event_id", "id"} {
		_, err := m.Map(rename(ownRow(), column, "x"), &e)
		var missing *ColumnError
		if !errors.As(err, &missing) || missing.Column != column || missing.Table != "public.outbox" {
			t.Errorf("%s vanished: %v", column, err)
		}
	}
	mustMap(t, m, ownRow()) // and back again

	err := m.Resolve(rename(rename(ownRow(), "payload", "x"), "key", "y").Relation)
	var missing *ColumnError
	if !errors.As(err, &missing) || missing.Column != "payload" {
		t.Errorf("Resolve without payload: %v", err)
	}
}

func TestTables(t *testing.T) {
	m := mustMapping(t, own())
	relation := ownRow().Relation
	relation.Columns = append([]decode.Column{{Name: "created_at"}, {Name: "traceparent", TypeOID: pgtype.TextOID}}, relation.Columns[1:]...)
	if err := m.Resolve(relation); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(m.Tables())
	if want := "[{public outbox [traceparent event_id aggregate_type aggregate_id event_type topic key payload headers] [id] " +
		"map[aggregate_id:key-column aggregate_type:topic-pattern event_id:id-column event_type:header-columns headers:headers-column " +
		"key:key-column payload:value-column topic:topic-column traceparent:header-columns]}]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := m.Resolve(); err == nil {
		t.Error("a table that is not there was resolved")
	}
}

// Each column has all the settings that a person would have to mend.
func TestTablesNameTheSettings(t *testing.T) {
	c := own()
	c.Topic, c.KeyColumn, c.IDColumn, c.ValueColumn, c.HeaderColumns = "t", "both", "both", "body", []string{"h=both", "g=both"}
	settings := mustMapping(t, c).Tables()[0].Settings
	if settings["both"] != "key-column, id-column, header-columns" && settings["both"] != "id-column, key-column, header-columns" || settings["body"] != "value-column" {
		t.Errorf("settings %v", settings)
	}
}

func TestNewMappingReportsEveryFault(t *testing.T) {
	_, err := NewMapping([]MappingConfig{
		{Schema: "public", Table: "a", Preset: "relays"},
		{Schema: "public", Table: "b", Preset: "bnak"},
		{Schema: "public", Table: "c", Topic: "t", TopicPattern: "x"},
		{Schema: "public", Table: "d", TopicPattern: "x{", HeaderColumns: []string{"=", "walstream-x=y", "h=a", "h=b"}},
		{Schema: "public", Table: "d"},
		{Table: "e"},
	})
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{
		`public.a: preset "relays" is unknown: it can be empty or bank, debezium, events, relay`, `public.b: preset "bnak" is unknown`,
		"public.c: topic and topic-pattern exclude", `public.c: topic-pattern "x" has no {column}`,
		"public.d: topic-pattern \"x{\": a placeholder is {column}", `"=" is not COLUMN`, "walstream's own", `header "h" is named twice`,
		"public.d is named twice", ".e: a table is named by schema and name",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in:\n%v", want, err)
		}
	}
	if _, err := NewMapping(nil); err == nil {
		t.Error("no table at all was accepted")
	}
}

func TestNothingGivesTopicOrKey(t *testing.T) {
	m := mustMapping(t, MappingConfig{Schema: "public", Table: "outbox"})
	err := m.Resolve(rowOf("outbox", col{"payload", pgtype.TextOID, "x"}).Relation)
	if err == nil || !strings.Contains(err.Error(), "set topic, topic-column") || !strings.Contains(err.Error(), "set key-column") {
		t.Errorf("got %v", err)
	}
	m = mustMapping(t, MappingConfig{Schema: "public", Table: "outbox", Topic: "all", KeyColumn: "k"})
	e := mustMap(t, m, rowOf("outbox", col{"payload", pgtype.TextOID, "x"}, col{"k", pgtype.BoolOID, "t"}))
	if e.Topic != "all" || string(e.Key) != "true" {
		t.Errorf("got %s", show(e))
	}
}

// TestEventLivesUntilTheNextMap: strings stay; parts of one event never share bytes.
func TestEventLivesUntilTheNextMap(t *testing.T) {
	m := mustMapping(t, own())
	var kept []string
	for i := range 3000 {
		id := fmt.Sprint(i)
		payload := strings.Repeat(fmt.Sprintf("%02x", i%256), 50+i) // the buffer grows under way
		e := mustMap(t, m, ownRow(col{"id", pgtype.Int8OID, id}, col{"payload", pgtype.ByteaOID, `\x` + payload},
			col{"headers", pgtype.JSONBOID, `{"a\n": "b\t` + id + `", "c": "\"d"}`}))
		if fmt.Sprintf("%x", e.Value) != payload || string(e.Headers[4].Value) != "b\t"+id || e.Headers[4].Key != "a\n" ||
			string(e.Headers[5].Value) != `"d` || string(e.Headers[0].Value) != row0Position {
			t.Fatalf("row %d came out as %s", i, show(e))
		}
		kept = append(kept, e.RowID)
	}
	for i, id := range kept {
		if id != fmt.Sprint(i) {
			t.Fatalf("row id %d became %q", i, id)
		}
	}
}

const row0Position = "00000003-00000016B374D848-00000002"
