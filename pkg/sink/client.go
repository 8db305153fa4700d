package sink

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	dialTimeout = 5 * time.Second
	// requestTimeout after which a connection that does not answer is given up
	// (produce requests: plus produceTimeout); the request goes out again on a
	// new one.
	requestTimeout = 10 * time.Second
	// produceTimeout is how long the leader waits for its followers before it
	// answers REQUEST_TIMED_OUT, which is retried without end.
	produceTimeout = 10 * time.Second
	// idleTimeout keeps connections over a quiet spell, below the broker's own
	// connections.max.idle.ms of ten minutes.
	idleTimeout = 5 * time.Minute
	// retryTimeout bounds the requests that are not records: metadata, topics,
	// the ends of transactions. It outlasts a restart of a broker.
	retryTimeout = 30 * time.Second
	// askTimeout is the same for questions at the start: whoever waits for them
	// wants to read what is wrong, and asks again.
	askTimeout = 3 * time.Second
	// metadataMinAge is how soon after the last look at the cluster a partition
	// that lost its leader is looked up again; franz-go's 5 s would be felt as a
	// stall.
	metadataMinAge = 250 * time.Millisecond
	metadataMaxAge = 5 * time.Minute
	// maxRequest is the broker's default socket.request.max.bytes.
	maxRequest = 100 << 20
	// minBatch and maxBatch are what franz-go accepts as a limit of a batch.
	minBatch, maxBatch = 512, 1 << 30
	// linger: a record goes out at once when its broker has a request slot free;
	// while five are under way the next ones gather, which is all the batching a
	// loaded stream needs.
	linger = 0
)

// backoff before the nth try in a row: 100 ms, doubling up to a second, half of it
// at random. The library's own grows to 2.5 s, which is felt as a stall after a
// broker has come back.
func backoff(tries int) time.Duration {
	pause := min(100*time.Millisecond<<min(max(tries-1, 0), 4), time.Second)
	return pause/2 + rand.N(pause/2)
}

// common options of every client. Nothing is written while check returns an error;
// it may be nil.
func (k *Kafka) common(check func() error) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.cfg.Brokers...),
		kgo.ClientID(k.cfg.ClientID),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.ConnIdleTimeout(idleTimeout),
		kgo.RetryTimeout(retryTimeout),
		kgo.RetryBackoffFn(backoff),
		kgo.RequestRetries(1000), // retryTimeout is the bound
		kgo.MetadataMinAge(metadataMinAge),
		kgo.MetadataMaxAge(metadataMaxAge),
		// Telemetry is a goroutine and a second of Close for nobody's use.
		kgo.DisableClientMetrics(),
		kgo.WithLogger(kgoLogger{log: k.log}),
		kgo.WithHooks(&k.conns, &losses{seen: k.cfg.Seen, log: k.log}),
	}
	if k.cfg.Metrics != nil {
		opts = append(opts, kgo.WithHooks(k.cfg.Metrics))
	}
	if versionPattern.MatchString(k.cfg.Version) {
		opts = append(opts, kgo.SoftwareNameAndVersion("walstream", k.cfg.Version))
	}
	dial := k.cfg.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if check != nil {
		dial = guarded(dial, check)
	}
	if k.cfg.TLS != nil {
		dial = tlsOver(dial, k.cfg.TLS)
	}
	opts = append(opts, kgo.Dialer(dial))
	login, _ := k.cfg.login() // its faults were reported by Open
	return append(opts, login...)
}

// producer options: everything that touches durability or order is written out,
// also where it is the library's default, because a default may change.
func (k *Kafka) producer(batchLimit func(topic string) int32, check func() error) []kgo.Opt {
	return append(k.common(check),
		// An acknowledgement means all in-sync replicas.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Idempotent writing stays on (no DisableIdempotentWrite): a request sent
		// twice is stored once, and in order, with five under way. Records in
		// flight are not cancelled (no AllowIdempotentProduceCancellation): their
		// outcome would be unknown.
		//
		// Records are retried without limit and have no deadline
		// (RecordRetries unlimited, no RecordDeliveryTimeout): only a refusal
		// fails one. A broker that is down is waited for.
		kgo.RecordRetries(unlimited),
		kgo.ProduceRequestTimeout(produceTimeout),
		// A topic is looked up before its first record is sent; when it seems to
		// vanish later, this many answers in a row are doubted, with growing
		// pauses, before it is looked up again and, if it is gone, refused.
		kgo.UnknownTopicRetries(10),
		// A broker that has lost what it acknowledged answers
		// OUT_OF_ORDER_SEQUENCE_NUMBER. Going on would leave the hole; stopping
		// sends everything after the durable checkpoint again.
		kgo.StopProducerOnDataLossDetected(),
		// A connection cut at its first byte is a broker coming up, not a setting
		// to stop for: the settings were proved by the start.
		kgo.AlwaysRetryEOF(),
		kgo.RecordPartitioner(partitioner{keyed: kgo.StickyKeyPartitioner(nil)}),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchMaxBytesFn(batchLimit),
		kgo.BrokerMaxWriteBytes(maxRequest),
		kgo.ProducerBatchCompression(k.codecs()...),
		// Produce blocks at this bound; the ledger's window is smaller, so it is
		// never reached. Bytes are bounded by that window alone.
		kgo.MaxBufferedRecords(2*k.cfg.MaxInFlight.Events+1024),
	)
}

// lane options: a transactional producer. In at-least-once only checkpoints go
// through it.
func (k *Kafka) lane(n int, batchLimit func(topic string) int32, check func() error) []kgo.Opt {
	return append(k.producer(batchLimit, check),
		kgo.TransactionalID(k.cfg.transactionalID(n)),
		kgo.TransactionTimeout(TransactionTimeout),
		// The id is busy for milliseconds after a commit while the broker writes
		// the markers; the library's 20 ms would be most of the wait.
		kgo.ConcurrentTransactionsBackoff(time.Millisecond),
	)
}

const unlimited = int(^uint(0) >> 1)

func (k *Kafka) codecs() []kgo.CompressionCodec {
	codec := compressions[k.cfg.Compression]()
	if k.cfg.Compression == "none" {
		return []kgo.CompressionCodec{codec}
	}
	return []kgo.CompressionCodec{codec, kgo.NoCompression()}
}

// newClient makes a client; it connects when first used.
func (k *Kafka) newClient(opts []kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return client, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// tlsOver lays TLS over a dialer, as it is to be at that moment.
func tlsOver(dial dialFunc, current func() (*tls.Config, error)) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		base, err := current()
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		cfg := base.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(address)
		}
		secured := tls.Client(conn, cfg)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake's error is the one to report
			if !isTLS(err) { // cut off, or no answer: what a listener in clear makes of a handshake
				err = fmt.Errorf("TLS handshake with %s (does this listener speak TLS?): %w", address, err)
			}
			return nil, err
		}
		return secured, nil
	}
}
