package outbox

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

func text(s string) decode.Value { return decode.Value{Format: decode.ValueText, Data: []byte(s)} }
func wire(b string) decode.Value { return decode.Value{Format: decode.ValueBinary, Data: []byte(b)} }

func TestC41Shapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		value decode.Value
		oid   uint32
		want  string
		err   error
	}{
		{"bytea text", text(`\x00ff61`), pgtype.ByteaOID, "\x00\xffa", nil},
		{"bytea binary", wire("\x00\xffa"), pgtype.ByteaOID, "\x00\xffa", nil},
		{"bytea escape format", text(`\000a`), pgtype.ByteaOID, "", errHex},
		{"bytea odd", text(`\x0`), pgtype.ByteaOID, "", errMalformed},
		{"bytea no hex", text(`\x0g`), pgtype.ByteaOID, "", errMalformed},
		{"uuid", wire("\x0f\x8f\xad\x5b\xd9\xcb\x46\x9f\xa1\x65\x70\x86\x77\x28\x95\x0e"), pgtype.UUIDOID, "0f8fad5b-d9cb-469f-a165-70867728950e", nil},
		{"uuid short", wire("\x0f"), pgtype.UUIDOID, "", errMalformed},
		{"int2", wire("\xff\xfe"), pgtype.Int2OID, "-2", nil},
		{"int4", wire("\x80\x00\x00\x00"), pgtype.Int4OID, "-2147483648", nil},
		{"int8", wire("\x7f\xff\xff\xff\xff\xff\xff\xff"), pgtype.Int8OID, "9223372036854775807", nil},
		{"int8 short", wire("\x7f\xff\xff"), pgtype.Int8OID, "", errMalformed},
		{"bool text", text("f"), pgtype.BoolOID, "false", nil},
		{"bool binary", wire("\x01"), pgtype.BoolOID, "true", nil},
		{"bool short", wire(""), pgtype.BoolOID, "", errMalformed},
		{"json", wire(`{"a":1.0}`), pgtype.JSONOID, `{"a":1.0}`, nil},
		{"jsonb", wire("\x01[1]"), pgtype.JSONBOID, "[1]", nil},
		{"jsonb of another version", wire("\x02[1]"), pgtype.JSONBOID, "", errMalformed},
		{"array", text(`{a,NULL,"b c"}`), pgtype.TextArrayOID, `{a,NULL,"b c"}`, nil},
		{"array binary", wire("\x00"), pgtype.TextArrayOID, "", ErrTextNeeded},
		{"domain", text("5"), 16400, "5", nil},
		{"domain binary", wire("\x00\x00\x00\x05"), 16400, "", ErrTextNeeded},
		{"unchanged", decode.Value{Format: decode.ValueUnchanged}, pgtype.TextOID, "", errUnchanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := render(c.value, c.oid, make([]byte, 0, 8))
			if string(got) != c.want || !errors.Is(err, c.err) || (err == nil) == (got == nil) {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestTypeChangedInBinary(t *testing.T) {
	m := mustMapping(t, own())
	var e Event
	_, err := m.Map(ownRow(col{"payload", pgtype.XMLOID, []byte("<a/>")}), &e)
	var column *ColumnError
	if !errors.Is(err, ErrTextNeeded) || !errors.As(err, &column) || column.Column != "payload" {
		t.Errorf("got %v", err)
	}
}

func TestPartition(t *testing.T) {
	for _, c := range []struct {
		value decode.Value
		want  int32
		ok    bool
	}{
		{text("0"), 0, true},
		{text("2147483647"), math.MaxInt32, true},
		{text("-1"), 0, false},
		{text("2147483648"), 0, false},
		{text(""), 0, false},
		{text("1.0"), 0, false},
		{wire("\x00\x02"), 2, true},
		{wire("\xff\xff"), 0, false},
		{wire("\x00"), 0, false},
	} {
		got, err := partitionOf(c.value, pgtype.Int4OID)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %d, %v", c.value.Data, got, err)
		}
	}
}

func TestTimestamp(t *testing.T) {
	for _, c := range []struct {
		value decode.Value
		oid   uint32
		want  string // empty: refused
	}{
		{text("2026-03-04 05:06:07.123456+00"), pgtype.TimestamptzOID, "2026-03-04T05:06:07.123456Z"},
		{text("2026-03-04 05:06:07+00"), pgtype.TimestamptzOID, "2026-03-04T05:06:07Z"},
		{text("2026-03-04 05:06:07.5-03"), pgtype.TimestamptzOID, "2026-03-04T08:06:07.5Z"},
		{text("2026-03-04 05:06:07+05:30"), pgtype.TimestamptzOID, "2026-03-03T23:36:07Z"},
		{text("2026-03-04 05:06:07.25"), pgtype.TimestampOID, "2026-03-04T05:06:07.25Z"},
		{text("1970-01-01 00:00:00+00"), pgtype.TimestamptzOID, "1970-01-01T00:00:00Z"},
		{text("1969-12-31 23:59:59+00"), pgtype.TimestamptzOID, ""},
		{text("infinity"), pgtype.TimestamptzOID, ""},
		{text("-infinity"), pgtype.TimestamptzOID, ""},
		{text("0044-03-15 00:00:00+00 BC"), pgtype.TimestamptzOID, ""},
		{text("12026-03-04 05:06:07+00"), pgtype.TimestamptzOID, ""},
		{text("yesterday"), pgtype.TimestamptzOID, ""},
		{text(""), pgtype.TimestamptzOID, ""},
		{wire("\x00\x00\x00\x00\x00\x0f\x42\x41"), pgtype.TimestamptzOID, "2000-01-01T00:00:01.000001Z"},
		{wire("\x7f\xff\xff\xff\xff\xff\xff\xff"), pgtype.TimestamptzOID, ""},
		{wire("\x7f\xff\xff\xff\xff\xff\xff\xfe"), pgtype.TimestamptzOID, ""},
		{wire("\x80\x00\x00\x00\x00\x00\x00\x00"), pgtype.TimestampOID, ""},
		{wire("\x00\x00"), pgtype.TimestampOID, ""},
	} {
		at, err := timestampOf(c.value, c.oid)
		got := ""
		if err == nil {
			got = at.Format("2006-01-02T15:04:05.999999999Z07:00")
		}
		if got != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.value.Data, got, err, c.want)
		}
	}
}

// FuzzBytea: text and binary format of a bytea give the same bytes, and no text
// makes it panic.
func FuzzBytea(f *testing.F) {
	f.Add([]byte{0, 0xff})
	f.Add([]byte(`\x0`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _, err := renderText([]byte(`\x`+hex.EncodeToString(data)), pgtype.ByteaOID, nil)
		if err != nil || string(got) != string(data) {
			t.Fatalf("got %q, %v; want %q", got, err, data)
		}
		for _, oid := range []uint32{pgtype.ByteaOID, pgtype.BoolOID, pgtype.Int4OID, pgtype.UUIDOID, pgtype.JSONBOID, pgtype.TextOID} {
			_, _, _ = render(decode.Value{Format: decode.ValueText, Data: data}, oid, nil)
			_, _, _ = render(decode.Value{Format: decode.ValueBinary, Data: data}, oid, nil)
		}
		_, _ = timestampOf(decode.Value{Format: decode.ValueText, Data: data}, pgtype.TimestamptzOID)
		_, _ = timestampOf(decode.Value{Format: decode.ValueBinary, Data: data}, pgtype.TimestamptzOID)
	})
}

func TestInterner(t *testing.T) {
	var n interner
	for i := range 3 * internerNames {
		name := strings.Repeat("x", i%300) + "-" + string(rune('a'+i%26))
		if got := n.of([]byte(name)); got != name {
			t.Fatalf("%q became %q", name, got)
		}
	}
	for i := range 3 * internerNames {
		n.of([]byte{byte(i), byte(i >> 8), 'x'})
	}
	if len(n.names) > internerNames {
		t.Errorf("it holds %d names", len(n.names))
	}
}
