// Package history says which rows were published over which stretch of the WAL:
// what maps an LSN, or a time, to the row ids from which on a table has to be read
// again. It is pure: the sink writes and reads the topic.
//
//	rows  --Tally-->  Open (in every checkpoint)  --closed, a minute or 64 MB later-->  Bucket
//
// Invariants: a bucket ends where a transaction does, and the next one begins
// there, also over a crash, since the unfinished one travels in the checkpoint that
// covers it; what a checkpoint covers and no bucket has is in its Open. So the least
// id of all buckets that end beyond X is not above that of any row committed at or
// beyond X, although ids do not rise in the order of commits.
//
// What surprised us: commit times do not rise with the LSN either, so a bucket keeps
// the least and the greatest.
package history
