// Command tables fuzzes outbox tables: tables nobody has thought of, their rows
// and what is done to them while walstream streams, on a real PostgreSQL and a
// real Kafka.
//
// A round is one database with a few tables, all on one slot. From its seed come
// their columns (every built-in type, arrays, domains, enums, ranges, composites),
// names that are legal and odd, partitions or none, a primary key or none; which
// column is key, value, header, topic, partition, timestamp and event id; topics
// from patterns and routes, headers spread from json, hstore and pairs, tombstones,
// JSON formats, envelopes, CloudEvents, idempotency keys; who makes the publication;
// and whether some rows are bad, to be left out or to become dead letters. One writer to a table inserts, alters, rolls back, truncates,
// attaches and detaches, while two walstreams stream, one in each delivery, and
// are stopped and killed.
//
//	writer --- INSERT ... RETURNING ---> the table      --> walstream x 2 --> topics
//	      `--- col::text of the same --> oracle (same transaction)              |
//	                  `--------------------- equal, one by one? <---------------'
//
// What a record must be is said by PostgreSQL: the statement that inserts rows
// writes their expected records into the table oracle, so what is rolled back is
// not expected. It shares no code with package outbox. A table has one writer, so
// its records are compared in order.
//
// The last line is JSON. -seed S runs the round of that seed first; what a writer
// does is decided by the seed alone, when it does it is not. A round that fails
// says the command that repeats it. That the judge sees faults is shown by planting
// them (TestPlantedFaults).
//
// What surprised us: pgoutput tells of a domain by the name of the type beneath
// it, as it was when the row was written; an identity column of a partitioned
// table needs PostgreSQL 17; SIGTERM kills a walstream that has only just begun; a
// broker says that a transaction is committed before read_committed consumers see
// it, so the judge waits until they do; of a composite whose members are NULL, IS
// NULL is true and its text is there.
package main
