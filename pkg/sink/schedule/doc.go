// Package schedule decides how the stream is cut into Kafka transactions: which
// lane is next and when, what goes into its transaction, where that ends, what its
// checkpoint covers, and when the next may begin. It decides and does nothing: no
// goroutine, no clock, no I/O. The committer of the exactly-once sink does what it
// says with Kafka; the simulation of package pipeline does the same with a model.
//
//	loop                     Schedule                      committer
//	                                                         v
//	Put, Put, End ──> [row row end][row row end][row row ... Next: wait, or begin
//	Idle ───────────> position of idle time                  Begin ──> Transaction
//	Over              (nothing more comes)                     Take, Take, ... rows
//	                                                           Edge: its checkpoint
//	                                                           Answered
//
// Invariants:
//   - The next transaction begins only after the one before was answered with
//     success, on the other lane; the first one after a start runs on lane 0.
//     After a failure nothing begins.
//   - A transaction takes the PostgreSQL transactions that are complete when it
//     begins, up to CommitMaxBytes and at least one; or, of one that is not complete
//     but large, the rows as they come.
//   - It ends inside a PostgreSQL transaction only when its time is up and more is
//     left than is worth waiting for. Its checkpoint says so by an ordinal, and no
//     position of idle time is written before that transaction is complete.
//   - Misuse panics.
//
// The loop and the committer call it at once, so it has a mutex; neither waits for
// the other.
package schedule
