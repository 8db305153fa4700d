// Package recovery tells which rows of an outbox are in no topic, where the slot
// cannot: it is gone, or was moved, or Kafka has lost what was in it. It is what
// walstream recover compares; what is not found goes down the road of a snapshot.
//
//	checkpoint ──> which rows are in doubt ──> Judge.Where: a condition in SQL
//	topics, dead letters ── read_committed ──> published: event ids and values
//	table, row by row ──> Judge.Leaves ──> left out, or published by package snapshot
//
// Invariants:
//   - Topics are read behind the state of the tables that is compared: what is
//     published between the two is found. And nobody else publishes meanwhile, once a
//     recovery is more than looking.
//   - Equal is equal event id and value. An id with another value is another event: the
//     ids of a tail that the server has lost are given out again.
//   - Memory: 32 bytes for each record read, beyond half a million of them in
//     temporary files (snapshot.Keys).
//   - What is in doubt, and what has become of it, is in the checkpoint: so a recovery
//     is resumed where it was, by reading the topics anew. What it had published itself
//     is among what it finds.
package recovery
