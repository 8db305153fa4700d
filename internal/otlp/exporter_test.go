package otlp

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an OTLP receiver that takes apart what it gets.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	spans    []map[string]any
	faults   []string
	answer   func(w http.ResponseWriter)
}

func newCollector(t *testing.T) *collector {
	c := &collector{answer: func(w http.ResponseWriter) { fmt.Fprint(w, `{"partialSuccess":{}}`) }}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			c.faults = append(c.faults, err.Error())
			return
		}
		body = zipped
	}
	text, err := io.ReadAll(body)
	if err == nil {
		err = c.parse(text)
	}
	if err != nil {
		c.faults = append(c.faults, err.Error())
	}
	c.requests = append(c.requests, r)
	c.answer(w)
}

var (
	traceID = regexp.MustCompile(`^[0-9a-f]{32}$`)
	spanID  = regexp.MustCompile(`^[0-9a-f]{16}$`)
	digits  = regexp.MustCompile(`^[0-9]+$`)
)

// parse by the book: names, ids in hex, 64-bit numbers as texts.
func (c *collector) parse(text []byte) error {
	var request struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []map[string]any `json:"attributes"`
			} `json:"resource"`
			ScopeSpans []struct {
				Scope struct{ Name, Version string } `json:"scope"`
				Spans []map[string]any               `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return err
	}
	if len(request.ResourceSpans) != 1 || len(request.ResourceSpans[0].ScopeSpans) != 1 || request.ResourceSpans[0].ScopeSpans[0].Scope.Name == "" {
		return fmt.Errorf("not one resource with one named scope: %s", text)
	}
	if !strings.Contains(fmt.Sprint(request.ResourceSpans[0].Resource.Attributes), "service.name") {
		return errors.New("the resource has no service.name")
	}
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		for name, pattern := range map[string]*regexp.Regexp{"traceId": traceID, "spanId": spanID, "startTimeUnixNano": digits, "endTimeUnixNano": digits} {
			if text, ok := s[name].(string); !ok || !pattern.MatchString(text) {
				return fmt.Errorf("%s is %v", name, s[name])
			}
		}
		if s["kind"] != 4.0 {
			return fmt.Errorf("kind is %v", s["kind"])
		}
		c.spans = append(c.spans, s)
	}
	return nil
}

func (c *collector) check(t *testing.T, spans int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) > 0 || len(c.spans) != spans {
		t.Fatalf("%d spans, want %d; faults %q", len(c.spans), spans, c.faults)
	}
}

func start(t *testing.T, variables map[string]string, log io.Writer) *Exporter {
	t.Helper()
	cfg, on, err := FromVariables(func(name string) string { return variables[name] }, "1.2.3")
	if err != nil || !on {
		t.Fatal(on, err)
	}
	return New(cfg, "1.2.3", zerolog.New(log), func(text string) string { return strings.ReplaceAll(text, "geheim", "***") })
}

func value(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

func (e *Exporter) outcome() string {
	return fmt.Sprint(value(e.sent), " sent, ", value(e.dropped), " dropped")
}

func TestSpansArrive(t *testing.T) {
	for _, compression := range []string{"", "gzip"} {
		c := newCollector(t)
		e := start(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x=1", "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
		}, io.Discard)
		began := time.Unix(1_700_000_000, 5)
		e.Span(Span{
			Name: "commit bank", Start: began, End: began.Add(time.Second), Err: "it was geheim", MoreLinks: 7,
			Attributes: []Attribute{{"text", "a"}, {"number", 1 << 53}, {"yes", true}, {"ratio", 0.5}},
			Links:      []Link{{TraceID: [16]byte{0: 1, 15: 2}, SpanID: [8]byte{7: 3}, Flags: 1}},
		})
		e.Close()
		c.check(t, 1)
		s := c.spans[0]
		delete(s, "traceId")
		delete(s, "spanId")
		got, _ := json.Marshal(s)
		const want = `{"attributes":[{"key":"text","value":{"stringValue":"a"}},{"key":"number","value":{"intValue":"9007199254740992"}},` +
			`{"key":"yes","value":{"boolValue":true}},{"key":"ratio","value":{"doubleValue":0.5}}],"droppedLinksCount":7,` +
			`"endTimeUnixNano":"1700000001000000005","flags":1,"kind":4,` +
			`"links":[{"flags":769,"spanId":"0000000000000003","traceId":"01000000000000000000000000000002"}],` +
			`"name":"commit bank","startTimeUnixNano":"1700000000000000005","status":{"code":2,"message":"it was ***"}}`
		if string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		r := c.requests[0]
		if r.URL.Path != "/v1/traces" || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Api-Key") != "a b" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		if e.outcome() != "1 sent, 0 dropped" {
			t.Error(e.outcome())
		}
	}
}

// More than a batch goes in several requests, each span once, with an id of its own.
func TestBatches(t *testing.T) {
	c := newCollector(t)
	e := start(t, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL + "/whole"}, io.Discard)
	const spans = 2*batchSpans + 10
	for range spans {
		e.Span(Span{Name: "x", Start: time.Now(), End: time.Now()})
		if len(e.queue) > queueSpans/2 {
			time.Sleep(time.Millisecond)
		}
	}
	e.Close()
	c.check(t, spans)
	ids := map[any]bool{}
	for _, s := range c.spans {
		ids[s["traceId"]], ids[s["spanId"]] = true, true
	}
	if len(ids) != 2*spans || len(c.requests) != 3 || c.requests[0].URL.Path != "/whole" {
		t.Errorf("%d ids, %d requests to %s", len(ids), len(c.requests), c.requests[0].URL)
	}
}

// A collector that hangs, refuses, or is not there: Span never waits, what is lost
// is counted, and the log says it once, and when it is over.
func TestCollectorInTrouble(t *testing.T) {
	hang := make(chan struct{})
	for name, c := range map[string]struct {
		answer  func(w http.ResponseWriter)
		away    bool
		outcome string
		says    string
	}{
		"not there":         {away: true, outcome: "0 sent, 10 dropped", says: "connection refused"},
		"refuses":           {answer: func(w http.ResponseWriter) { http.Error(w, "geheim", http.StatusUnauthorized) }, outcome: "0 sent, 10 dropped", says: `401 Unauthorized: \"***`},
		"overloaded":        {answer: func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, outcome: "0 sent, 10 dropped", says: "503"},
		"takes some":        {answer: func(w http.ResponseWriter) { fmt.Fprint(w, `{"partialSuccess":{"rejectedSpans":"4"}}`) }, outcome: "6 sent, 4 dropped"},
		"says nonsense":     {answer: func(w http.ResponseWriter) { fmt.Fprint(w, `<html>`) }, outcome: "10 sent, 0 dropped"},
		"answers no longer": {answer: func(http.ResponseWriter) { <-hang }, outcome: "0 sent, 10 dropped", says: "deadline exceeded"},
	} {
		receiver := newCollector(t)
		if c.answer != nil {
			receiver.answer = c.answer
		}
		if c.away {
			receiver.Close()
		}
		var log bytes.Buffer
		e := start(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "200"}, &log)
		for range 10 {
			e.Span(Span{Name: "x"})
		}
		e.Close()
		if e.outcome() != c.outcome {
			t.Errorf("%s: %s, want %s", name, e.outcome(), c.outcome)
		}
		if !strings.Contains(log.String(), c.says) || (log.Len() > 0) != (c.says != "") {
			t.Errorf("%s: the log says %s", name, log.String())
		}
	}
	close(hang)
}

// Whoever hands spans over to a collector that hangs is not held up, however many
// they are.
func TestSpanNeverWaits(t *testing.T) {
	c, hang := newCollector(t), make(chan struct{})
	c.answer = func(http.ResponseWriter) { <-hang }
	e := start(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "60000"}, io.Discard)
	const spans = 10 * queueSpans
	slowest := time.Duration(0)
	for range spans {
		before := time.Now()
		e.Span(Span{Name: "x"})
		slowest = max(slowest, time.Since(before))
	}
	if slowest > 2*time.Second { // the machine's pauses, not the collector's minute
		t.Errorf("a span took %s", slowest)
	}
	if dropped := value(e.dropped); dropped < spans-queueSpans-2*batchSpans {
		t.Errorf("%v of %d spans are dropped with a queue of %d", dropped, spans, queueSpans)
	}
	close(hang)
	e.Close()
	if e.outcome() != fmt.Sprint(value(e.sent), " sent, ", spans-value(e.sent), " dropped") {
		t.Errorf("%s: not every one of %d is counted", e.outcome(), spans)
	}
}

func TestTellsWhenItIsOver(t *testing.T) {
	c := newCollector(t)
	var log bytes.Buffer
	e := start(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL}, &log)
	e.Close() // its goroutine; what follows is driven by hand
	good := c.answer
	for n := range 8 {
		c.answer = good
		if n < 6 {
			c.answer = func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }
		}
		e.export(t.Context(), make([]wireSpan, 3))
	}
	e.client.CloseIdleConnections()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "502") || !strings.Contains(lines[1], `"spans":18`) {
		t.Errorf("the log says\n%s", log.String())
	}
}

func TestRatio(t *testing.T) {
	for arg, want := range map[string][2]int{"0": {0, 0}, "0.25": {100, 400}, "1": {1000, 1000}} {
		c := newCollector(t)
		e := start(t, map[string]string{
			"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": arg,
		}, io.Discard)
		for range 1000 {
			e.Span(Span{Name: "x", Start: time.Now(), End: time.Now()})
		}
		e.Close()
		if n := len(c.spans); n < want[0] || n > want[1] {
			t.Errorf("ratio %s: %d of 1000", arg, n)
		}
	}
}
