package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Config of the connection to Kafka and of what walstream may do there.
type Config struct {
	Brokers  []string
	ClientID string
	TLS      *tls.Config
	// SASLMechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty for none.
	SASLMechanism, SASLUser, SASLPassword string

	Pipeline    string
	Compression string // none, lz4, zstd, snappy or gzip
	// MaxInFlight is the ledger's window. The Kafka client's own bound is set well
	// above it, so that Submit never waits.
	MaxInFlight checkpoint.Limits

	CreateTopics           bool
	TopicPartitions        int32 // -1: the broker's default
	TopicReplicationFactor int16 // -1: the broker's default

	// Seen remembers topics beyond the life of one Kafka; nil: not beyond it.
	Seen *Seen

	Version string
	Logger  zerolog.Logger
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
	case len(c.checkpointTopic()) > maxTopicName:
		fault("pipeline %q is too long: topic %q exceeds %d characters", c.Pipeline, c.checkpointTopic(), maxTopicName)
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
	if _, err := c.login(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c *Config) checkpointTopic() string { return checkpointPrefix + c.Pipeline }

func (c *Config) transactionalID(lane int) string {
	return fmt.Sprintf("walstream.%s.%d", c.Pipeline, lane)
}

// String keeps the password out of whatever prints the configuration.
func (c Config) String() string {
	type plain Config // without this method
	if c.SASLPassword != "" {
		c.SASLPassword = "***"
	}
	c.Logger = zerolog.Logger{}
	return fmt.Sprintf("%+v", plain(c))
}

// GoString likewise.
func (c Config) GoString() string { return c.String() }
