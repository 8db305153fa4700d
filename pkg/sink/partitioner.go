package sink

import "github.com/twmb/franz-go/pkg/kgo"

// partitioner sends a record to the partition it names; one with a key where
// Kafka's Java client would send it (murmur2 of the key); one without a key to
// the partition of the batch being filled.
type partitioner struct{ keyed kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.keyed.ForTopic(topic)}
}

type topicPartitioner struct{ kgo.TopicPartitioner }

// RequiresConsistency: a keyed or explicit record never goes to another
// partition because its own is without a leader.
func (t topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || t.TopicPartitioner.RequiresConsistency(r)
}

func (t topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition) // beyond n is refused by the caller
	}
	return t.TopicPartitioner.Partition(r, n)
}

func (t topicPartitioner) OnNewBatch() {
	if next, ok := t.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		next.OnNewBatch()
	}
}
