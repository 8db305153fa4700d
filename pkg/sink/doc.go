// Package sink publishes events to Kafka and keeps the pipeline's checkpoint
// beside them. It is the only package that names the Kafka client.
//
//	Open ──> Kafka     lazy; Load reads the newest checkpoint and fences nobody
//	           │ Claim   makes the checkpoint topic, takes the transactional ids
//	           v         of lane 0, then lane 1: whoever held them is fenced
//	         Claim     Load is the checkpoint that counts; Write makes one
//	           │ NewIdempotent                    │ NewTransactional
//	           v                                  v
//	         Idempotent  at-least-once:         Transactional  exactly-once, below
//
//	 loop ── Submit ──> front: copy; topic known? ──> data client ──> brokers
//	  ^                                  │ no: wait                      │
//	  │                                  v                               │
//	  │                               lookout: what is the topic like?   │
//	  │                               what does this failure mean?       │
//	  │  ── Checkpoint ──> committer ── transaction on lane 0 ──> topic  │
//	  │                        │                                 promise │
//	  └──────── Drain <──── Mailbox <────────────────────────────────────┘
//
//	 loop ── Begin, Submit, End ──> front ──> backlog      one Kafka transaction:
//	  ^                                          │ take    rows of whole PostgreSQL
//	  │                                          v         transactions, then the
//	  │                      committer: lane 0, lane 1, lane 0, ...  checkpoint
//	  │                        │ commit answered                │ promise
//	  └──────── Drain <──── Mailbox <───────────────────────────┘
//
// Read it in this order: front.go (the path of a row), idempotent.go;
// transactional.go, backlog.go, commit.go and lane.go (exactly-once); lookout.go
// (what a failure means), claim.go and tail.go (the checkpoint), client.go (the
// options).
//
// Invariants:
//   - An acknowledgement means that all in-sync replicas have the record.
//   - Only a refusal fails a record. A broker that is down or short of replicas
//     is waited for, for ever; whether that is healthy is decided elsewhere.
//   - Rows go to the client in the order of the stream. What can be known before
//     sending (the topic, its limit, its partitions) is checked then, and nothing
//     behind a row so refused is sent.
//   - What a broker refuses after all ends everything: all records share one
//     context, which is cancelled before the client takes up what it has buffered
//     behind.
//   - A refusal is reported when the rows before it are answered and covered by a
//     checkpoint, so starting over and over in front of it doubles nothing.
//   - An error of a transaction is never resolved by guessing: the whole pipeline
//     goes back through its start order. No lane is ever initialised again alone.
//   - Exactly-once: every transaction carries the checkpoint of where it ends. A
//     lane begins when the other one's commit was answered with success; the first
//     transaction after a start runs on lane 0. After the first failure nothing is
//     produced or committed any more.
//   - A Kafka transaction ends inside a PostgreSQL transaction only when its time
//     is up. Until that one is complete, nothing else is written.
//   - After Close no acknowledgement is reported. Close waits for goroutines, and
//     for a broker at most half a second, to abort what is open.
//
// What surprised us: franz-go goes on, with a new epoch, with what it has buffered
// behind a refused record. It fails records for a connection that is cut at its
// first byte, as a starting broker's is, unless told otherwise. Thirty aborted
// transactions hide the last committed record sixty offsets back, and carry no
// records a consumer could see: the end of the checkpoint topic can only be known
// by offsets. A producer that is cut off and one whose transaction timed out get
// the same INVALID_PRODUCER_EPOCH. A context does not end a produce request that
// is under way; only closing the client does. The first transaction of a client
// may be taken for empty, aborted, and reported as committed (lane.commit). And it
// may give itself a new epoch inside a transaction, which aborts the first half of
// it and would let the second be committed (errNewProducer).
package sink
