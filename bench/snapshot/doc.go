// Command snapshot has walstream publish an outbox that is full before its slot is
// made, while a writer inserts and deletes and walstream is killed again and again:
// make bench-snapshot. It prints one JSON line on stdout.
//
//	COPY outbox TO STDOUT ──> nowhere                                 the rate to compare with, before and after
//	walstream --snapshot initial ── kill -9, start, kill -9 ... ──> streaming ──> topic, read_committed
//	writer: inserts; deletes of rows old and new ───────────────────┘
//
// Then every row that is still in the table has to be in the topic, and no row may be
// there twice or have never been; at least as many kills as were asked for have to hit
// the snapshot. The rate is that of the stretches between a start's first page and its
// end: what a kill costs beside is in rate_with_kills. Rows are told by their event
// ids, which are numbers, so a bit for each is all that is kept of them.
package main
