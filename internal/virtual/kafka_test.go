package virtual

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	brokerPorts     = []int{9092, 9093, 9094}
	brokerAddresses = []string{"127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"}
)

// producers are what is seen of them in requests.
type producers struct {
	began  map[int64]time.Time // those without transactions, and when each was first heard of
	epochs map[int64]int16     // the newest of each with transactions
}

func (w *world) startKafka() (err error) {
	w.kafka, err = kfake.NewCluster(kfake.Ports(brokerPorts...), kfake.ListenFn(w.network.Listen),
		kfake.SeedTopics(partitions, topicName),
		// The judge wants to read every checkpoint there was.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "2000000000"}))
	if err != nil {
		return err
	}
	w.producers = producers{began: map[int64]time.Time{}, epochs: map[int64]int16{}}
	w.kafka.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.EndTxn}, Count: -1, Observe: true, When: w.watchProducers},
		// kfake lets a producer go on that was fenced long ago; Kafka does not.
		kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Count: -1, Err: kerr.ProducerFenced, When: w.isStale},
	)
	return nil
}

func (w *world) watchProducers(request kmsg.Request) bool {
	const producerID, producerEpoch = 43, 51 // their places in a batch
	w.mu.Lock()
	defer w.mu.Unlock()
	newest := func(id int64, epoch int16) { w.producers.epochs[id] = max(w.producers.epochs[id], epoch) }
	switch r := request.(type) {
	case *kmsg.EndTxnRequest:
		newest(r.ProducerID, r.ProducerEpoch)
	case *kmsg.ProduceRequest:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if len(p.Records) <= producerEpoch+2 {
					continue // taken already
				}
				id := int64(binary.BigEndian.Uint64(p.Records[producerID:]))
				if r.TransactionID != nil {
					newest(id, int16(binary.BigEndian.Uint16(p.Records[producerEpoch:])))
				} else if _, known := w.producers.began[id]; !known {
					w.producers.began[id] = time.Now()
				}
			}
		}
	}
	return true
}

func (w *world) isStale(request kmsg.Request) bool {
	r := request.(*kmsg.InitProducerIDRequest)
	w.mu.Lock()
	newest := w.producers.epochs[r.ProducerID]
	w.mu.Unlock()
	if r.TransactionalID != nil {
		w.tell("  Kafka is asked to initialise %s, as producer %d with epoch %d; the newest is %d", *r.TransactionalID, r.ProducerID, r.ProducerEpoch, newest)
	}
	return r.ProducerID >= 0 && r.ProducerEpoch < newest
}
