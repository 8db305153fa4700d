package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/walstream/walstream/pkg/pipeline"
)

// NewRegistry holds the pipeline's metrics and the process's own. The returned
// function takes one sample of commit to acknowledgement.
func NewRegistry(version string, progress func() *pipeline.Progress) (*prometheus.Registry, func(time.Duration)) {
	latency := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:                        "walstream_commit_to_ack_seconds",
		Help:                        "Time from a transaction's commit, by the server's clock, until Kafka acknowledged its rows; one sample for each move of the published edge.",
		Buckets:                     prometheus.ExponentialBuckets(0.001, 2, 18),
		NativeHistogramBucketFactor: 1.1,
	})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "walstream_build_info", Help: "Always 1; the label says which version runs.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(latency, build, &collector{progress: progress}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r, func(d time.Duration) { latency.Observe(d.Seconds()) }
}

// collector turns a Progress into metrics at scrape time, so that all values of
// a scrape are of one moment.
type collector struct{ progress func() *pipeline.Progress }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("walstream_"+name, help, labels, nil)
}

var (
	lagBytes      = desc("lag_bytes", "Bytes of WAL between the server's end and each stage; absent while it cannot be told.", "stage")
	lagSeconds    = desc("lag_seconds", "Age of the oldest work a stage has not done; 0 when idle, absent while it cannot be told.", "stage")
	positionBytes = desc("position_bytes", "LSN each stage has come to, as a number of bytes.", "stage")
	eventsTotal   = desc("events_total", "Rows handed to Kafka.")
	bytesTotal    = desc("event_bytes_total", "Bytes of keys and values handed to Kafka.")
	txTotal       = desc("transactions_total", "PostgreSQL transactions read to their end.")
	skippedTotal  = desc("skipped_total", "Transactions or rows left out on purpose: published before a restart, or of a table that is not an outbox.", "reason")
	inFlight      = desc("in_flight_bytes", "Bytes of rows that Kafka has not acknowledged; bounded by --max-in-flight-bytes.")
	restartsTotal = desc("restarts_total", "Starts after an error, by reason.", "reason")
	stateGauge    = desc("state", "1 for the state the pipeline is in.", "state")
	retainedBytes = desc("slot_retained_bytes", "WAL the server keeps for the slot; absent while it cannot be told.")
	safeBytes     = desc("slot_safe_wal_bytes", "WAL that may still be written before the slot can be lost; absent without max_slot_wal_keep_size.")
	progressTime  = desc("last_progress_timestamp_seconds", "When work was last done, or nothing was waiting for it.")
	commitsTotal  = desc("kafka_commits_total", "Kafka transactions committed, in exactly-once delivery.")
	splitsTotal   = desc("split_transactions_total", "Kafka commits inside a PostgreSQL transaction that took longer than --max-transaction-time: its rows became visible in parts.")
	statusTotal   = desc("status_updates_total", "Standby status updates sent to PostgreSQL.")
)

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		lagBytes, lagSeconds, positionBytes, eventsTotal, bytesTotal, txTotal, skippedTotal, inFlight,
		restartsTotal, stateGauge, retainedBytes, safeBytes, progressTime, statusTotal,
		commitsTotal, splitsTotal,
	} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	p, now := c.progress(), time.Now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, s := range stages {
		gauge(positionBytes, float64(s.position(p)), s.name)
		if p.Known(now) {
			gauge(lagBytes, float64(distance(s.position(p), serverEnd(p))), s.name)
			gauge(lagSeconds, s.lag(p, now).Seconds(), s.name)
		}
	}
	counter(eventsTotal, p.Counters.Events)
	counter(bytesTotal, p.Counters.EventBytes)
	counter(txTotal, p.Counters.Transactions)
	counter(skippedTotal, p.Counters.Dropped, "already-published")
	counter(skippedTotal, p.Counters.OtherTable, "other-table")
	counter(statusTotal, p.Counters.StatusUpdates)
	counter(commitsTotal, p.Counters.Commits)
	counter(splitsTotal, p.Counters.Splits)
	gauge(inFlight, float64(p.InFlightBytes))
	for reason, n := range p.Restarts {
		counter(restartsTotal, n, reason)
	}
	for _, s := range pipeline.States {
		gauge(stateGauge, boolFloat(p.State == s), string(s))
	}
	if p.Known(now) {
		gauge(retainedBytes, float64(distance(p.Health.Restart, serverEnd(p))))
		if p.Health.SafeWALSize != nil {
			gauge(safeBytes, float64(*p.Health.SafeWALSize))
		}
	}
	if !p.Counters.ProgressAt.IsZero() {
		gauge(progressTime, float64(p.Counters.ProgressAt.UnixMilli())/1000)
	}
}

func boolFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
