package outbox

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

var benchPayload = make([]byte, 1024)

func benchRows() map[string]*decode.Row {
	id := binary.BigEndian.AppendUint64(nil, 123456)
	binaryCols := []col{
		{"id", pgtype.Int8OID, id},
		{"event_id", pgtype.UUIDOID, benchPayload[:16]},
		{"aggregate_type", pgtype.TextOID, []byte("account")},
		{"aggregate_id", pgtype.TextOID, []byte("acc-7")},
		{"event_type", pgtype.TextOID, []byte("deposited")},
		{"topic", pgtype.TextOID, nil},
		{"key", pgtype.TextOID, nil},
		{"payload", pgtype.ByteaOID, benchPayload},
		{"headers", pgtype.JSONBOID, []byte("\x01{}")},
	}
	return map[string]*decode.Row{
		"text":    ownRow(col{"payload", pgtype.ByteaOID, `\x` + hex.EncodeToString(benchPayload)}),
		"binary":  ownRow(binaryCols...),
		"headers": ownRow(append(binaryCols[:8:8], col{"headers", pgtype.JSONBOID, []byte(`` + "\x01" + `{"a": 1, "content-type": "json", "q": "\"x\""}`)})...),
	}
}

func BenchmarkMap(b *testing.B) {
	for name, row := range benchRows() {
		b.Run(name, func(b *testing.B) {
			m := mustMapping(b, own())
			var e Event
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := m.Map(row, &e); !ok || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestMapAllocates next to nothing: a block for some hundred row ids.
func TestMapAllocatesNothing(t *testing.T) {
	for name, row := range benchRows() {
		m := mustMapping(t, own())
		var e Event
		if n := testing.AllocsPerRun(1000, func() { _, _ = m.Map(row, &e) }); n >= 0.1 {
			t.Errorf("%s: %v allocations for each row", name, n)
		}
	}
}

// everything is a table that uses what costs: a route, an envelope, a derived key,
// pairs of headers, a trace context.
func everything() MappingConfig {
	config := own()
	config.RouteColumn, config.RouteRegex, config.RouteReplacement = "aggregate_type", "(.*)", "bank.$1"
	config.EnvelopeColumns, config.Tombstone = []string{"event_type", "id"}, OnEmpty
	config.IdempotencyKey, config.IDHeader = Derived, "x-event-id"
	config.KeyColumn, config.TraceColumn = "aggregate_id", "key"
	return config
}

// TestMapAllocatesNothing with every setting in use either, once a value has
// come by.
func TestMapAllocatesNothingWithEverything(t *testing.T) {
	row := ownRow(col{"headers", pgtype.TextArrayOID, `{a,"b \" c",d,NULL}`}, col{"key", pgtype.TextOID, "traceparent=00-1\ntracestate=a\\=b"})
	m := mustMapping(t, everything())
	var e Event
	if n := testing.AllocsPerRun(1000, func() { _, _ = m.Map(row, &e) }); n >= 0.1 {
		t.Errorf("%v allocations for each row", n)
	}
	want := `bank.account|"acc-7"|"{\"payload\":\"AP8=\",\"event_type\":\"deposited\",\"id\":41}"|-1|2026-03-04T05:06:07.000008Z|41` +
		` x-event-id="0f8fad5b-d9cb-469f-a165-70867728950e" event_type="deposited"` +
		` idempotency-key="` + IdempotencyKeyOf("0f8fad5b-d9cb-469f-a165-70867728950e", "bank.account", []byte("acc-7")) + `"` +
		` a="b \" c" d=nil traceparent="00-1" tracestate="a=b"`
	if got := show(e); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
