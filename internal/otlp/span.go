package otlp

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"
)

// Span is one piece of work that is done.
type Span struct {
	Name       string
	Start, End time.Time
	Attributes []Attribute
	Links      []Link
	MoreLinks  int    // that were left out
	Err        string // empty: it went well
}

// Attribute of a span, or of the process: a string, bool, int or float64.
type Attribute struct {
	Key   string
	Value any
}

// Link to a span of another trace.
type Link struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// What follows is OTLP's JSON, as far as it is used:
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

type request struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []keyValue `json:"attributes"`
}

type scopeSpans struct {
	Scope scope      `json:"scope"`
	Spans []wireSpan `json:"spans"`
}

type scope struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

type wireSpan struct {
	TraceID    string     `json:"traceId"`
	SpanID     string     `json:"spanId"`
	Flags      uint32     `json:"flags"`
	Name       string     `json:"name"`
	Kind       int        `json:"kind"`
	Start      string     `json:"startTimeUnixNano"`
	End        string     `json:"endTimeUnixNano"`
	Attributes []keyValue `json:"attributes,omitempty"`
	Links      []wireLink `json:"links,omitempty"`
	MoreLinks  int        `json:"droppedLinksCount,omitempty"`
	Status     *status    `json:"status,omitempty"`
}

type wireLink struct {
	TraceID string `json:"traceId"`
	SpanID  string `json:"spanId"`
	Flags   uint32 `json:"flags"`
}

type status struct {
	Message string `json:"message"`
	Code    int    `json:"code"`
}

type keyValue struct {
	Key   string         `json:"key"`
	Value map[string]any `json:"value"`
}

const (
	kindProducer = 4
	statusError  = 2
	// flagSampled is W3C's; flagRemote says that it is known, and so, that a link
	// leads to another process.
	flagSampled = 0x01
	flagRemote  = 0x300
)

func encodeSpan(s *Span) wireSpan {
	var traceID [16]byte
	var spanID [8]byte
	for traceID == [16]byte{} || spanID == [8]byte{} {
		putRandom(traceID[:8])
		putRandom(traceID[8:])
		putRandom(spanID[:])
	}
	w := wireSpan{
		TraceID: hex.EncodeToString(traceID[:]), SpanID: hex.EncodeToString(spanID[:]), Flags: flagSampled,
		Name: s.Name, Kind: kindProducer, Start: nanos(s.Start), End: nanos(s.End),
		Attributes: encodeAttributes(s.Attributes), MoreLinks: s.MoreLinks,
	}
	for _, l := range s.Links {
		w.Links = append(w.Links, wireLink{
			TraceID: hex.EncodeToString(l.TraceID[:]), SpanID: hex.EncodeToString(l.SpanID[:]), Flags: flagRemote | uint32(l.Flags),
		})
	}
	if s.Err != "" {
		w.Status = &status{Message: s.Err, Code: statusError}
	}
	return w
}

func putRandom(into []byte) {
	n := rand.Uint64()
	for i := range into {
		into[i] = byte(n >> (8 * i))
	}
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func encodeAttributes(attributes []Attribute) []keyValue {
	encoded := make([]keyValue, 0, len(attributes))
	for _, a := range attributes {
		var value map[string]any
		switch v := a.Value.(type) {
		case bool:
			value = map[string]any{"boolValue": v}
		case int:
			value = map[string]any{"intValue": strconv.Itoa(v)}
		case float64:
			value = map[string]any{"doubleValue": v}
		case string:
			value = map[string]any{"stringValue": v}
		default:
			panic("walstream: bug: attribute " + a.Key + " is of no type that OTLP has")
		}
		encoded = append(encoded, keyValue{a.Key, value})
	}
	return encoded
}
