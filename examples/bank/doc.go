// Command bank shows walstream at work: a bank that makes deposits, its outbox,
// and the real walstream binary that brings them to Kafka.
//
//	make demo               # until Ctrl-C
//	make demo EVENTS=5000   # ends by itself, with one JSON line on stdout
//
//	writers ──deposit──> PostgreSQL ──WAL──> walstream ──> Kafka ──> reader
//	(load.go)            accounts, outbox    (a child)     deposits  (reader.go)
//	    └────────── the verdict: every committed event against every record ──┘
//
// deposit.go is the part to copy into a service: the balance and the event that
// tells of it change in one transaction. demo.go is the story from start to end.
//
// Without addresses the demo brings its own servers: a real PostgreSQL, fetched
// at the first run, and franz-go's in-process Kafka. With -postgres and
// -kafka-brokers (or WALSTREAM_POSTGRES and WALSTREAM_KAFKA_BROKERS) it uses
// those, makes a database and topics of its own there, refuses to touch what was
// there before, and removes what it made.
//
// The verdict trusts nobody: it compares a SELECT of the outbox with a fresh
// consumer that reads every partition to its end, by event id, and looks at each
// account's deposits in the order of its partition. A missing or doubled event,
// one that nobody committed, or one out of order ends the demo with exit code 1.
//
// What surprised us: rows from before the slot was made are not published, so
// the first deposit waits until walstream streams; and the first one also makes
// its topic, so it is left out of the latency figures.
package main
