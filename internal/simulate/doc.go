// Command simulate runs the simulation of package pipeline over many seeds, or
// that of the whole service, or shows that the simulation finds bugs:
//
//	simulate -seeds 100000 [-seed 1]    TestSimulation, on all processors
//	simulate -virtual -seeds 1000       TestVirtual of internal/virtual: the whole service
//	simulate -bugs [-seeds 10000]       for every patch of pkg/pipeline/testdata/bugs:
//	                                    copy ── git apply ── build ── seeds until one fails
//
// The copy has the tracked files as they are in the work tree, so a change that
// is not committed is tested too. A patch changes the product's code, which the
// simulation drives (core, checkpoint, the order of a start, the exactly-once
// sink's schedule); only what the Kafka client itself could do wrong is planted in
// the model. Its first line says what is wrong and which of the two it is.
//
// Either prints one JSON line on stdout, all else on stderr, and fails on a bad
// verdict: a seed that failed, a bug that was not found.
package main
