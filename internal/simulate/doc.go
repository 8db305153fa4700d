// Command simulate runs the simulation of package pipeline over many seeds, or
// shows that the simulation finds bugs:
//
//	simulate -seeds 100000 [-seed 1]    TestSimulation, on all processors
//	simulate -bugs [-seeds 10000]       for every patch of pkg/pipeline/testdata/bugs:
//	                                    copy ── git apply ── build ── seeds until one fails
//
// The copy has the tracked files as they are in the work tree, so a change that
// is not committed is tested too. A patch changes the product's code where the
// simulation drives it (core, checkpoint), and the model where it does not (the
// order of a start, the sinks): its first lines say what is wrong and which of
// the two it is.
//
// Either prints one JSON line on stdout, all else on stderr, and fails on a bad
// verdict: a seed that failed, a bug that was not found.
package main
