package sink

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Kafka is the way into a cluster for one pipeline. It reads and asks; writing
// takes a Claim.
type Kafka struct {
	cfg    Config
	log    zerolog.Logger
	client *kgo.Client // asks; produces nothing
	conns  connections
	stuck  atomic.Pointer[string] // why rows wait although brokers answer; nil when none does
	// registry is why rows wait for their schema; nil when none does.
	registry atomic.Pointer[string]
	// patience with a transaction on the checkpoint topic that is not ours.
	patience time.Duration
}

// Open checks the configuration. It does no I/O: the first request connects.
func Open(cfg Config) (*Kafka, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	k := &Kafka{cfg: cfg, log: cfg.Logger, patience: TransactionTimeout + brokerAbortInterval}
	if k.cfg.Seen == nil {
		k.cfg.Seen = NewSeen()
	}
	client, err := k.newClient(append(k.common(nil), kgo.RetryTimeout(askTimeout)))
	if err != nil {
		return nil, err
	}
	k.client = client
	if cfg.SASLMechanism == "PLAIN" && cfg.TLS == nil && k.cfg.Seen.tell("plain") {
		k.log.Warn().Msg("SASL PLAIN without TLS sends the password in clear")
	}
	return k, nil
}

// brokerAbortInterval is how often a broker looks for transactions past their
// time-out (transaction.abort.timed.out.transaction.cleanup.interval.ms).
const brokerAbortInterval = 10 * time.Second

// Trouble is why rows wait: a topic that cannot be written, or why the last
// connection to a broker failed. Empty when neither is known.
func (k *Kafka) Trouble() string {
	if why := k.stuck.Load(); why != nil {
		return *why
	}
	if why := k.registry.Load(); why != nil {
		return *why
	}
	return k.conns.last()
}

// Close ends the connections. Claims are closed by their owner.
func (k *Kafka) Close() { k.client.Close() }

// Load returns the newest committed checkpoint, whoever writes at the moment. It
// fences nobody and creates nothing; a missing topic is a missing checkpoint.
func (k *Kafka) Load(ctx context.Context) (checkpoint.Record, bool, error) {
	topic := k.cfg.checkpointTopic()
	_, found, err := k.lookUpOne(ctx, topic)
	if err != nil {
		return checkpoint.Record{}, false, k.explain(err, "read the checkpoint", rightDescribe, topicResource(topic))
	}
	if !found {
		return checkpoint.Record{}, false, nil
	}
	return k.newest(ctx, nil)
}

var _ checkpoint.Store = (*Kafka)(nil)
