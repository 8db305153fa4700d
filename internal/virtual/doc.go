// Package virtual runs the whole service in virtual time: the real supervisor,
// replication, decoder, sinks and checkpoints, between a PostgreSQL and a Kafka in
// memory, inside a testing/synctest bubble. An hour of outage takes a moment.
//
//	load ── Commit ──> pgfake ══ Network ══ walstream-1, -2, ... ══ Network ══ kfake
//	                     ^          ^            ^                     ^         │
//	faults ── crash, ────┘  reset, ─┘  kill -9, ─┘            refuse, ─┘         │
//	          stop, stall   hold,      power cut,             lose answers,      │
//	                        half open  pause, SIGTERM         move leaders       │
//	                                                                             v
//	judge <── transactions, positions confirmed ── rows, checkpoints, markers ── reader
//
// A seed decides the load, the faults and their moments, the delivery, and the
// speed of the network. After the last fault everything must settle, then idle
// time must pass without a restart, then every instance must stop cleanly. What
// is held against each other in the end:
//   - no committed row is missing; first appearances are in order per key;
//   - in exactly-once no row is there twice, and the rows of a PostgreSQL
//     transaction lie in one Kafka transaction, or the checkpoint of each part says
//     that it is one; committed rows never lack their checkpoint;
//   - in at-least-once no row is written twice by one producer, or by one that began
//     when a checkpoint covered it already;
//   - no position is confirmed before a checkpoint that covers it was committed,
//     inside a transaction, or beyond what was sent; checkpoints only move on;
//   - nothing but a signal ends an instance.
//
// It needs franz-go's build tag: go test -tags synctests ./internal/virtual, or
// make virtual. Without it the test is skipped, since a mutex that somebody holds
// while time passes stops the time.
//
// What surprised us: how goroutines interleave is the scheduler's, so a seed
// that failed may pass the next time (nine in ten do not); kfake lets a
// producer that was fenced long ago initialise itself again, which Kafka does
// not: kafka_test.go sees to it; and a link must not be forgotten when one end
// has closed it, or what is held on it is never let go.
package virtual
