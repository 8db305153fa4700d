package outbox

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

// kafkaMessage reads a record as the SDK's binding for Kafka does: it is the
// oracle of what we write.
type kafkaMessage struct{ e *Event }

var kafkaSpecs = spec.WithPrefix(cloudPrefix)

func (m kafkaMessage) header(name string) string {
	for _, h := range m.e.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func (m kafkaMessage) version() spec.Version { return kafkaSpecs.Version(m.header("ce_specversion")) }

func (m kafkaMessage) ReadEncoding() binding.Encoding {
	switch {
	case m.version() != nil:
		return binding.EncodingBinary
	case format.Lookup(m.header("content-type")) != nil:
		return binding.EncodingStructured
	}
	return binding.EncodingUnknown
}

func (m kafkaMessage) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.ReadEncoding() != binding.EncodingStructured {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, format.Lookup(m.header("content-type")), bytes.NewReader(m.e.Value))
}

func (m kafkaMessage) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	if m.ReadEncoding() != binding.EncodingBinary {
		return binding.ErrNotBinary
	}
	for _, h := range m.e.Headers {
		attribute := m.version().Attribute(h.Key)
		if h.Key == "content-type" {
			attribute = m.version().AttributeFromKind(spec.DataContentType)
		}
		var err error
		if attribute != nil {
			err = w.SetAttribute(attribute, string(h.Value))
		} else if name, ok := strings.CutPrefix(h.Key, cloudPrefix); ok {
			err = w.SetExtension(name, string(h.Value))
		}
		if err != nil {
			return err
		}
	}
	if m.e.Value == nil {
		return nil
	}
	return w.SetData(bytes.NewReader(m.e.Value))
}

func (m kafkaMessage) GetAttribute(k spec.Kind) (spec.Attribute, any) {
	attribute := m.version().AttributeFromKind(k)
	if attribute == nil {
		return nil, nil
	}
	return attribute, m.header(attribute.PrefixedName())
}

func (m kafkaMessage) GetExtension(name string) any { return m.header(cloudPrefix + name) }
func (m kafkaMessage) Finish(error) error           { return nil }

// asCloudEvent is the event as the SDK sees it; it must be a valid one.
func asCloudEvent(t testing.TB, e *Event) *event.Event {
	t.Helper()
	got, err := binding.ToEvent(t.Context(), kafkaMessage{e})
	if err == nil {
		err = got.Validate()
	}
	if err != nil {
		t.Fatalf("%s: %v", show(*e), err)
	}
	return got
}

// cloudy is our own table with every setting of a CloudEvent.
func cloudy(envelope string) MappingConfig {
	c := own()
	c.Envelope, c.CESource, c.CEType, c.CESubject = envelope, "/bank/{aggregate_type}", "com.bank.{event_type}", "{aggregate_id}"
	c.CEDataSchema, c.CEExtensions = "https://bank.example/schemas/{event_type}.json", []string{"region=eu", "partitionkey={key}"}
	return c
}

const cloudAttributes = `specversion: 1.0
  type: com.bank.deposited
  source: /bank/account
  subject: acc-7
  id: 0f8fad5b-d9cb-469f-a165-70867728950e
  time: 2026-03-04T05:06:07.000008Z
  dataschema: https://bank.example/schemas/deposited.json
`

func TestCloudEvents(t *testing.T) {
	js := col{"payload", pgtype.JSONBOID, `{"amount": 12}`}
	for _, c := range []struct {
		name    string
		row     *decode.Row
		config  func(*MappingConfig)
		binary  string // the record, as show has it
		value   string // of the structured one
		sdk     string // what the SDK prints, in both modes
		dropped uint64
	}{
		{
			name: "json", row: ownRow(js),
			binary: ` event_type="deposited" ce_specversion="1.0" ce_id="0f8fad5b-d9cb-469f-a165-70867728950e" ce_time="2026-03-04T05:06:07.000008Z"` +
				` ce_source="/bank/account" ce_type="com.bank.deposited" ce_subject="acc-7" ce_dataschema="https://bank.example/schemas/deposited.json"` +
				` ce_region="eu" ce_partitionkey="k1" content-type="application/json"`,
			value: `{"specversion":"1.0","id":"0f8fad5b-d9cb-469f-a165-70867728950e","time":"2026-03-04T05:06:07.000008Z","source":"/bank/account",` +
				`"type":"com.bank.deposited","subject":"acc-7","dataschema":"https://bank.example/schemas/deposited.json","region":"eu","partitionkey":"k1",` +
				`"datacontenttype":"application/json","data":{"amount": 12}}`,
			sdk: "Context Attributes,\n  " + cloudAttributes + "  datacontenttype: application/json\nExtensions,\n  partitionkey: k1\n  region: eu\nData,\n  {\n    \"amount\": 12\n  }\n",
		},
		{
			name: "bytea", row: ownRow(),
			value: `"datacontenttype":"application/octet-stream","data_base64":"AP8="}`,
			sdk:   "  datacontenttype: application/octet-stream\n",
		},
		{
			name: "JSON in a bytea, when it is said", row: ownRow(col{"payload", pgtype.ByteaOID, `\x5b312c325d`}),
			config: func(c *MappingConfig) { c.CEDataContentType = "application/json; charset=utf-8" },
			value:  `"datacontenttype":"application/json; charset=utf-8","data":[1,2]}`,
			sdk:    "  datacontenttype: application/json; charset=utf-8\n",
		},
		{
			name: "text", row: ownRow(col{"payload", pgtype.TextOID, "a \"quote\""}),
			value: `"datacontenttype":"text/plain","data":"a \"quote\""}`, sdk: "  datacontenttype: text/plain\n",
		},
		{
			name: "a content type by column", row: ownRow(col{"payload", pgtype.TextOID, "<a/>"}, col{"key", pgtype.TextOID, "application/xml"}),
			config: func(c *MappingConfig) { c.CEDataContentType = "{key}" },
			value:  `"datacontenttype":"application/xml","data":"<a/>"}`, sdk: "  datacontenttype: application/xml\n",
		},
		{
			name: "NULL attributes are left out", row: ownRow(js, col{"key", pgtype.TextOID, nil}),
			value: `"region":"eu","datacontenttype":"application/json","data":{"amount": 12}}`, sdk: "Extensions,\n  region: eu\nData",
		},
		{
			name:  "headers of the row do not get in the way",
			row:   ownRow(js, col{"headers", pgtype.JSONBOID, `{"ce_id": "1", "Content-Type": "x", "CE_TYPE": "", "ok": "2"}`}),
			value: `"data":{"amount": 12}}`, sdk: cloudAttributes, dropped: 3,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, envelope := range []string{CloudEventsBinary, CloudEventsStructured} {
				config := cloudy(envelope)
				if c.config != nil {
					c.config(&config)
				}
				m := mustMapping(t, config)
				e := mustMap(t, m, c.row)
				if printed := asCloudEvent(t, &e).String(); !strings.Contains(printed, c.sdk) {
					t.Errorf("%s: the SDK reads\n%s\nwant\n%s", envelope, printed, c.sdk)
				}
				if envelope == CloudEventsBinary && !strings.HasSuffix(show(e), c.binary) {
					t.Errorf("got  %s\nwant %s", show(e), c.binary)
				}
				if envelope == CloudEventsStructured && !strings.HasSuffix(string(e.Value), c.value) {
					t.Errorf("got  %s\nwant %s", e.Value, c.value)
				}
				if m.ReservedHeaders != c.dropped {
					t.Errorf("%s: %d headers dropped, want %d", envelope, m.ReservedHeaders, c.dropped)
				}
			}
		})
	}
}

// TestCloudEventTombstones: a tombstone is one in either mode, for compaction.
func TestCloudEventTombstones(t *testing.T) {
	null := ownRow(col{"payload", pgtype.ByteaOID, nil})
	binary, structured := cloudy(CloudEventsBinary), cloudy(CloudEventsStructured)
	e := mustMap(t, mustMapping(t, binary), null)
	if got := asCloudEvent(t, &e); e.Value != nil || got.ID() != "0f8fad5b-d9cb-469f-a165-70867728950e" || got.DataContentType() != "" {
		t.Errorf("binary: %s", show(e))
	}
	if e = mustMap(t, mustMapping(t, structured), null); e.Value != nil || (kafkaMessage{&e}).header("content-type") != "" {
		t.Errorf("structured: %s", show(e))
	}
	structured.Tombstone = Never
	e = mustMap(t, mustMapping(t, structured), null)
	if got := asCloudEvent(t, &e); got.Data() != nil || bytes.Contains(e.Value, []byte("data\"")) {
		t.Errorf("an event without data: %s", show(e))
	}
	binary.Tombstone = Never
	if _, err := mustMapping(t, binary).Map(null, &e); err == nil || !strings.Contains(err.Error(), "tombstone is never") {
		t.Errorf("binary, never: %v", err)
	}
}

func TestCloudEventDefaults(t *testing.T) {
	c := own()
	c.Envelope = CloudEventsBinary
	e := mustMap(t, mustMapping(t, c), ownRow())
	got := asCloudEvent(t, &e)
	if got.Source() != "/walstream/bank.s" || got.Type() != "deposited" || got.Subject() != "" {
		t.Errorf("got %s", got)
	}
}

// TestJSONTypes: */*+json too, which the SDK for Go knows nothing of.
func TestJSONTypes(t *testing.T) {
	for text, want := range map[string]bool{
		"application/json": true, "text/JSON": true, "application/vnd.a+json": true, "application/json ; charset=utf-8": true,
		"application/jsonl": false, "text/plain": false, "json": false, "application/xml; a=/json": false, "": false,
	} {
		if got := isJSONType([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestRowsThatAreNoCloudEvent(t *testing.T) {
	for _, c := range []struct {
		col  col
		want string
	}{
		{col{"event_id", pgtype.TextOID, ""}, `column "event_id" (0 bytes): is NULL or empty`},
		{col{"event_id", pgtype.TextOID, "a\nb"}, `column "event_id" (3 bytes): is NULL or empty`},
		{col{"aggregate_type", pgtype.TextOID, "a b"}, `column "aggregate_type" (3 bytes): is no URI reference`},
		{col{"aggregate_type", pgtype.TextOID, "50%"}, "is no URI reference"},
		{col{"aggregate_type", pgtype.TextOID, nil}, `column "aggregate_type" (0 bytes): is NULL or empty`},
		{col{"event_type", pgtype.TextOID, "a\tb"}, `column "event_type" (3 bytes): holds control characters`},
		{col{"event_type", pgtype.TextOID, nil}, `column "event_type" (0 bytes): is NULL or empty`},
		{col{"aggregate_id", pgtype.TextOID, "\u0085"}, "holds control characters"},
		{col{"aggregate_id", pgtype.TextOID, "\xff"}, "is not UTF-8"},
		{col{"payload", pgtype.ByteaOID, `\x7b`}, `column "payload" (4 bytes): is not JSON, as the datacontenttype`},
	} {
		config := cloudy(CloudEventsStructured)
		config.CEDataContentType = "application/json"
		var e Event
		_, err := mustMapping(t, config).Map(ownRow(c.col), &e)
		var bad *RowError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.col, err, c.want)
		}
	}
}

func TestCloudEventSettings(t *testing.T) {
	for want, change := range map[string]func(*MappingConfig){
		`envelope "cloudevents" is not known: it can be none, cloudevents-binary, cloudevents-structured`: func(c *MappingConfig) { c.Envelope = "cloudevents" },
		"ce-type has no effect without envelope": func(c *MappingConfig) {
			*c = own()
			c.CEType = "a"
		},
		"ce-type is required":                             func(c *MappingConfig) { c.Preset, c.CEType = "bank", "" },
		`ce-source "a b": is no URI reference`:            func(c *MappingConfig) { c.CESource = "a b" },
		`ce-dataschema "/a": is no absolute URI`:          func(c *MappingConfig) { c.CEDataSchema = "/a" },
		`ce-datacontenttype "json": is no media type`:     func(c *MappingConfig) { c.CEDataContentType = "json" },
		`ce-subject "{a": a placeholder is {column}`:      func(c *MappingConfig) { c.CESubject = "{a" },
		`ce-extensions: "Tenant=a" is not NAME=TEXT`:      func(c *MappingConfig) { c.CEExtensions = []string{"Tenant=a"} },
		`ce-extensions: time is an attribute of the spec`: func(c *MappingConfig) { c.CEExtensions = []string{"time=a"} },
		`ce-extensions: "a" is named twice`:               func(c *MappingConfig) { c.CEExtensions = []string{"a=1", "a=2"} },
		`header-constants: header "Content-Type" is the`:  func(c *MappingConfig) { c.HeaderConstants = []string{"Content-Type=a"} },
		`header-columns: header "ce_id" is the`:           func(c *MappingConfig) { c.HeaderColumns = []string{"ce_id=id"} },
		"envelope-columns make an envelope of their own":  func(c *MappingConfig) { c.EnvelopeColumns = []string{"id"} },
		"schema-format does not go with envelope":         func(c *MappingConfig) { c.Envelope, c.SchemaFormat = CloudEventsStructured, SchemaJSON },
	} {
		config := cloudy(CloudEventsBinary)
		change(&config)
		if _, err := NewMapping([]MappingConfig{config}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCloudEventNeedsItsColumns(t *testing.T) {
	config := cloudy(CloudEventsBinary)
	config.CEExtensions = []string{"tenant={tenant_id}"}
	err := mustMapping(t, config).Resolve(ownRow().Relation)
	var missing *ColumnError
	if !errors.As(err, &missing) || missing.Column != "tenant_id" || missing.Setting != "ce-extensions" {
		t.Errorf("got %v", err)
	}
}

func TestCloudEventAllocatesNothing(t *testing.T) {
	for _, envelope := range []string{CloudEventsBinary, CloudEventsStructured} {
		m, row := mustMapping(t, cloudy(envelope)), ownRow()
		var e Event
		if n := testing.AllocsPerRun(1000, func() { _, _ = m.Map(row, &e) }); n >= 0.1 {
			t.Errorf("%s: %v allocations for each row", envelope, n)
		}
	}
}

// FuzzCloudEvent: whatever the columns hold, a record is one the SDK takes, or the
// row is refused.
func FuzzCloudEvent(f *testing.F) {
	f.Add("account", "deposited", "acc-7", "k1", "text")
	f.Add("", "\x00", "\u2028", "%zz", "\"\\")
	f.Fuzz(func(t *testing.T, kind, name, subject, key, text string) {
		row := ownRow(col{"aggregate_type", pgtype.TextOID, kind}, col{"event_type", pgtype.TextOID, name},
			col{"aggregate_id", pgtype.TextOID, subject}, col{"key", pgtype.TextOID, key}, col{"payload", pgtype.TextOID, text})
		for _, envelope := range []string{CloudEventsBinary, CloudEventsStructured} {
			config := cloudy(envelope)
			config.CESource, config.CEDataSchema = "/x/{aggregate_type}", ""
			var e Event
			if _, err := mustMapping(t, config).Map(row, &e); err != nil {
				continue
			}
			got := asCloudEvent(t, &e)
			if got.Subject() != subject || got.Type() != "com.bank."+name || string(got.Data()) != text && envelope == CloudEventsBinary {
				t.Errorf("%s: %s", envelope, got)
			}
		}
	})
}
