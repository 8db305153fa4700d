// Package decode turns the bytes of a logical replication stream into
// transactions. It is a leaf: no goroutine, no clock, no I/O.
//
//	CopyData payload --ParseFrame--> Frame --Assembler.Next--> Begin, Row*, Commit
//
// Invariants: every read is bounds-checked; nothing is allocated in proportion
// to a length the stream merely claims; the bytes of a Row alias the frame and
// live until the next one; a known kind that is not published is counted, an
// unknown one stops the stream.
//
// What surprised us: in logical decoding both LSNs of an XLogData are equal and
// name the record, a Relation carries 0/0 (as do a Type, and the Begin of a
// transaction with an origin), and only a keepalive tells how far the server has
// sent. Begin already carries the commit LSN. The commit time of a transaction
// with an origin is the origin's, so commit times do not rise. With
// publish_via_partition_root the leaf's layout is described as well as the root's.
package decode
