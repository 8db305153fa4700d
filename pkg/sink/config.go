package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/registry"
)

// Config of the connection to Kafka and of what walstream may do there.
type Config struct {
	Brokers  []string
	ClientID string
	// TLS is asked for at each connect, so that renewed files need no restart; nil:
	// connections are in clear.
	TLS func() (*tls.Config, error)
	// SASLMechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or
	// AWS_MSK_IAM; empty for none. SASLUser is what the first three log in as.
	SASLMechanism, SASLUser string
	// Credentials of a login are asked for at each.
	Credentials func(ctx context.Context) (Credentials, error)

	Pipeline    string
	Compression string // none, lz4, zstd, snappy or gzip
	// MaxInFlight is the ledger's window. The Kafka client's own bound is set well
	// above it, so that Submit never waits.
	MaxInFlight checkpoint.Limits

	CreateTopics           bool
	TopicPartitions        int32 // -1: the broker's default
	TopicReplicationFactor int16 // -1: the broker's default
	TopicConfigs           map[string]string

	// Topics that rows go to, as far as known before the first row.
	Topics []string
	// TopicsAllowed are patterns of the topics that rows may go to, with * and ?;
	// empty: all but internal ones and walstream's own.
	TopicsAllowed []string
	// HistoryRetention is for how long the history topic says which rows were
	// published; 0: none is kept.
	HistoryRetention time.Duration
	// OnPoison decides on rows that cannot become records.
	OnPoison Policy
	// PoisonLimit is how many bad rows in a row OnPoison lets pass, of a topic or of
	// all; 0: any number.
	PoisonLimit int
	// OneShot decides on some of them otherwise; nil: it does not.
	OneShot *OneShot

	// Registry has the schemas of events that name one; nil: none does.
	Registry *registry.Registry

	// Seen remembers topics beyond the life of one Kafka; nil: not beyond it.
	Seen *Seen

	Version string
	Logger  zerolog.Logger
	// Metrics count what the clients see; may be nil.
	Metrics *ClientMetrics
	// OnCommit is told of each Kafka commit with rows, by the goroutine that makes
	// them: it must not wait. nil: nobody traces, and nothing is kept for it.
	OnCommit func(*Commit)
	// DialContext replaces the dialer, for tests; TLS is laid over it.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// TransactionTimeout after which the broker aborts a transaction of ours that
// was left open. It bounds for how long a vanished instance can hide records
// of others, and must outlast a restart of a broker.
const TransactionTimeout = 30 * time.Second

// pipelinePattern keeps topic names and transactional ids valid.
var pipelinePattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

var compressions = map[string]func() kgo.CompressionCodec{
	"none": kgo.NoCompression, "lz4": kgo.Lz4Compression, "zstd": kgo.ZstdCompression,
	"snappy": kgo.SnappyCompression, "gzip": kgo.GzipCompression,
}

// normalize fills defaults and reports every fault at once.
func (c *Config) normalize() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(c.Brokers) == 0 {
		fault("no kafka brokers given")
	}
	if c.Compression == "" {
		c.Compression = "none"
	}
	if _, ok := compressions[c.Compression]; !ok {
		fault("kafka compression %q: allowed are none, lz4, zstd, snappy, gzip", c.Compression)
	}
	switch {
	case !pipelinePattern.MatchString(c.Pipeline):
		fault("pipeline %q: letters, digits and ._- are allowed", c.Pipeline)
	case len(c.deadLetterTopic()) > outbox.MaxTopicName:
		fault("pipeline %q is too long: topic %q exceeds %d characters", c.Pipeline, c.deadLetterTopic(), outbox.MaxTopicName)
	}
	if c.MaxInFlight.Events < 1 || c.MaxInFlight.Bytes < 1 {
		fault("max in flight: at least 1 event and 1 byte, not %d and %d", c.MaxInFlight.Events, c.MaxInFlight.Bytes)
	}
	if c.TopicPartitions == 0 {
		c.TopicPartitions = -1
	}
	if c.TopicReplicationFactor == 0 {
		c.TopicReplicationFactor = -1
	}
	if c.TopicPartitions < -1 || c.TopicReplicationFactor < -1 {
		fault("topic partitions %d and replication factor %d: positive, or -1 for the broker's default", c.TopicPartitions, c.TopicReplicationFactor)
	}
	if c.ClientID == "" {
		c.ClientID = "walstream"
	}
	switch c.OnPoison {
	case "":
		c.OnPoison = Stop
	case Stop, DeadLetter, Skip:
	default:
		fault("policy for bad rows %q: allowed are stop, dead-letter, skip", c.OnPoison)
	}
	if c.HistoryRetention < 0 {
		fault("retention of history %s: 0 or more", c.HistoryRetention)
	}
	if c.PoisonLimit < 0 {
		fault("limit of bad rows %d: 0 or more", c.PoisonLimit)
	}
	for _, pattern := range c.TopicsAllowed {
		if _, err := path.Match(pattern, ""); err != nil {
			fault("pattern %q of topics allowed: %w", pattern, err)
		}
	}
	if _, err := c.login(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c *Config) checkpointTopic() string { return checkpointPrefix + c.Pipeline }

func (c *Config) controlTopic() string { return controlPrefix + c.Pipeline }

func (c *Config) deadLetterTopic() string { return DeadLetterTopic(c.Pipeline) }

// DeadLetterTopic of a pipeline.
func DeadLetterTopic(pipeline string) string { return deadPrefix + pipeline }

func (c *Config) transactionalID(lane int) string {
	return fmt.Sprintf("walstream.%s.%d", c.Pipeline, lane)
}
