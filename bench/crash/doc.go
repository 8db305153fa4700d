// Command crash kills walstream under load and holds the topic against the
// table: make crash KILLS=30. It prints one JSON line on stdout and fails on a
// bad verdict.
//
//	writers ──> PostgreSQL ──> walstream ── 4 MB/s ──> Kafka ──> verdict
//	(never stop)  (fsync on)    kill -9                restart
//
// Four writers commit transactions of 1 to 50 rows at 2,000 rows/s into our own
// outbox table, some of them aborted, some with savepoints rolled back. The rows
// of a key carry a number that rises in the order of its commits. Meanwhile
// walstream, the real binary, is killed again and again, and the broker is
// stopped or killed. Between a kill and the next start the durable checkpoint
// and the ends of the partitions are read from Kafka.
//
// walstream reaches the broker through a proxy that lets 4 MB/s pass on each
// connection, as a network does. A kill counts as in flight when, right after it,
// a row whose COMMIT had been answered before was not in Kafka: the rows committed
// before the kill are more than those below the ends of the partitions. This is
// told afterwards from what was written, not from what walstream says of itself.
// Most kills follow a commit of 50 rows at once, before they can be through; one
// in eight hits walstream anywhere in making up for the time it was down or soon
// after, one in ten during its start.
//
// The topic is read as read_committed. In at-least-once a duplicate is lawful
// behind the checkpoint that was durable at a restart; in exactly-once
// (-delivery) none is.
//
// The seed is printed and makes the schedule and the rows again; the moments are
// the machine's.
package main
