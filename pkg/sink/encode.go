package sink

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/walstream/walstream/pkg/outbox"
)

// Topics that walstream keeps for itself, one of each per pipeline.
const (
	checkpointPrefix = "walstream.checkpoints."
	historyPrefix    = "walstream.history."
	deadPrefix       = "walstream.dead-letters."
)

// maxTopicName is Kafka's: a topic is a directory name with a suffix.
const maxTopicName = 249

// batchOverhead is the header of a record batch as the broker counts it against
// max.message.bytes.
// https://kafka.apache.org/documentation/#recordbatch
const batchOverhead = 61

// clientBatchOverhead: franz-go counts the four bytes of the length before the
// batch too.
const clientBatchOverhead = batchOverhead + 4

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

// checkTopicName refuses, before any broker is asked, a name that Kafka would
// refuse, or that must not be written from a row. Case is kept.
func checkTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the topic name is empty: check the topic column or pattern")
	case name == "." || name == "..":
		return fmt.Errorf("the topic name %q is not allowed by kafka", name)
	case len(name) > maxTopicName:
		return fmt.Errorf("the topic name has %d bytes, kafka allows %d", len(name), maxTopicName)
	case strings.HasPrefix(name, "__"):
		return fmt.Errorf("topics beginning with __ are kafka's own")
	case strings.HasPrefix(name, checkpointPrefix), strings.HasPrefix(name, historyPrefix), strings.HasPrefix(name, deadPrefix):
		return fmt.Errorf("the topic is walstream's own bookkeeping")
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("the topic name holds %q: kafka allows ASCII letters, digits and ._-", name)
		}
	}
	return nil
}
