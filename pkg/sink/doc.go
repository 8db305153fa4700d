// Package sink publishes events to Kafka and keeps the pipeline's checkpoint
// beside them. It is the only package that names the Kafka client.
//
//	Open ──> Kafka     lazy; Load reads the newest checkpoint and fences nobody
//	           │ NewClaim
//	           v
//	         Claim     Take lane 0, then lane 1: whoever owned it is fenced. Then
//	           │       Load is the checkpoint that counts; Write makes one
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
//	 loop ── Begin, Submit, End ──> front ──> schedule     one Kafka transaction:
//	  ^                                          │ Take    rows of whole PostgreSQL
//	  │                                          v         transactions, then the
//	  │                      committer: lane 0, lane 1, lane 0, ...  checkpoint
//	  │                        │ commit answered                │ promise
//	  └──────── Drain <──── Mailbox <───────────────────────────┘
//
// Read it in this order: front.go (the path of a row), idempotent.go;
// transactional.go, commit.go and lane.go (exactly-once), with package schedule,
// which decides what goes into which transaction; lookout.go (what a failure
// means); poison.go, judge.go, isolate.go and deadletter.go (rows that cannot become
// records), letters.go (what became of them); claim.go and tail.go (the checkpoint),
// finish.go and hanging.go (transactions that a broker has kept open),
// client.go (the options).
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
//   - A row that cannot become a record is one that its topic or a broker refuses for
//     itself: never a missing right, a fault of the cluster, or what was true a while
//     ago. It keeps its place, its ticket and its ordinal, whatever the policy makes
//     of it.
//   - A broker answers for a batch. Which row of it is bad is known only of one that
//     was refused with nothing else under way; no other is ever left out for it.
//   - A refusal is reported when the rows before it are answered and covered by a
//     checkpoint, so starting over and over in front of it doubles nothing.
//   - An error of a transaction is never resolved by guessing: the whole pipeline
//     goes back through its start order. No lane is ever initialised again alone.
//   - Nothing is read as counting or written before both lanes are owned, in order.
//   - Exactly-once: every transaction carries the checkpoint of where it ends; the
//     rules of the lanes and of splitting are package schedule's. After the first
//     failure nothing is produced or committed any more.
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
