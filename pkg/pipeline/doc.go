// Package pipeline joins PostgreSQL and Kafka. It is the only package that knows
// both ends, and the place to read how an event travels:
//
//	supervise.go  one attempt after the other, the pause between two, the stop
//	pause.go      what an operator's walstream pause makes of an attempt
//	order.go      the order of every start
//	run.go        what one attempt holds, and its steps; server.go asks PostgreSQL
//	loop.go       the select: frames, acknowledgements, ticks, the session
//	core.go       what each of them means; no socket, no clock, no goroutine
//	pacer.go      when a status update or a probe is due
//	classify.go   which error is tried again, waited out, or shown to a person
//	progress.go   the picture of it all that others read
//
// Invariants: one goroutine, the loop, owns the core, the pacer and the socket's
// write half. It never waits for the broker: while the window is full it takes no
// frames, and goes on sending statuses. No LSN is confirmed before a durable
// checkpoint covers it. There is one way to start, so recovery has no code of its
// own.
//
// core.go and pacer.go import neither package replication nor sink; see
// docs/decisions/0002. The simulation (sim_*_test.go) drives the core, the order of
// a start and the exactly-once sink's schedule, all as they are, against a model
// server and a model broker; see docs/decisions/0005.
//
// What surprised us: the end of the WAL has to be read again once the slot is
// held, or the checkpoint of an instance that has just left seems to lie in the
// future; and the slot has to be read before the checkpoint, or an instance at
// work seems to be ahead of its own.
package pipeline
