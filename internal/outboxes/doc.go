// Package outboxes streams outbox tables of every shape that walstream knows by
// configuration, from a real PostgreSQL to a real Kafka by the real binary, and
// compares each record with one that is written out in full.
//
//	testdata/<table>/table.sql     the table; of a preset sql/presets/<table>.sql
//	testdata/<table>/config.yaml   what a user writes
//	testdata/<table>/rows.sql      what the application does
//	testdata/<table>/records.txt   the records that come of it
//
// docs/bring-your-outbox.md shows these files; a test holds it to them. All are
// rewritten by
//
//	go test ./internal/outboxes -update
//
// What differs from run to run (position, pipeline, commit time) is written in
// angle brackets, after a test has found that it is right.
package outboxes
