// Package prune deletes outbox rows that are published, and none that is not.
//
// That a row is old, or has a high id, says nothing about that: its transaction may
// have been open for long, and may commit now. So:
//
//  1. Fix a state of the table, and read the WAL's end behind it: every row that
//     can be seen was committed before that.
//  2. Wait until both the checkpoint and the slot's confirmed position are at or
//     beyond it. The checkpoint alone could be another server's; the slot alone
//     could have been moved by hand.
//  3. Delete the rows that were seen, by their primary keys, in batches, each a
//     transaction of its own. A row that came later is not among them.
//
// Rows that were put aside or left out by --on-poison count as done, and so do those
// from before the slot when no snapshot published them: walstream would never
// publish them. Primary keys must not be used again.
package prune
