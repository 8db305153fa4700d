// Package replay publishes rows of the outbox once more: it decides from where they
// are read and which they are. package pipeline runs it (pipeline.Replay), beside
// the pipeline, whose slot, checkpoint and transactional ids it does not touch.
//
//	request ──> Open ──> Plan: source, range, rows ──> Run ──> pipeline.Replay
//	              │
//	              ├ a replay that was begun: goes on as it was decided then
//	              ├ the WAL: the rewind slot stands at or below from-lsn
//	              ├ the tables: ids, times, or an LSN that history knows
//	              └ else refused, with the earliest LSN that there is
//
// Invariants:
//   - Nothing is sent before it is known that all of what was asked for can be: what
//     no source covers is refused, with what the sources do cover.
//   - A replay keeps what it was decided to be in its checkpoint; the same request
//     goes on with it, another one is refused until the first is complete.
//   - Rows of the tables go in the order of an integer key, id, or time. A table that
//     has none of them is refused: its rows would change places.
//   - Every record has the event id that it had. From the tables that takes a column.
package replay
