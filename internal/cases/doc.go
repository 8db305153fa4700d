// Package cases holds the field cases: what goes wrong when people stream an
// outbox to Kafka, each tried on the real binary between a real PostgreSQL and a
// real broker. Its tests are named after the cases (TestC01..., TestC03...) and
// share one rig: a table, a writer, a reader of the topic, and faults.
//
// By default time-outs are scaled down; WALSTREAM_CASES=full (make cases) runs
// them at their full length.
package cases
