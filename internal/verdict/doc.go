// Package verdict holds the topics against the outbox table: did every committed
// row arrive, nothing else, in order, and twice only where the guarantee allows
// it? The crash and chaos tools and the demo end with it.
//
//	outbox table ── ReadTable ──> []Row ────┐
//	topics ──────── ReadTopics ─> []Record ─┤  Judge ──> Result
//	faults ───────── the tool ──> []Restart ┘  (pure)
//
// Judge is pure, so that tables of small cases prove that it can fail.
//
// A duplicate is lawful (at-least-once) when an instance ended between the two
// copies and the row lies behind the checkpoint that was durable then. Which
// copies an ended instance wrote is told without clocks: a Restart says where
// each partition ended, and every start of walstream writes its rows under a
// producer id of its own. What surprised us: the offsets alone do not do. What
// was in a socket when walstream was killed is still written, behind the end that
// was read after the kill, and even behind what the next instance writes.
package verdict
