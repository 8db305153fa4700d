package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/repeat"
)

// OpenTelemetry's own defaults.
const (
	queueSpans = 2048
	batchSpans = 512
	batchPause = 5 * time.Second
)

// lastChance of what is queued when the process stops.
const lastChance = 2 * time.Second

// Exporter sends spans in the background, until Close.
type Exporter struct {
	cfg     Config
	version string
	log     zerolog.Logger
	redact  func(string) string
	client  *http.Client
	queue   chan Span
	ended   chan struct{}
	close   sync.Once

	sent, dropped prometheus.Counter
	spans         *prometheus.CounterVec
	trouble       repeat.Episode // the sender's own
	lost          int            // in it
}

// New starts one. Redact takes secrets out of what goes into a span or the log.
func New(cfg Config, version string, log zerolog.Logger, redact func(string) string) *Exporter {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = cfg.TLS
	e := &Exporter{
		cfg: cfg, version: version, log: log, redact: redact,
		client: &http.Client{Transport: transport, Timeout: cfg.Timeout},
		queue:  make(chan Span, queueSpans), ended: make(chan struct{}),
		spans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "walstream_trace_spans_total",
			Help: "Spans of Kafka commits by what became of them. dropped rises: the collector does not answer, refuses them, or is too slow; " +
				"rows are not held up. The log names the error. Absent while nobody traces.",
		}, []string{"outcome"}),
	}
	e.sent, e.dropped = e.spans.WithLabelValues("sent"), e.spans.WithLabelValues("dropped")
	go e.run()
	return e
}

// Describe makes it a collector.
func (e *Exporter) Describe(ch chan<- *prometheus.Desc) { e.spans.Describe(ch) }

// Collect makes it a collector.
func (e *Exporter) Collect(ch chan<- prometheus.Metric) { e.spans.Collect(ch) }

// Span takes one, or drops it. It never waits. Not after Close.
func (e *Exporter) Span(s Span) {
	if e.cfg.Ratio < 1 && rand.Float64() >= e.cfg.Ratio {
		return
	}
	s.Err = e.redact(s.Err)
	select {
	case e.queue <- s:
	default:
		e.dropped.Inc()
	}
}

// Close sends what is queued, if that is done in a moment.
func (e *Exporter) Close() {
	e.close.Do(func() { close(e.queue) })
	<-e.ended
	e.client.CloseIdleConnections()
}

func (e *Exporter) run() {
	defer close(e.ended)
	ticker := time.NewTicker(batchPause)
	defer ticker.Stop()
	batch := make([]wireSpan, 0, batchSpans)
	for {
		select {
		case span, more := <-e.queue:
			if !more {
				e.rest(batch)
				return
			}
			if batch = append(batch, encodeSpan(&span)); len(batch) < batchSpans {
				continue
			}
		case <-ticker.C:
		}
		e.export(context.Background(), batch)
		batch = batch[:0]
	}
}

// rest of the queue is closed: what is sent takes no longer than lastChance.
func (e *Exporter) rest(batch []wireSpan) {
	ctx, cancel := context.WithTimeout(context.Background(), lastChance)
	defer cancel()
	for span := range e.queue {
		batch = append(batch, encodeSpan(&span))
	}
	for part := range slices.Chunk(batch, batchSpans) {
		e.export(ctx, part)
	}
}

// export a batch, once.
func (e *Exporter) export(ctx context.Context, batch []wireSpan) {
	if len(batch) == 0 {
		return
	}
	rejected, err := e.post(ctx, batch)
	if err != nil {
		rejected = len(batch)
	}
	e.dropped.Add(float64(rejected))
	e.sent.Add(float64(len(batch) - rejected))
	now := time.Now()
	switch {
	case err != nil:
		e.lost += rejected
		if e.trouble.Trouble(err.Error(), now) {
			e.log.Warn().Str("error", e.redact(err.Error())).Int("spans", e.lost).Stringer("for", e.trouble.Lasted(now).Round(time.Second)).
				Msg("the collector of traces does not take spans: they are dropped, rows are not held up")
		}
	case e.trouble.Open(now):
		e.log.Info().Int("spans", e.lost).Stringer("after", e.trouble.Lasted(now).Round(time.Second)).
			Msg("the collector of traces takes spans again; so many were dropped")
		e.trouble.Well(now)
		e.lost = 0
	}
}

// post returns how many spans the collector has taken the request for and refused.
func (e *Exporter) post(ctx context.Context, batch []wireSpan) (rejected int, err error) {
	body, err := json.Marshal(request{[]resourceSpans{{
		Resource:   resource{encodeAttributes(e.cfg.Resource)},
		ScopeSpans: []scopeSpans{{scope{"github.com/walstream/walstream", e.version}, batch}},
	}}})
	if err != nil {
		return 0, err
	}
	if e.cfg.Gzip {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(body) // into memory
		_ = w.Close()
		body = zipped.Bytes()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, value := range e.cfg.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "walstream/"+e.version)
	if e.cfg.Gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	response, err := e.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return 0, fmt.Errorf("read the answer of %s: %w", r.URL.Redacted(), err)
	}
	if response.StatusCode/100 != 2 {
		return 0, fmt.Errorf("%s answers %s: %.200q", r.URL.Redacted(), response.Status, text)
	}
	return min(rejectedOf(text), len(batch)), nil
}

// rejectedOf an answer; one that says nothing about it has taken everything.
func rejectedOf(text []byte) int {
	var answer struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(bytes.Trim(answer.PartialSuccess.RejectedSpans, `"`))) // a text, by the book
	return max(0, n)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
