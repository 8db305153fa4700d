package audit

import (
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/walstream/walstream/pkg/outbox"
)

func TestUnframed(t *testing.T) {
	for _, c := range []struct {
		format string
		index  []int
	}{
		{outbox.SchemaAvro, nil},
		{outbox.SchemaJSON, nil},
		{outbox.SchemaProtobuf, []int{0}},
		{outbox.SchemaProtobuf, []int{1}},
		{outbox.SchemaProtobuf, []int{2, 0, 300}},
	} {
		value, err := new(sr.ConfluentHeader).AppendEncode(nil, 70_000, c.index)
		if err != nil {
			t.Fatal(err)
		}
		if got := outbox.Unframed(append(value, "value"...), c.format); string(got) != "value" {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for _, c := range []struct{ value, format string }{
		{"\x00\x00\x00\x00\x01x", ""},
		{"\x01\x00\x00\x00\x01x", "avro"},
		{"\x00\x00", "avro"},
		{"", "json"},
		{"\x00\x00\x00\x00\x01", "protobuf"},
		{"\x00\x00\x00\x00\x01\x04\x02", "protobuf"},
		{"\x00\x00\x00\x00\x01\x01", "protobuf"},
	} {
		if got := outbox.Unframed([]byte(c.value), c.format); string(got) != c.value {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestDataOfACloudEvent(t *testing.T) {
	structured := []outbox.Header{{Key: "a"}, {Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}}
	for _, c := range []struct {
		value   string
		headers []outbox.Header
		want    string
	}{
		{`{"time":"x","data":{"a": 1}}`, structured, `{"a": 1}`},
		{`{"time":"x","data":"a"}`, structured, `"a"`},
		{`{"time":"x","data_base64":"AP8="}`, structured, "\x00\xff"},
		{`{"time":"x"}`, structured, ""},
		{`{"time":`, structured, `{"time":`},
		{`{"time":"x","data":1}`, structured[:1], `{"time":"x","data":1}`},
	} {
		if got := outbox.DataOf([]byte(c.value), c.headers); string(got) != c.want {
			t.Errorf("%s: %q", c.value, got)
		}
	}
}
