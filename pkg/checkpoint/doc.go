// Package checkpoint keeps progress: what is in flight (Ledger), what a previous
// run has published (Resume), whether checkpoint, slot and server still fit
// together (Compare), and the durable record of it (Record). All of it is pure;
// the record is stored by the sink, beside the records it covers.
//
// The one invariant: no LSN is confirmed to PostgreSQL before a durable
// checkpoint covers it. So a slot ahead of its checkpoint was touched by
// somebody else, and Compare stops.
//
// What surprised us: a restored disk snapshot has the same system identifier,
// timeline and xids as the server it was taken from, and its new rows have
// commit LSNs below the published ones. That is why Resume wants to meet the
// checkpoint's own transaction instead of comparing LSNs. After a lost tail the
// slot still stands before the switch point, so the transactions between come
// again, and none of them is the checkpoint's: that edge has no XID to meet. And
// a row acknowledged twice does no harm until it stands in for another, so the
// Ledger adds up receipts instead of remembering rows.
package checkpoint
