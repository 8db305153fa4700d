// Parity compares walstream's records with those of Debezium's outbox event
// router, byte by byte, over a corpus of rows and settings (corpus/*.yaml).
//
//	corpus --> one table for each group, its rows in a transaction each
//	             |                                   |
//	   Debezium's own PostgreSQL connector    bin/walstream, one slot for all
//	   EventRouter, Connect's converters      tables, into a real Kafka
//	   (java/, Debezium from Maven)                  |
//	             |                                   |
//	          answers ---------- compare -------- records
//	                                |
//	          explained.yaml: the differences we mean to have, with both sides
//
// Nothing of Debezium is imitated: its connector reads the same rows from the
// same WAL, so what types become is its word, not ours. Only the worker of Connect
// is left out, which hands what the router gives to the converters and those bytes
// to the producer (Router.java); make parity-live shows, for groups that say live,
// that a real worker sends the same records.
//
// A row is found again on both sides by its transaction: Debezium's events name
// it, and walstream-position holds the commit's LSN.
//
// Invariants: a difference is unexplained unless explained.yaml holds both sides as
// they came; an explanation that fits nothing fails the run; the page
// docs/debezium-parity.md is what the corpus and the explanations say.
//
// What surprised us: the router refuses a timestamp column of type timestamptz,
// the usual one; with Connect's JsonConverter a text key travels in quotes, and
// lands in another partition; and the connector reads rows only from some moment
// after its start that it does not tell.
package main
