package ops

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/sink"
)

// Metrics of one pipeline and of its process. Every one carries the pipeline as
// a label, so that rules speak of a pipeline whatever a scrape calls its jobs,
// and see an active and a standby instance as two of the same.
type Metrics struct {
	Registry *prometheus.Registry
	latency  prometheus.Histogram
}

// NewMetrics registers the pipeline's metrics, the process's own and more.
func NewMetrics(cfg Config, more ...prometheus.Collector) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "walstream_commit_to_ack_seconds",
			Help: "Time from a transaction's commit, by the server's clock, until its rows were acknowledged by Kafka " +
				"(exactly-once: committed). One sample for each move of the published edge. " +
				"Where it grows while lag stays low, look at the brokers; see walstream_kafka_produce_seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
			// Beside the classic buckets, for servers that scrape native ones.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}),
	}
	info := func(name, help string, labels prometheus.Labels) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		return g
	}
	r := prometheus.WrapRegistererWith(prometheus.Labels{"pipeline": cfg.Pipeline}, m.Registry)
	r.MustRegister(m.latency, &collector{cfg: cfg},
		info("walstream_build_info", "Always 1; the label says which version runs. Two versions for long: an update stopped half-way.",
			prometheus.Labels{"version": cfg.Version}),
		info("walstream_pipeline_info", "Always 1; the labels say what this pipeline reads and what it promises.",
			prometheus.Labels{"slot": cfg.Slot, "delivery": cfg.Delivery}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(more...)
	return m
}

// Observe takes one sample of commit to acknowledgement.
func (m *Metrics) Observe(d time.Duration) { m.latency.Observe(d.Seconds()) }

// collector turns a Progress into metrics at scrape time, so that all values of
// a scrape are of one moment.
type collector struct{ cfg Config }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("walstream_"+name, help, labels, nil)
}

var (
	stateGauge = desc("state",
		"1 for the state the pipeline is in, 0 for the others. streaming and standby are well; paused is an operator's walstream pause; waiting starts again by itself; "+
			"refused needs a person, and /status has the message with the way out.", "state")
	healthyGauge = desc("healthy",
		"1 when /healthz answers 200; 0 when work waits and none was done for --stall-timeout, or on a refusal. /status names the cause.")
	stalledSeconds = desc("stalled_seconds",
		"For how long work has waited with none done, in every state; below a second when nothing waits, 0 when standing by. Above --stall-timeout health is red.")
	progressTime = desc("last_progress_timestamp_seconds",
		"When work was last done, or nothing was waiting for it. Older than a minute: see walstream_stalled_seconds.")

	lagBytes = desc("lag_bytes",
		"Bytes of WAL between the server's end and each stage. 0 when idle; absent while it cannot be told: see walstream_state and "+
			"walstream_slot_readable. The first stage that grows is the slow one: received is PostgreSQL, published is Kafka, confirmed the checkpoint.", "stage")
	lagSeconds = desc("lag_seconds",
		"Age, by the server's clock, of the oldest work a stage has not done. 0 when idle; absent while it cannot be told, as walstream_lag_bytes.", "stage")
	positionBytes = desc("position_bytes",
		"LSN each stage has come to, as a number of bytes; stage server is the end of its WAL. Its rate is WAL throughput; of no use as an absolute value.", "stage")

	eventsTotal    = desc("events_total", "Rows taken from the stream: handed to Kafka, or passed as bad rows. A rate of 0 under load: see walstream_state and walstream_lag_bytes.")
	bytesTotal     = desc("event_bytes_total", "Bytes of keys and values handed to Kafka.")
	txTotal        = desc("transactions_total", "PostgreSQL transactions with rows of ours, read to their end.")
	skippedTotal   = desc("skipped_total", "Transactions or rows left out on purpose: published before a restart, or of a table that is not an outbox. Much of other-table: the publication carries tables it need not.", "reason")
	poisonedTotal  = desc("poisoned_rows_total", "Rows that could not become records and were let pass, by what was done (--on-poison) and why. Any rise needs a person: walstream dead-letters list, or the log for those skipped; /status has the newest.", "action", "reason")
	poisonedRun    = desc("poisoned_run_rows", "Bad rows since the last good one, of the topic with most of them or of all, while --poison-limit is not 0. Rises: a topic or a writer is bad, not single rows; at --poison-limit the stream stops.")
	inFlightEvents = desc("in_flight_events", "Rows that Kafka has not acknowledged.")
	inFlightBytes  = desc("in_flight_bytes", "Bytes of rows that Kafka has not acknowledged. At its limit for long: Kafka is the slow side.")
	inFlightLimit  = desc("in_flight_limit_bytes", "What bounds walstream_in_flight_bytes: --max-in-flight-bytes.")
	commitsTotal   = desc("kafka_commits_total", "Kafka transactions committed, in exactly-once delivery. Rows per commit is how well they are joined.")
	splitsTotal    = desc("split_transactions_total", "Kafka commits inside a PostgreSQL transaction that took longer than --max-transaction-time: its rows became visible in parts. Make the transaction smaller, or raise the setting.")
	bucketsTotal   = desc("history_buckets_total", "Records written to walstream.history.<pipeline>: one for a minute, or 64 MB, with rows. It stays at 0 with --history-retention 0s.")
	statusTotal    = desc("status_updates_total", "Standby status updates sent to PostgreSQL. A rate of 0 while streaming: the server will end the connection.")
	restartsTotal  = desc("restarts_total", "Starts after an error that passed or may pass, by reason. The log has the message of each; slot-busy and fenced are another instance at work.", "reason")

	snapshotRows = desc("snapshot_rows", "Rows from before the slot that are published, over all starts; absent unless a snapshot is under way. It does not rise: see walstream_stalled_seconds.")
	snapshotSize = desc("snapshot_rows_estimated", "Rows the tables of the snapshot hold, by the planner's statistics; absent when it cannot be told (ANALYZE makes them).")
)

var descs = []*prometheus.Desc{
	stateGauge, healthyGauge, stalledSeconds, progressTime, lagBytes, lagSeconds, positionBytes,
	eventsTotal, bytesTotal, txTotal, skippedTotal, poisonedTotal, inFlightEvents, inFlightBytes, inFlightLimit,
	commitsTotal, splitsTotal, bucketsTotal, statusTotal, restartsTotal, snapshotRows, snapshotSize,
}

// restartReasons are there from the first scrape on, at 0: a counter that is born
// with its first 1 never rose, for a rule. They are pipeline.Classify's.
var restartReasons = []string{"slot-busy", "fenced", "type-changed", "server-stopping", "promoted", "silent", "paused", "postgres", "credentials", "isolating", "schema-registry", "kafka", "timeout", "recovery"}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(descs, slotDescs, rewindDescs, retentionDescs) {
		ch <- d
	}
}

// sample hands metrics on.
type sample chan<- prometheus.Metric

func (s sample) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sample) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sample) yes(d *prometheus.Desc, yes bool, labels ...string) {
	v := 0.0
	if yes {
		v = 1
	}
	s.gauge(d, v, labels...)
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	p, now, s := c.cfg.Progress(), time.Now(), sample(ch)
	for _, state := range pipeline.States {
		s.yes(stateGauge, p.State == state, string(state))
	}
	ok, _ := healthy(&c.cfg, p, now)
	s.yes(healthyGauge, ok)
	s.gauge(stalledSeconds, p.Stalled(now).Seconds())
	if !p.Counters.ProgressAt.IsZero() {
		s.gauge(progressTime, float64(p.Counters.ProgressAt.UnixMilli())/1000)
	}
	for _, stage := range stages {
		s.gauge(positionBytes, float64(stage.position(p)), stage.name)
		if p.Known(now) {
			s.gauge(lagBytes, float64(distance(stage.position(p), serverEnd(p))), stage.name)
			s.gauge(lagSeconds, stage.lag(p, now).Seconds(), stage.name)
		}
	}
	s.gauge(positionBytes, float64(serverEnd(p)), "server")
	c.counters(s, p)
	c.slot(s, p, now)
	c.rewind(s, p, now)
	c.retention(s)
}

func (c *collector) counters(s sample, p *pipeline.Progress) {
	s.counter(eventsTotal, p.Counters.Events)
	s.counter(bytesTotal, p.Counters.EventBytes)
	s.counter(txTotal, p.Counters.Transactions)
	s.counter(skippedTotal, p.Counters.Dropped, "already-published")
	s.counter(skippedTotal, p.Counters.OtherTable, "other-table")
	for _, action := range []sink.Policy{sink.DeadLetter, sink.Skip} {
		for _, class := range sink.Classes { // at 0 from the first scrape on, as restartReasons
			s.counter(poisonedTotal, p.Poisoned[action][class], string(action), string(class))
		}
	}
	s.gauge(poisonedRun, float64(p.BadRun))
	s.counter(statusTotal, p.Counters.StatusUpdates)
	s.counter(commitsTotal, p.Counters.Commits)
	s.counter(splitsTotal, p.Counters.Splits)
	s.counter(bucketsTotal, p.Counters.Buckets)
	s.gauge(inFlightEvents, float64(p.InFlightEvents))
	s.gauge(inFlightBytes, float64(p.InFlightBytes))
	s.gauge(inFlightLimit, float64(c.cfg.MaxInFlightBytes))
	for _, reason := range restartReasons {
		if _, counted := p.Restarts[reason]; !counted {
			s.counter(restartsTotal, 0, reason)
		}
	}
	for reason, n := range p.Restarts {
		s.counter(restartsTotal, n, reason)
	}
	if p.Snapshot != nil {
		s.gauge(snapshotRows, float64(p.Snapshot.Rows))
		if p.Snapshot.Estimate >= 0 {
			s.gauge(snapshotSize, float64(p.Snapshot.Estimate))
		}
	}
}
