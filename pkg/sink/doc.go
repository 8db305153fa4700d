// Package sink publishes events to Kafka and keeps the pipeline's checkpoint
// beside them. It is the only package that names the Kafka client.
//
//	Open ──> Kafka     lazy; Load reads the newest checkpoint and fences nobody
//	           │ Claim   makes the checkpoint topic, takes the transactional ids
//	           v         of lane 0, then lane 1: whoever held them is fenced
//	         Claim     Load is the checkpoint that counts; Write makes one
//	           │ NewIdempotent
//	           v
//	         Idempotent  at-least-once:
//
//	 loop ── Submit ──> arena (copy) ── topic known? ──> data client ──> brokers
//	  ^  ── Checkpoint ──> committer ── transaction on lane 0 ──> checkpoint topic
//	  │                        │                             promise │
//	  └──────── Drain <──── Mailbox <──────────────────────────────-─┘
//
// Invariants:
//   - An acknowledgement means that all in-sync replicas have the record.
//   - Only a refusal fails a record. A broker that is down or short of replicas
//     is waited for, for ever; whether that is healthy is decided elsewhere.
//   - The first failure stops everything: all records share one context, and the
//     promise that sees the failure cancels it.
//   - An error of a checkpoint's transaction is never resolved by guessing: the
//     whole pipeline goes back through its start order. No lane is ever
//     initialised again alone.
//   - After Close no acknowledgement is reported.
//
// What surprised us: franz-go goes on, with a new epoch, with what it has buffered
// behind a refused record. Thirty aborted transactions hide the last committed
// record sixty offsets back, and carry no records a consumer could see: the end
// of the checkpoint topic can only be known by offsets. A producer that is cut
// off and one whose transaction timed out get the same INVALID_PRODUCER_EPOCH.
package sink
