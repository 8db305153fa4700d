package ops

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/walstream/walstream/pkg/pipeline"
)

// TestProbes in each state: an outage must not kill an instance (livez), a standby
// instance is ready, and only a monitor hears of a stall.
func TestProbes(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name                 string
		change               func(*pipeline.Progress)
		live, ready, healthy bool
	}{
		{"streaming", func(*pipeline.Progress) {}, true, true, true},
		{"streaming, the broker is down", func(p *pipeline.Progress) { p.Counters.ProgressAt, p.InFlightEvents = long, 1 }, true, true, false},
		{"streaming, the loop hangs", func(p *pipeline.Progress) { p.At, p.Counters.ProgressAt = long, long }, false, true, false},
		{"standby", func(p *pipeline.Progress) { p.State = pipeline.Standby }, true, true, true},
		{"connecting", func(p *pipeline.Progress) { p.State, p.DownSince = pipeline.Connecting, p.At }, true, false, true},
		{"waiting for long", func(p *pipeline.Progress) { p.State, p.DownSince, p.Reason = pipeline.Waiting, long, "cut off" }, true, false, false},
		{"draining", func(p *pipeline.Progress) { p.State = pipeline.Draining }, true, false, true},
		{"paused for long", func(p *pipeline.Progress) { p.State, p.Since, p.Reason = pipeline.Paused, long, "paused by ops" }, true, true, true},
		{"refused", func(p *pipeline.Progress) { p.State, p.Reason = pipeline.Refused, "no slot" }, true, false, false},
		{"stopped", func(p *pipeline.Progress) { p.State = pipeline.Stopped }, true, false, true},
	} {
		p := streaming()
		c.change(p)
		cfg := testConfig(p)
		h := handler(cfg, NewMetrics(cfg), &history{})
		for path, want := range map[string]bool{"/livez": c.live, "/readyz": c.ready, "/healthz": c.healthy} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			var body struct {
				OK     bool   `json:"ok"`
				State  string `json:"state"`
				Reason string `json:"reason"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if got := w.Code == http.StatusOK; got != want || body.OK != want || body.State != string(p.State) {
				t.Errorf("%s: %s answers %d %s", c.name, path, w.Code, w.Body)
			}
			if path == "/healthz" && !want && body.Reason == "" {
				t.Errorf("%s: unhealthy without a reason", c.name)
			}
		}
	}
}

func TestServerServesAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg := testConfig(streaming())
	cfg.Listen = "127.0.0.1:0"
	server, err := Listen(cfg, NewMetrics(cfg))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/", "/status", "/metrics", "/livez", "/readyz", "/healthz"} {
		response, err := client.Get("http://" + server.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	server.Close()
	cfg.Listen = "127.0.0.1:1:1"
	if _, err := Listen(cfg, NewMetrics(cfg)); err == nil {
		t.Error("an address that is none is listened on")
	}
}
