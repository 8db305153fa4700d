// Command micro holds the micro-benchmarks' allocations and bytes per operation
// against recorded ones: make bench-gate, a part of make ci. More than recorded
// fails, and so does a benchmark that is gone; seconds are not looked at. Less is
// said: make bench-micro BASELINE=1 records anew.
//
// Every benchmark runs so often as it did when it was recorded, on one processor,
// so the figures are the same on any machine with the same Go.
package main
