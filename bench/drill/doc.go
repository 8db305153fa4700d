// Command drill loses what can be lost, and gets everything back: make drill. It
// prints one JSON line on stdout and fails on a bad verdict.
//
//		writer ──> primary ──> standby server        walstream ──> Kafka
//		             kill -9     promoted                            topics deleted
//
//	 1. Under load the standby server is cut off, and a moment later the primary is
//	    killed: what was committed, and published, in between is lost with it. The
//	    standby is promoted; it has no slot. walstream recover looks, makes the slot
//	    anew and publishes, while rows go on coming; the stream goes on.
//	 2. walstream is stopped, the topic deleted, with the slot as it was. walstream recover
//	    --all-rows publishes the table, and the stream goes on where it was.
//	 3. The slot is dropped while rows come.
//
// After each step the topic is held against the table, by eyes of its own and by
// walstream audit; and what the report said of its window against what was known of
// each row: by whom it was acknowledged, and what was in the topic before.
package main
