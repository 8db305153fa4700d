// Package outbox knows outbox tables: what they look like, and how one of their
// rows becomes the record to publish. It is pure: no goroutine, no clock, no I/O.
//
//	MappingConfig --NewMapping--> Mapping --Resolve(catalogue)--> the columns it needs
//	                                 |
//	decode.Row ------------------> Map ------------------------> Event
//
// Every part of an Event comes from a column, a constant or a default:
//
//	topic      column, else pattern "outbox.event.{aggregate_type}", or one for all
//	key        column, else (our own table) aggregate_id; NULL: no key
//	value      column, its bytes untouched; NULL: a tombstone
//	headers    walstream-position, walstream-event-id, walstream-pipeline, then
//	           single columns, then the members of a JSON object, then traceparent
//	partition  column, or the partitioner's choice
//	timestamp  column, or the commit time
//
// Bytes. A bytea is its raw bytes. Everything else is col::text: what PostgreSQL
// prints with the settings walstream gives its session (so a bool is "true", and
// a char(n) keeps its padding). JSON is never parsed and printed again.
//
// Members of a headers object: a string is its text; a number, a bool, an array
// or an object is its JSON text; null is a header without a value; of a name that
// a json column repeats every member is a header. Names that begin with
// "walstream-" are the record's own: such members are dropped and counted. A
// headers value that is not an object makes a bad row.
//
// Invariants: an Event's bytes alias the row or the Mapping's buffers and live
// until the next Map; an empty value is never nil, a NULL one always is; no error
// carries a payload; each row is read by the layout that was sent before it.
//
// What surprised us: pgoutput names a domain column's type by the domain's OID
// but sends the base type's binary format, which nothing in the stream gives
// away, so a domain asks for the text format. PostgreSQL lets nobody drop or
// retype a column that a publication lists, but it lets everybody rename it.
package outbox
