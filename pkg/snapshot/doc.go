// Package snapshot publishes the rows that an outbox held before its slot was
// made. It reads them in primary-key order and hands them on as frames of a
// replication stream, one transaction for each page, so that they go down the same
// road as every row: mapping, window, sink, bad rows, checkpoints.
//
//	stream of the slot, X to Y ──> Inserted ──> Keys: what the stream will carry
//	                                              │ left out
//	table at Y, in key order ──> Source ──────────┴──> frames: page 1, page 2, ...
//	                                                   then one transaction that ends at X
//
// The one rule: the stream from X (where the slot began) on is always published
// in full, later; a snapshot publishes what the stream does not carry. So it can be
// resumed in any newer state of the table, without the snapshot that was exported
// when the slot was made: what is new since is among Keys.
//
// Invariants:
//   - The state of the table that is read is older than Y; every row of it that was
//     committed at or after X is in the stream before Y.
//   - Pages are numbered from 1, on over all restarts; page n has commit LSN 2n and
//     ends at 2n+1, which no server uses. The last transaction has no rows, and ends
//     at X itself: with its checkpoint the snapshot is over.
//   - A page's checkpoint names the primary key of its last row. Rows deleted before
//     they were read are not published; keys must not change.
package snapshot
