package outbox

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// What is compared of a published value is what the row gave: of a structured CloudEvent its
// data (its time is that of the commit, which a table does not tell), of a value
// with a schema what stands behind the prefix (who compares asks no registry).

// DataOf a published value, by the headers beside it.
func DataOf(value []byte, headers []Header) []byte {
	for i := range headers {
		if h := &headers[i]; h.Key == "content-type" && strings.HasPrefix(string(h.Value), "application/cloudevents+json") {
			var event struct {
				Data   json.RawMessage `json:"data"`
				Base64 []byte          `json:"data_base64"`
			}
			if json.Unmarshal(value, &event) != nil {
				return value // as strange as it is
			}
			if event.Base64 != nil {
				return event.Base64
			}
			return event.Data
		}
	}
	return value
}

// Unframed is a published value without the prefix of its schema, of a format.
func Unframed(value []byte, format string) []byte {
	const prefix = 5 // a zero byte and the id
	if format == "" || len(value) < prefix || value[0] != 0 {
		return value
	}
	rest := value[prefix:]
	if format != SchemaProtobuf {
		return rest
	}
	n, size := binary.Varint(rest)
	for ; size > 0 && n > 0; n-- { // the path to the message
		_, more := binary.Varint(rest[size:])
		if more <= 0 {
			return value
		}
		size += more
	}
	if size <= 0 || n < 0 {
		return value
	}
	return rest[size:]
}
