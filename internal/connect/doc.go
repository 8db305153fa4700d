// Package connect runs Kafka Connect with Debezium's PostgreSQL connector and its
// outbox event router, for tests and benchmarks: what people move from, or back
// to, and what walstream is measured against.
//
//	testenv's PostgreSQL --slot--> [ Connect 4.3.0, one worker: Debezium 3.6.1 ] --> testenv's Kafka
//	                                    ^ REST: PUT config, stop, resume, offsets
//
// The worker is a distributed one, with a group of its own: it keeps connectors
// and offsets in Kafka, as in production, so it can be stopped, killed and started
// again, and it is the only kind that does exactly-once. Java comes from this
// machine, the jars from Maven, cached by testenv.
//
// Invariants: a worker is gone with its process; what Start returns can be stopped
// and started, any number of times, under the same address.
//
// What surprised us: the connector says RUNNING long before it reads from the
// slot, so WaitStreaming asks PostgreSQL; a stopped connector confirms nothing
// more, so the slot is where the last periodic flush left it; and stored offsets
// can be read and removed through REST, but only of a stopped connector.
package connect
