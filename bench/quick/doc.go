// Command quick measures how fast walstream drains rows that wait in the WAL
// into a real broker, beside pg_recvlogical reading the same WAL to /dev/null:
// make bench-quick. It prints one JSON line on stdout.
//
//	           ┌── slot of round 1 ──> walstream ──> Kafka, 3 partitions ──> verified
//	rows ─ WAL ┤   slot of round 1 ──> pg_recvlogical ──> /dev/null
//	           └── ... each contender has a slot for each round
//
// All slots are made before the rows are written, so every drain reads the same
// WAL from the same place. Contenders take turns, and who begins alternates, so
// that what the machine does meanwhile falls on both; ratios are taken within a
// round. The clock runs from the start of the process to the last record behind
// the high watermark (walstream) or to the end of the process (pg_recvlogical,
// which ends at the last row's LSN). A drain whose records are not all there
// once, told by the number in each payload, ends the run with an error. There is
// no verdict on time.
package main
