package outbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

func TestC44Tombstones(t *testing.T) {
	for _, c := range []struct {
		tombstone string
		oid       uint32
		value     any
		want      string // empty: a bad row
	}{
		{"", pgtype.TextOID, nil, "nil"},
		{"", pgtype.TextOID, " ", `" "`},
		{OnNull, pgtype.TextOID, nil, "nil"},
		{OnNull, pgtype.TextOID, "", `""`},
		{OnEmpty, pgtype.TextOID, nil, "nil"},
		{OnEmpty, pgtype.TextOID, "", "nil"},
		{OnEmpty, pgtype.TextOID, " \n", "nil"},
		{OnEmpty, pgtype.TextOID, " x", `" x"`},
		{OnEmpty, pgtype.ByteaOID, `\x`, "nil"},
		{OnEmpty, pgtype.ByteaOID, `\x20`, `" "`},
		{OnEmpty, pgtype.JSONBOID, "null", `"null"`},
		{OnEmpty, pgtype.JSONBOID, "{}", `"{}"`},
		{OnBlank, pgtype.TextOID, nil, "nil"},
		{OnBlank, pgtype.TextOID, " \n", "nil"},
		{OnBlank, pgtype.ByteaOID, `\x`, `""`},
		{Never, pgtype.TextOID, nil, ""},
		{Never, pgtype.TextOID, "", `""`},
	} {
		config := own()
		config.Tombstone = c.tombstone
		var e Event
		_, err := mustMapping(t, config).Map(ownRow(col{"payload", c.oid, c.value}), &e)
		var bad *RowError
		if c.want == "" {
			if !errors.As(err, &bad) || bad.Column != "payload" || bad.RowID != "41" {
				t.Errorf("%s, %v: got %v", c.tombstone, c.value, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(show(e), "|")[2]; got != c.want {
			t.Errorf("%s, %v of %d: got %s, want %s", c.tombstone, c.value, c.oid, got, c.want)
		}
	}
}

func TestEnvelope(t *testing.T) {
	for _, c := range []struct {
		name, form, tombstone string
		payload               col
		want                  string
	}{
		{"jsonb", "", "", col{"payload", pgtype.JSONBOID, `{"n": 1.0}`}, `{"payload":{"n": 1.0},"kind":"a\"b","n":7}`},
		{"jsonb binary", "", "", col{"payload", pgtype.JSONBOID, []byte("\x01[1]")}, `{"payload":[1],"kind":"a\"b","n":7}`},
		{"jsonb as string", EnvelopeString, "", col{"payload", pgtype.JSONBOID, `{"n": 1.0}`}, `{"payload":"{\"n\": 1.0}","kind":"a\"b","n":7}`},
		{"beyond the basic plane", EnvelopeString, "", col{"payload", pgtype.TextOID, "é🙂"}, `{"payload":"é\uD83D\uDE42","kind":"a\"b","n":7}`},
		{"text", "", "", col{"payload", pgtype.TextOID, `{"n": 1}`}, `{"payload":"{\"n\": 1}","kind":"a\"b","n":7}`},
		{"text as JSON", EnvelopeJSON, "", col{"payload", pgtype.TextOID, ` {"n": 1}`}, `{"payload": {"n": 1},"kind":"a\"b","n":7}`},
		{"text that is none", EnvelopeJSON, "", col{"payload", pgtype.TextOID, `{n}`}, `{"payload":"{n}","kind":"a\"b","n":7}`},
		{"an array of no elements is none either", EnvelopeJSON, "", col{"payload", pgtype.Int4ArrayOID, `{}`}, `{"payload":"{}","kind":"a\"b","n":7}`},
		{"a number is text", EnvelopeJSON, "", col{"payload", pgtype.TextOID, `5`}, `{"payload":"5","kind":"a\"b","n":7}`},
		{"bytea", "", "", col{"payload", pgtype.ByteaOID, `\x00ff`}, `{"payload":"AP8=","kind":"a\"b","n":7}`},
		{"bool", "", "", col{"payload", pgtype.BoolOID, `t`}, `{"payload":true,"kind":"a\"b","n":7}`},
		{"numeric", "", "", col{"payload", pgtype.NumericOID, `-1.50`}, `{"payload":-1.50,"kind":"a\"b","n":7}`},
		{"float8", "", "", col{"payload", pgtype.Float8OID, `1e+20`}, `{"payload":1e+20,"kind":"a\"b","n":7}`},
		{"NaN", "", "", col{"payload", pgtype.Float8OID, `NaN`}, `{"payload":"NaN","kind":"a\"b","n":7}`},
		{"NULL", "", "", col{"payload", pgtype.JSONBOID, nil}, `nil`},
		{"NULL in it", "", Never, col{"payload", pgtype.JSONBOID, nil}, `{"payload":null,"kind":"a\"b","n":7}`},
		{"empty", "", OnEmpty, col{"payload", pgtype.TextOID, ""}, `nil`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := own()
			config.EnvelopeColumns, config.EnvelopePayload, config.Tombstone = []string{"kind=aggregate_type", "n=id"}, c.form, c.tombstone
			e := mustMap(t, mustMapping(t, config), ownRow(c.payload, col{"aggregate_type", pgtype.TextOID, `a"b`}, col{"id", pgtype.Int8OID, "7"}))
			got := "nil"
			if e.Value != nil {
				got = string(e.Value)
				if !json.Valid(e.Value) {
					t.Errorf("no JSON: %s", got)
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	config := own()
	config.EnvelopeColumns = []string{"id"}
	var bad *RowError
	var e Event
	if _, err := mustMapping(t, config).Map(ownRow(col{"payload", pgtype.TextOID, "\xff"}), &e); !errors.As(err, &bad) || bad.Column != "payload" {
		t.Errorf("no UTF-8: %v", err)
	}
}

// With string, json and jsonb in other fields are strings too.
func TestEnvelopeFieldsAsStrings(t *testing.T) {
	for form, want := range map[string]string{
		EnvelopeAuto:   `{"payload":"p","headers":{"a": 1}}`,
		EnvelopeJSON:   `{"payload":"p","headers":{"a": 1}}`,
		EnvelopeString: `{"payload":"p","headers":"{\"a\": 1}"}`,
	} {
		config := own()
		config.EnvelopeColumns, config.EnvelopePayload = []string{"headers"}, form
		e := mustMap(t, mustMapping(t, config), ownRow(col{"payload", pgtype.TextOID, "p"}, col{"headers", pgtype.JSONBOID, `{"a": 1}`}))
		if string(e.Value) != want {
			t.Errorf("%s: got %s, want %s", form, e.Value, want)
		}
	}
}

// Formats: what Connect's JsonConverter writes for a column.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name string
		oid  uint32
		cell any
		want string // of key, value and header
	}{
		{"text", pgtype.TextOID, "42", `"42"`},
		{"empty", pgtype.TextOID, "", `""`},
		{"quotes", pgtype.TextOID, "a\"\\\n", `"a\"\\\n"`},
		{"uuid", pgtype.UUIDOID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", `"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"`},
		{"bigint", pgtype.Int8OID, "7", `7`},
		{"bigint binary", pgtype.Int8OID, []byte{0, 0, 0, 0, 0, 0, 0, 7}, `7`},
		{"bool", pgtype.BoolOID, "t", `true`},
		{"jsonb", pgtype.JSONBOID, `{"a": 1}`, `"{\"a\": 1}"`},
		{"bytea", pgtype.ByteaOID, `\x00ff41`, `"AP9B"`},
		{"beyond the basic plane", pgtype.TextOID, "🙂", `"\uD83D\uDE42"`},
		{"NULL", pgtype.TextOID, nil, "null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := MappingConfig{
				Schema: "public", Table: "outbox", Topic: "t", KeyColumn: "payload", ValueColumn: "payload", HeaderColumns: []string{"h=payload"},
				KeyFormat: FormatJSON, ValueFormat: FormatJSON, HeaderFormat: FormatJSON, Tombstone: Never,
			}
			e := mustMap(t, mustMapping(t, config), ownRow(col{"payload", c.oid, c.cell}))
			parts := map[string][]byte{"key": e.Key, "value": e.Value, "header": nil}
			for _, h := range e.Headers {
				if h.Key == "h" {
					parts["header"] = h.Value
				}
			}
			for part, got := range parts {
				if string(got) != c.want {
					t.Errorf("%s: got %s, want %s", part, got, c.want)
				}
			}
		})
	}
	config := own()
	config.ValueFormat = FormatJSON
	if e := mustMap(t, mustMapping(t, config), ownRow(col{"payload", pgtype.TextOID, nil})); e.Value != nil {
		t.Errorf("a tombstone: got %q", e.Value)
	}
}

// FuzzEnvelopeString: every UTF-8 text reads back from the string it becomes.
func FuzzEnvelopeString(f *testing.F) {
	f.Add("a\"\\\n\x00\x1f\u2028<é😀")
	f.Fuzz(func(t *testing.T, text string) {
		for _, pairs := range []bool{false, true} {
			out, err := appendString(nil, []byte(text), pairs)
			var back string
			if err == nil && (json.Unmarshal(out, &back) != nil || back != text) {
				t.Errorf("%q became %s", text, out)
			}
		}
	})
}

func TestTraceColumn(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct {
		name string
		cell any
		want string
	}{
		{"NULL", nil, ""},
		{"empty", "", ""},
		{"bare", parent, `traceparent="` + parent + `"`},
		{
			"properties", "#Wed Mar 04 05:06:07 UTC 2026\ntraceparent=" + parent + "\r\ntracestate=a\\=b,c\\:\\u0064\nbaggage : x\n\n",
			`traceparent="` + parent + `" tracestate="a=b,c:d" baggage="x"`,
		},
		{"a name alone", "x=\n", `x=""`},
		{"of ours", "walstream-position=1\ntraceparent=" + parent, `traceparent="` + parent + `"`},
	} {
		config := own()
		config.TraceColumn, config.HeaderColumns = "aggregate_type", []string{}
		got := show(mustMap(t, mustMapping(t, config), ownRow(col{"aggregate_type", pgtype.TextOID, c.cell})))
		if _, got, _ = strings.Cut(got, "Z|41"); strings.TrimSpace(got) != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	// What the headers column has wins, and nothing is sent twice.
	config := own()
	config.TraceColumn = "aggregate_type"
	e := mustMap(t, mustMapping(t, config), ownRow(
		col{"headers", pgtype.JSONBOID, `{"traceparent": "in headers"}`}, col{"aggregate_type", pgtype.TextOID, "traceparent=no\ntracestate=yes"}))
	if got := show(e); !strings.HasSuffix(got, ` traceparent="in headers" tracestate="yes"`) {
		t.Errorf("got %s", got)
	}
}

func TestIdempotencyKey(t *testing.T) {
	// printf 'e|t|k' | sha256sum
	if got := IdempotencyKeyOf("e", "t", []byte("k")); got != "a9a9bc84bed61619c87ad9d44758a1513020207dfb5c902cff0ece3a6b809748" {
		t.Errorf("got %s", got)
	}
	derived := IdempotencyKeyOf("0f8fad5b-d9cb-469f-a165-70867728950e", "deposits", []byte("k1"))
	for _, c := range []struct {
		name         string
		column, word string
		header       string
		cell         any
		want         string
	}{
		{"none", "", "", "", nil, ""},
		{"column", "aggregate_type", "", "", "abc", ` idempotency-key="abc"`},
		{"NULL", "aggregate_type", "", "", nil, ""},
		{"empty", "aggregate_type", "", "", "", ` idempotency-key=""`},
		{"derived", "", Derived, "", nil, ` idempotency-key="` + derived + `"`},
		{"column, else derived", "aggregate_type", Derived, "X-Idem", "abc", ` X-Idem="abc"`},
		{"NULL, so derived", "aggregate_type", Derived, "X-Idem", nil, ` X-Idem="` + derived + `"`},
	} {
		config := own()
		config.IdempotencyKeyColumn, config.IdempotencyKey, config.IdempotencyHeader = c.column, c.word, c.header
		config.HeaderColumns = []string{}
		got := show(mustMap(t, mustMapping(t, config), ownRow(col{"aggregate_type", pgtype.TextOID, c.cell})))
		if _, got, _ = strings.Cut(got, "Z|41"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestHeadersByName(t *testing.T) {
	config := own()
	config.IDHeader, config.HeaderColumns, config.HeaderConstants = "ce_id", []string{"ce_type=event_type"}, []string{"content-type=application/json; a=b", "empty="}
	config.Key, config.KeyColumn = "all", "key"
	got := show(mustMap(t, mustMapping(t, config), ownRow(col{"key", pgtype.TextOID, nil})))
	want := `|"all"|"\x00\xff"|`
	if !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	want = `|41 ce_id="0f8fad5b-d9cb-469f-a165-70867728950e" ce_type="deposited" content-type="application/json; a=b" empty=""`
	if !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMissingColumns(t *testing.T) {
	config := own()
	config.HeaderColumns, config.EnvelopeColumns = []string{"tenant"}, []string{"region"}
	if err := mustMapping(t, config).Resolve(ownRow().Relation); err == nil ||
		!strings.Contains(err.Error(), `column "tenant" (header-columns)`) || !strings.Contains(err.Error(), `column "region" (envelope-columns)`) {
		t.Errorf("missing columns passed: %v", err)
	}
	config.MissingColumns = MissingIgnore
	m := mustMapping(t, config)
	if err := m.Resolve(ownRow().Relation); err != nil {
		t.Fatal(err)
	}
	if e := mustMap(t, m, ownRow()); string(e.Value) != `{"payload":"AP8="}` || len(e.Headers) != ownHeaders {
		t.Errorf("got %s", show(e))
	}
}

func TestSettingsThatDoNotGoTogether(t *testing.T) {
	for _, c := range []struct {
		config MappingConfig
		want   string
	}{
		{MappingConfig{Tombstone: "sometimes"}, `tombstone "sometimes" is not known: it can be on-null, on-empty, on-blank, never`},
		{MappingConfig{KeyFormat: "xml"}, `key-format "xml" is not known: it can be text, json`},
		{MappingConfig{ValueFormat: FormatJSON, EnvelopeColumns: []string{"id"}}, "value-format has no effect with envelope-columns"},
		{MappingConfig{EnvelopePayload: EnvelopeJSON}, "envelope-payload has no effect without envelope-columns"},
		{MappingConfig{EnvelopeColumns: []string{"payload=x"}}, `envelope-columns: field "payload" is named twice`},
		{MappingConfig{EnvelopeColumns: []string{"a", "a=b"}}, `envelope-columns: field "a" is named twice`},
		{MappingConfig{EnvelopeColumns: []string{"a="}}, `envelope-columns: "a=" is not COLUMN or NAME=COLUMN`},
		{MappingConfig{HeaderConstants: []string{"a"}}, `header-constants: "a" is not HEADER=TEXT`},
		{MappingConfig{HeaderConstants: []string{"walstream-x=1"}}, "walstream's own"},
		{MappingConfig{HeaderConstants: []string{"event_type=1"}}, `header-constants: header "event_type" is named twice`},
		{MappingConfig{IDHeader: "event_type"}, `header-columns: header "event_type" is named twice`},
		{MappingConfig{IDHeader: "walstream-id"}, "id-header: names that begin with walstream-"},
		{MappingConfig{IdempotencyHeader: "x"}, "idempotency-header has no effect without"},
		{MappingConfig{IdempotencyHeader: "event_type", IdempotencyKey: Derived}, `header "event_type" is named twice`},
		{MappingConfig{Preset: "bank", IdempotencyKey: Derived}, "idempotency-key is derived from the event id"},
		{MappingConfig{IdempotencyKey: "yes"}, "idempotency-key \"yes\" is not known"},
		{MappingConfig{RouteColumn: "a", Topic: "t"}, "route-column and topic or topic-pattern exclude each other"},
		{MappingConfig{MissingColumns: "x"}, "missing-columns"},
	} {
		c.config.Schema, c.config.Table = "public", "o"
		if _, err := NewMapping([]MappingConfig{c.config}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.config, err, c.want)
		}
	}
}

func TestTransform(t *testing.T) {
	var seen []Header
	config := own()
	config.Transform = TransformFunc(func(e *Event) error {
		seen = append([]Header(nil), e.Headers...)
		if e.Topic == "refuse" {
			return errors.New("no such tenant")
		}
		e.Topic, e.Key, e.Value = "eu."+e.Topic, nil, []byte("new")
		e.Headers = append([]Header{{"first", []byte("1")}}, e.Headers...)
		e.Partition, e.Timestamp = 4, time.Unix(1, 0)
		e.Position, e.RowID = decode.Position{}, "forged"
		return nil
	})
	m := mustMapping(t, config)
	e := mustMap(t, m, ownRow())
	if got := show(e); got != `eu.deposits|nil|"new"|4|1970-01-01T00:00:01Z|41 first="1" event_type="deposited"` {
		t.Errorf("got %s", got)
	}
	if len(seen) != 1 || e.Headers[0].Key != HeaderPosition || e.Headers[2].Key != HeaderPipeline || e.Position.Ordinal != 2 {
		t.Errorf("saw %q, made %q", seen, e.Headers)
	}
	var bad *RowError
	_, err := m.Map(ownRow(col{"topic", pgtype.TextOID, "refuse"}), &e)
	if !errors.As(err, &bad) || bad.RowID != "41" || !strings.Contains(err.Error(), "row 41 at 16/B374D848#2: the transform refused it: no such tenant") {
		t.Errorf("got %v", err)
	}
}
