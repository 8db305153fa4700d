// Package otlp sends spans to an OpenTelemetry collector: OTLP over HTTP, in JSON.
//
//	Span() ──> queue of 2,048 ──> batches of 512, or every 5 s ──> POST /v1/traces
//	  │ full                                                          │ refused, or no answer
//	  └──────────────────> dropped, counted <─────────────────────────┘
//
// It is some two hundred lines because the SDK's exporter is some six megabytes of
// binary, gRPC included, for what is one kind of span, a queue and a POST.
//
// Invariants:
//   - Span never blocks, and a collector that is down costs nothing but spans.
//   - A span is sent at most once: nothing is sent again, since whoever asks for a
//     trace is served better by the next one than by a queue of old ones.
//   - Every span that is not sent is counted.
//   - What configures it are OpenTelemetry's own variables, and it is off without
//     them. One that cannot be followed switches it off, with a line in the log:
//     tracing is no reason to stop.
//
// What surprised us: OTLP's JSON is not protobuf's: ids are hex, not base64, and
// 64-bit numbers are texts. The variables for all signals have a base URL, those
// for traces the whole one.
package otlp
