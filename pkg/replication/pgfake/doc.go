// Package pgfake is a PostgreSQL server in memory, as far as walstream can see
// one: it speaks the wire protocol over any net.Listener, keeps a WAL with
// transactions of one outbox table, slots and publications, and can be crashed,
// stopped and stalled. It never touches a real clock, file or socket, so the
// whole service runs against it inside a testing/synctest bubble.
//
//	Commit, Other ──> wal        transactions, and gaps of other tables
//	                   │
//	listener ──> session ──┬── ordinary: statements.go knows each statement that
//	                       │   package replication sends, and no other
//	                       └── walsender: START_REPLICATION, pgoutput, keepalives,
//	                           status updates ──> slot.confirmed ──> OnConfirm
//
//	Crash, Stop, Start, Stall, LoseAnswer    what happens to servers
//
// It behaves as was observed on PostgreSQL 15 and 18:
//   - a start from before the slot's confirmed position is moved forward in
//     silence;
//   - a transaction comes again unless its end was confirmed: its commit's own LSN
//     does not do;
//   - other tables' traffic shows as keepalives only; one within a transaction
//     names a place before its commit;
//   - a walsender that hears nothing asks after half of wal_sender_timeout and
//     leaves after the whole; until then the slot is busy (55006), whatever became
//     of the client;
//   - a confirmed position is written down now and then only: after a crash an
//     older one counts;
//   - a fast shutdown tells ordinary sessions at once (57P01), and waits until each
//     walsender's client has read and confirmed everything.
//
// Left out: everything that walstream does not ask for. A statement that
// statements.go does not have is told to Config.Unknown and refused.
package pgfake
