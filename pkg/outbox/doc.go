// Package outbox knows outbox tables: what they look like, and how one of their
// rows becomes the record to publish. It is pure: no goroutine, no clock, no I/O.
//
//	MappingConfig --NewMapping--> Mapping --Resolve(catalogue)--> the columns it needs
//	                                 |
//	decode.Row ------------------> Map ------------------------> Event
//
// Every part of an Event comes from a column, a constant or a default:
//
//	topic      column, else one of: a pattern "outbox.event.{aggregate_type}", a
//	           route (a column through a regular expression), one for all
//	key        column, else (our own table) aggregate_id, else one for all; NULL: no key
//	value      column, its bytes untouched; NULL: a tombstone, unless a setting says
//	           otherwise; or an envelope, {"payload": ..., "field": ...}
//	headers    walstream-position, walstream-event-id, walstream-pipeline, then the
//	           id's, single columns, constants, idempotency key, then what one column
//	           holds (a JSON object, hstore, or text[] of pairs), then the trace context
//	partition  column, or the partitioner's choice
//	timestamp  column, or the commit time
//
// and a Transform, where people embed the package, has the last word.
//
// Bytes. A bytea is its raw bytes. Everything else is col::text with the settings
// walstream gives its session, which for some types is not what the type's own
// output prints, and so not what the stream carries: a bool is "true", a char(n)
// has no padding, a single inet address has its /32. A domain is what its base
// type is. JSON is never parsed and printed again. Two differences are left: xml
// comes without the declaration that xml::text keeps, and what depends on a
// setting that is not ours (money on lc_monetary, regclass on search_path) is as
// walstream's role has it.
//
// Members of a headers object: a string is its text; a number, a bool, an array
// or an object is its JSON text; null is a header without a value; of a name that
// a json column repeats every member is a header. Of hstore and pairs NULL is a
// header without a value. Names that begin with "walstream-" are the record's
// own: such members are dropped and counted. A headers value of another shape
// makes a bad row, and a column whose type cannot hold headers stops the start.
//
// Invariants: an Event's bytes alias the row or the Mapping's buffers and live
// until the next Map; an empty value is never nil, a NULL one always is; no error
// carries a payload; each row is read by the layout that was sent before it.
//
// What surprised us: pgoutput names a domain column's type by the domain's OID
// but sends the base type's binary format, which nothing in the stream gives
// away, so a domain asks for the text format; and in the text format a domain of
// bytea looks like any text, so Resolve takes what is beneath domains from the
// catalogue. PostgreSQL lets nobody drop or retype a column that a publication
// lists, but it lets everybody rename it.
package outbox
