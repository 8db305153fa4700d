// Package pgtypes lists PostgreSQL's types with values of each, for tests: those
// of the mapping, which try each type by itself, and bench/tables, which draws
// from them.
//
// A type that a new release brings is found by pkg/outbox's test of all types and
// belongs here. Values are literals that every supported server takes; what only
// newer ones take (an infinite interval) is added where the server is known.
package pgtypes
