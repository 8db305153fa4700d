// Command contest measures walstream beside others on the same work: make bench,
// bench-quick, bench-debezium, bench-latency, bench-growth, bench-compression. It
// prints one JSON line on stdout.
//
//	           ┌── slot of round 1 ──> walstream ──> Kafka ──> verified
//	           ├── slot of round 1 ──> Debezium  ──> Kafka ──> verified
//	rows ─ WAL ┤   slot of round 1 ──> pg_recvlogical ──> /dev/null
//	           └── ... each contender has a slot for each round
//
// All slots are made before the rows are written, so every drain reads the same
// WAL from the same place. Contenders take turns, and who begins alternates, so
// that what the machine does meanwhile falls on all; ratios are taken within a
// round. The clock runs from the start of the process to the last record behind
// the high watermark, or to the end of the process (pg_recvlogical, which ends at
// the last row's LSN). Topics are made anew for each drain. A drain whose records
// are not all there once, told by the number in each payload, does not count.
// There is no verdict on time.
//
//	contender.go  what a contender is; recvlogical.go, walstream.go, debezium.go
//	publish.go    the drain of whatever publishes; world.go, load.go  what in
//	latency.go    rows that are committed at a steady rate, and rest
//	quick.go full.go growth.go  who drains what; page.go, picture.go  what is shown
package main
