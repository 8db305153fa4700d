// Command takeover measures how soon a standby instance takes over: make takeover
// ROUNDS=20. It prints one JSON line on stdout and fails on a bad verdict.
//
//	writer ──> PostgreSQL ──> active ──> Kafka ──> read_committed consumer
//	(100/s)              └──> standby      kill -9 or SIGTERM of the active one
//
// Two instances with default settings, rows that never stop coming, both
// deliveries. A takeover is the time from the signal until a consumer has the
// first row that was written after the active instance was gone: only the
// standby can have published it. A fresh instance stands by before the next
// round, for long enough that its pauses have grown to their longest.
//
// At the end the topic is held against the table: nothing missing, nothing out of
// order, and nothing twice, but for kill -9 in at-least-once, where rows behind
// the last durable checkpoint may be (make crash proves that bound).
//
// All is on one machine: a killed process's sockets are closed at once. A machine
// that vanishes leaves its walsender until wal_sender_timeout, 15 s of walstream's
// own session, has run out.
package main
