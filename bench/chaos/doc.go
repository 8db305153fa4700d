// Command chaos breaks everything around exactly-once delivery and looks for a
// transaction that is lost, there twice, out of order or torn:
// make chaos FAULTS=200 SEED=1. It prints one JSON line on stdout and fails on a
// bad verdict.
//
//	             link (knows status updates)     link (knows API keys)
//	load ──> PostgreSQL ───────────> walstream ──────────────> Kafka ──> reader
//	(never stops)  immediate     kill -9, SIGSTOP with      killed,   (read_committed,
//	               restarts      a second one standing by   stopped    all the time)
//
// The load writes single rows, transactions of 100 rows and now and then of
// 50,000, over two topics, in every way PostgreSQL has to write rows and to undo
// them: INSERT of many rows, COPY, savepoints rolled back, ON CONFLICT, updates
// and deletes of own rows, aborted transactions, PREPARE TRANSACTION and either of
// its ends. Each payload says transaction, index and size; each transaction
// leaves one row that says so too, so the table knows what to expect even of rows
// that are deleted.
//
// Faults come in the order that the seed gives, one in five before the pipeline is
// over the one before. Those that wait for a moment (before a request is passed
// on, after, before its answer is given) are sprung by the links, which cut the
// conversation into requests and messages; a link can also hold a request until
// another instance has taken over.
//
// Between a fault and the next start, while nothing of walstream can reach the
// broker and no transaction is being ended, the transactions that the reader has
// seen are looked at: one that is there in part is torn, unless a committed
// checkpoint says that exactly these first rows of it are published: then it was
// split, which is counted apart. (One instance in three is started with a maximal
// transaction time of 100 ms, so that there are some.)
//
// longest_stall_ms is the longest time in which the reader got nothing while the
// load ran, restarts of the servers included.
//
// The schedule and the rows are the seed's; the moments are the machine's.
package main
