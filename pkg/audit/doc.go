// Package audit proves, against the servers as they are, that what was committed
// to the outbox table is in Kafka: nothing missing, nothing twice, in order, and
// transactions whole. It is what walstream audit runs, beside a pipeline that
// goes on streaming, and it changes nothing on either side.
//
//	table ── one snapshot, the stream's own mapping ──> rows ─────┐
//	                                                              v
//	checkpoint ── waited for: does it cover the snapshot? ──> what is due
//	                                                              v
//	topics ── read_committed, to their ends of then ──> records ─> judge ──> Result
//	dead letters ── likewise, all of them ──> letters ─────────────^
//
// Read it in this order: audit.go (Run), judge.go and group.go (what is compared),
// scan.go (order, transactions), live.go (what is due), table.go, topics.go and
// letters.go.
//
// What is checked, and by what:
//
//   - Missing: a row that is due and has no record. Row and record are matched by
//     event id (header walstream-event-id). In a table without one that header is
//     the position, which the table does not have: then rows are matched by
//     topic, key and value, and of rows alike in these only the number counts.
//   - Due: every row, when the checkpoint covers where the WAL ended when the
//     table was read; that is waited for (Config.Wait), and needs a running
//     pipeline. Else rows whose xid is below the slot's catalog_xmin. The others
//     are "not due", which is neither found nor wrong.
//   - Duplicate: two records of one event, that is of one position. Allowed when
//     two instances wrote them in at-least-once delivery, which different producer
//     ids outside of Kafka transactions tell; whether it was a crash that excuses
//     it an audit cannot know. An event id at two positions with one content is a
//     duplicate too; with another content the id is in use again (counted, no
//     fault).
//   - Reordered: within topic, partition and key, the first records of the events
//     stand in the order of their positions (timeline, commit LSN, ordinal). This
//     is walstream's own word for the commit order; the table has none. Keys in
//     several partitions have no order to be checked across (counted, no fault),
//     and records without a key none at all.
//   - Torn: of rows with one xmin, hence of one transaction, some are in the topics
//     and some are missing. xmin is that of the last update: where rows of one xmin
//     have different commit LSNs they were updated together, and nothing is
//     concluded. And from the topics alone: ordinals of one commit LSN run from 1
//     without a gap. A gap proves something only where no other table is in the
//     publication, no topic forgets or was left out, and the checkpoint covers the
//     transaction; else it is counted as a hole, no fault. An event missing at the
//     end of a transaction leaves no gap: only its row can tell.
//   - Altered: the record has not the topic, key and value that the row has now.
//   - Replayed: a record with the header walstream-replay is what somebody has
//     published once more. Its row is there; it is neither a duplicate nor out of
//     order. Where a row has no other record, its ordinal is not to be had, and holes
//     of ordinals prove nothing.
//   - Put aside: a row that is not in the topics, and is a dead letter. That is its
//     place, so nothing is wrong with it, nor with its transaction; one that was
//     published after all (walstream dead-letters retry, or a crash between the two
//     in at-least-once delivery) is found, and counted as such. In a table without
//     event ids letter and row are matched by topic, key and value too, which a
//     letter that is not whole, or that was retried to another topic, does not have.
//   - Rows left out by the policy skip, or by walstream skip, are missing: nothing in
//     Kafka is left of them, and walstream's log alone says that it was on purpose.
//   - Records without a row are counted as "no longer in the table": retention
//     deletes, and that is not wrong. So a record that ought not to be there cannot
//     be told from one whose row is gone.
//
// A topic that forgets, by retention or compaction, does not make rows missing:
// without a lower bound of the range, rows that are not found are "forgotten" when
// they were made (created_at, or Config.TimeColumn) no later than ten minutes after
// the oldest record of the partition that has forgotten most, or have no time. With
// a lower bound it is the user's word that the topics reach back to it. A row that
// has no record has no LSN; in a range of LSNs it counts when its time, or id, lies
// among those of the rows found.
//
// Memory: Config.Memory bounds the whole, whatever the size of table and topics.
// Half of it is the four sorters' (sorter.go: an external merge sort), the rest is
// for the clients' buffers and for garbage. A row and its record are 84 bytes each,
// and what is derived from them another 100, which go to unnamed temporary files
// when they do not fit: about 270 bytes of disk for a row, and more for the while
// that there are more runs to be merged than memory to read them through (beyond
// some 1,000 million rows with the default of 256 MiB). Beside that there are one
// name for each topic, at most 10,000, and five examples of each kind of fault,
// which are kept by ctid and offset and looked up at the end.
//
// What it costs: one sequential read of the range, in one snapshot, which holds
// back vacuum like a dump does while it lasts, and one read of the topics: whole,
// or, for ranges with a lower bound, from ten minutes before the first row of the
// range was made. Should rows be missing then, the topics are read whole before
// that is said.
//
// Invariants:
//   - no row is called missing that an acknowledged, visible record may stand for:
//     the table is read first, then the checkpoint, then the ends of the topics.
//   - an error is no verdict, and a verdict is never guessed: what cannot be judged
//     is counted under the reason.
//   - imports: sink, replication, outbox, checkpoint, decode; nothing below imports
//     this package. Connections are replication's and sink's.
//
// What surprised us: right after a Kafka commit was answered, its markers may not
// have reached all partitions, so the last stable offset of a topic can lie before
// records that the checkpoint covers; hence ends are high watermarks, and open
// transactions below them are waited for. An idle server's insert position can lie
// behind the header of a page that has no record yet, where no checkpoint will ever
// come to. And the position of an open transaction's unflushed rows neither.
package audit
