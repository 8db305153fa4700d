package sink

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ClientMetrics count what the Kafka clients of a process see, whatever becomes
// of each client: a pipeline has several, new ones at each start. (franz-go's
// kprom registers anew with each client, panics on the second of the same
// labels, and starts again at 0.)
type ClientMetrics struct {
	connects, failures, throttled *prometheus.CounterVec // by broker
	produce                       *prometheus.HistogramVec
	records, bytes, compressed    *prometheus.CounterVec // by topic
}

// NewClientMetrics returns metrics that are at 0, for Config.Metrics.
func NewClientMetrics() *ClientMetrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "walstream_" + name, Help: help}, []string{label})
	}
	return &ClientMetrics{
		connects:  counter("kafka_connects_total", "Connections opened to brokers. A rate that stays above 0: something between us and the broker cuts them.", "broker"),
		failures:  counter("kafka_connect_errors_total", "Connections to brokers that could not be opened, TLS and login included. Rises: /status and the log name the error.", "broker"),
		throttled: counter("kafka_throttled_seconds_total", "Time brokers made us wait for a quota. Rises while lag grows: raise the quota of our user or client id.", "broker"),
		produce: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "walstream_kafka_produce_seconds",
			Help: "Time from writing a produce request until the broker's answer, all in-sync replicas included. " +
				"One slow broker: look at it; all slow: look at replication and disks.",
			Buckets:                         prometheus.ExponentialBuckets(0.001, 2, 15),
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"broker"}),
		records:    counter("topic_records_total", "Records brokers have acknowledged, those of aborted Kafka transactions and of walstream's own topics included.", "topic"),
		bytes:      counter("topic_bytes_total", "Bytes of acknowledged batches before compression.", "topic"),
		compressed: counter("topic_compressed_bytes_total", "Bytes of acknowledged batches as sent. Near walstream_topic_bytes_total: --kafka-compression costs CPU for nothing.", "topic"),
	}
}

func (m *ClientMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.connects, m.failures, m.throttled, m.produce, m.records, m.bytes, m.compressed}
}

// Describe makes it a collector.
func (m *ClientMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect makes it a collector.
func (m *ClientMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

// OnBrokerConnect hears of every attempt to connect.
func (m *ClientMetrics) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	name := kgo.NodeName(broker.NodeID)
	// The series are there from the first attempt on, so that the first failure is a rise.
	connects, failures := m.connects.WithLabelValues(name), m.failures.WithLabelValues(name)
	m.throttled.WithLabelValues(name)
	if err != nil {
		failures.Inc()
	} else {
		connects.Inc()
	}
}

// OnBrokerE2E hears of every request that was answered or failed.
func (m *ClientMetrics) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == kmsg.Produce.Int16() && e2e.Err() == nil {
		m.produce.WithLabelValues(kgo.NodeName(broker.NodeID)).Observe(e2e.DurationE2E().Seconds())
	}
}

// OnBrokerThrottle hears of every wait for a quota.
func (m *ClientMetrics) OnBrokerThrottle(broker kgo.BrokerMetadata, wait time.Duration, _ bool) {
	m.throttled.WithLabelValues(kgo.NodeName(broker.NodeID)).Add(wait.Seconds())
}

// OnProduceBatchWritten hears of every batch that was acknowledged.
func (m *ClientMetrics) OnProduceBatchWritten(_ kgo.BrokerMetadata, topic string, _ int32, batch kgo.ProduceBatchMetrics) {
	m.records.WithLabelValues(topic).Add(float64(batch.NumRecords))
	m.bytes.WithLabelValues(topic).Add(float64(batch.UncompressedBytes))
	m.compressed.WithLabelValues(topic).Add(float64(batch.CompressedBytes))
}

var (
	_ prometheus.Collector        = (*ClientMetrics)(nil)
	_ kgo.HookBrokerConnect       = (*ClientMetrics)(nil)
	_ kgo.HookBrokerE2E           = (*ClientMetrics)(nil)
	_ kgo.HookBrokerThrottle      = (*ClientMetrics)(nil)
	_ kgo.HookProduceBatchWritten = (*ClientMetrics)(nil)
)
