// Package registry finds the schemas that frame values: of a Confluent-style
// schema registry, over HTTP.
//
//	SchemaAt (a subject and version, or an id) --Find--> Framer
//	value ------------------------------------------> Framer.Check, then
//	                                                  Framer.Prefix | value
//
// The prefix is a zero byte and the schema's id, four bytes, and in protobuf the
// path to the message within the schema's file.
// https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
//
// Find is called by a goroutine that may wait; a Framer is pure, and safe for use
// by several goroutines.
//
// Why these libraries. franz-go's sr speaks the API, and comes from the author of
// the Kafka client. So does twmb/avro: it gives back what it did not read, which
// shows a value that is longer than its schema, it is bounded against sizes that
// lie, and needs nothing but the compressor that the Kafka client has already
// (hamba/avro brings three more modules). protocompile is the compiler that buf is
// built on, and gives descriptors to protobuf's own runtime. santhosh-tekuri's
// jsonschema knows every draft, and needs x/text only.
//
// What surprised us: an unknown subject, an unknown path and a registry that is
// not one are all 404; only the error code in the body tells them apart. And a
// value of any message parses as any other protobuf message: what does not fit is
// found among the unknown fields.
package registry
