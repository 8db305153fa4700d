// Package prune takes outbox rows away that are published, and none that is not; by
// a command, and beside a running stream (Keeper). It can also write down in a column
// when they were.
//
// That a row is old, or has a high id, says nothing about whether it is published:
// its transaction may have been open for long, and may commit now. So, for some
// thousands of rows at a time:
//
//  1. Fix a state of the table, and read the WAL's end behind it: every row that
//     can be seen was committed before that. Note their primary keys, and give the
//     state up.
//  2. Wait until both the pipeline and the slot's confirmed position are at or
//     beyond it. The pipeline is its checkpoint, which could be another server's, or
//     the stream of this very process; the slot alone could have been moved by hand.
//  3. Delete the rows that were seen, by their primary keys, in batches, each a
//     transaction of its own. A row that came later is not among them.
//
// A partition goes the same way as a whole (partition.go): detached first, so that no
// row comes any more; then 1 and 2 for what is in it; then it is dropped.
//
// Rows that were put aside or left out by --on-poison count as done, and so do those
// from before the slot when no snapshot published them: walstream would never
// publish them. Primary keys must not be used again.
package prune
