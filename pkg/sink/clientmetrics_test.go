package sink

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/walstream/walstream/internal/testenv"
)

// read sums the series of a metric: values of counters, samples of histograms.
func (m *ClientMetrics) read(t *testing.T, name string) (sum float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.Metric {
			if f.GetName() == name {
				sum += series.GetCounter().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// TestClientMetricsOutliveClients: a pipeline has several at once, and new ones
// at each start.
func TestClientMetricsOutliveClients(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	cfg := testConfig(t, brokers)
	cfg.Metrics = NewClientMetrics()
	const starts = 3
	for n := range starts {
		k := open(t, cfg)
		c := claim(t, k)
		record := baseRecord(cfg.Pipeline)
		record.Covered = pglogrepl.LSN(1000 + n)
		if err := c.Write(within(t, 20*time.Second), record); err != nil {
			t.Fatal(err)
		}
		c.Close()
		k.Close()
	}
	// The library tells of a batch a moment after its promise.
	deadline := time.Now().Add(10 * time.Second)
	for cfg.Metrics.read(t, "walstream_topic_records_total") < starts && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	for name, least := range map[string]float64{
		"walstream_topic_records_total": starts, "walstream_topic_bytes_total": 100, "walstream_topic_compressed_bytes_total": 100,
		"walstream_kafka_connects_total": starts, "walstream_kafka_produce_seconds": starts,
	} {
		if got := cfg.Metrics.read(t, name); got < least {
			t.Errorf("%s is %v, at least %v happened", name, got, least)
		}
	}
	if got := cfg.Metrics.read(t, "walstream_topic_records_total"); got != starts {
		t.Errorf("%v records, %d were written", got, starts)
	}
	if got := cfg.Metrics.read(t, "walstream_kafka_connect_errors_total"); got != 0 {
		t.Errorf("%v connections failed", got)
	}
	cfg.Brokers = []string{"127.0.0.1:1"}
	if _, _, err := open(t, cfg).Load(within(t, 20*time.Second)); err == nil {
		t.Error("nobody listens there")
	}
	if cfg.Metrics.read(t, "walstream_kafka_connect_errors_total") == 0 {
		t.Error("a failed connection is not counted")
	}
}
