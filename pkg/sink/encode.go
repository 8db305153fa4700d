package sink

import (
	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/walstream/walstream/pkg/outbox"
)

// Topics that walstream keeps for itself, one of each per pipeline.
const (
	checkpointPrefix = "walstream.checkpoints."
	historyPrefix    = "walstream.history."
	deadPrefix       = "walstream.dead-letters."
	controlPrefix    = "walstream.control."
)

// batchOverhead is the header of a record batch as the broker counts it against
// max.message.bytes.
// https://kafka.apache.org/documentation/#recordbatch
const batchOverhead = 61

// recordSize is what the event takes alone in a batch, uncompressed: what the
// broker compares with the topic's max.message.bytes.
func recordSize(e *outbox.Event) int {
	n := 1 + 1 + 1 + // attributes, timestamp delta 0, offset delta 0
		field(len(e.Key)) + field(len(e.Value)) + kbin.VarintLen(int32(len(e.Headers)))
	for i := range e.Headers {
		n += field(len(e.Headers[i].Key)) + field(len(e.Headers[i].Value))
	}
	return batchOverhead + kbin.VarintLen(int32(n)) + n
}

// field is a length and so many bytes. (Null takes the length -1: as short as 0.)
func field(n int) int { return kbin.VarintLen(int32(n)) + n }

// MayPublishTo tells whether rows may go to a topic of that name at all.
func MayPublishTo(topic string) bool { return outbox.CheckTopic(topic) == nil }
