// Package layout holds the tests of how this module is put together: which
// package may import which, and what must not get into the binary. It has no
// code of its own.
//
//	cmd/walstream -> everything below
//	audit, prune  -> the same packages as pipeline, not the pipeline
//	pipeline      -> recovery, sink, snapshot, replication, outbox, checkpoint, decode; its core none of the first three
//	recovery      -> sink, snapshot, replication, outbox, checkpoint, decode
//	snapshot      -> replication, checkpoint, decode
//	sink          -> outbox, checkpoint, history, decode, franz-go
//	replication   -> decode, pgx, pglogrepl
//	outbox        -> decode, pgx.Tx for the writer
//	checkpoint    -> history, decode
//	history       -> standard library, pglogrepl.LSN
//	decode        -> standard library, pglogrepl.LSN
//	repeat        -> standard library; for sink, pipeline and prune
//
// depguard tells the same at the import's line; this test is the one that
// nobody can switch off with a comment.
package layout
