package cases

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
)

// spanCollector is a collector of traces as far as the case looks at them.
type spanCollector struct {
	mu    sync.Mutex
	rows  int
	links map[string]int
	names map[string]bool
}

func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var request struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					Name       string
					Attributes []struct {
						Key   string
						Value struct{ IntValue, StringValue string }
					}
					Links []struct{ TraceID, SpanID string }
				}
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.Header.Get("Authorization") != "Basic c2VjcmV0OnNlc2FtZQ==" {
		http.Error(w, fmt.Sprint("not for me: ", err), http.StatusBadRequest)
		return
	}
	for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		c.names[s.Name] = true
		for _, a := range s.Attributes {
			if a.Key == "walstream.rows" {
				n, _ := strconv.Atoi(a.Value.IntValue)
				c.rows += n
			}
		}
		for _, l := range s.Links {
			c.links[l.TraceID+"/"+l.SpanID]++
		}
	}
	fmt.Fprint(w, `{}`)
}

const tracedSQL = `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers)
	SELECT 'account', 'acc-1', 'deposited', '{}', jsonb_build_object('traceparent', '00-' || lpad($1::int::text, 32, '0') || '-' || lpad($1::int::text, 16, '0') || '-01')
	FROM generate_series(1, 5)`

// Each Kafka commit is a span, linked to the traces of its rows, configured by
// OpenTelemetry's own variables. A collector that is down holds up nothing.
func TestTraces(t *testing.T) { inBothAtOnce(t, traces) }

func traces(t *testing.T) {
	r := sharedRig(t)
	collector := &spanCollector{links: map[string]int{}, names: map[string]bool{}}
	server := httptest.NewServer(collector)
	defer server.Close()
	start := func(url string) *service.Service {
		s, err := service.Start(service.Options{Binary: r.binary, Args: r.args(), Env: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Basic%20c2VjcmV0OnNlc2FtZQ==",
		}})
		r.check(err)
		t.Cleanup(s.Kill)
		r.check(s.WaitStreaming(r.ctx))
		return s
	}
	s := start(server.URL)
	const transactions = 8
	for n := 1; n <= transactions; n++ {
		r.exec(tracedSQL, n)
	}
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	collector.mu.Lock()
	if collector.rows != 5*transactions || len(collector.links) != transactions || !collector.names["commit "+r.pipeline] {
		t.Errorf("%d rows, links %v, names %v", collector.rows, collector.links, collector.names)
	}
	for n := 1; n <= transactions; n++ {
		if link := fmt.Sprintf("%032d/%016d", n, n); collector.links[link] != 1 {
			t.Errorf("%d links to %s", collector.links[link], link)
		}
	}
	collector.mu.Unlock()
	if strings.Contains(s.Log(), "c2VjcmV0OnNlc2FtZQ") {
		t.Errorf("the log has the collector's password:\n%s", s.Log())
	}

	server.Close()
	s = start(server.URL)
	began := time.Now()
	r.exec(tracedSQL, transactions+1)
	r.untilConfirmed()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("without its collector a transaction took %s", took)
	}
	r.until("the dropped span to be counted", func() bool {
		response, err := http.Get("http://" + s.Addr + "/metrics")
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		return err == nil && strings.Contains(string(text), `walstream_trace_spans_total{outcome="dropped",pipeline="`+r.pipeline+`"} 1`)
	})
	if !strings.Contains(s.Log(), "does not take spans: they are dropped") {
		t.Errorf("the log does not say that spans are dropped:\n%s", s.Log())
	}
	r.check(s.Stop(20 * time.Second))
}
