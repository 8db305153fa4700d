// Command latency measures how long a row takes from its INSERT to a
// read_committed consumer, in both deliveries: make bench-latency. It prints one
// JSON line on stdout.
//
//	8 sessions ──> PostgreSQL ──> walstream ──> Kafka ──> consumer
//	clock_timestamp() in each row                         its clock, the same machine
//
// Single-row transactions of 1 KB come at a steady rate; the clock is read inside
// the INSERT, so its commit is part of the time. The first seconds of a run do not
// count: the broker's virtual machine warms up. Deliveries take turns at each
// rate. A run of which not every row arrived once ends with an error; there is no
// verdict on time.
package main
