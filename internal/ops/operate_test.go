package ops

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
)

func TestLogLevel(t *testing.T) {
	before := zerolog.GlobalLevel()
	defer zerolog.SetGlobalLevel(before)
	zerolog.SetGlobalLevel(zerolog.ErrorLevel)
	var out bytes.Buffer
	cfg := testConfig(streaming())
	cfg.Log = zerolog.New(&out)
	h := handler(cfg, NewMetrics(cfg), &history{})
	ask := func(method, body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/loglevel", strings.NewReader(body)))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for _, c := range []struct {
		method, body string
		code         int
		says         string
		then         zerolog.Level
	}{
		{http.MethodGet, "", 200, `{"level":"error"}`, zerolog.ErrorLevel},
		{http.MethodPut, "warn\n", 200, `{"level":"warn","was":"error"}`, zerolog.WarnLevel},
		{http.MethodPut, "DEBUG", 200, `{"level":"debug","was":"warn"}`, zerolog.DebugLevel},
		{http.MethodPut, "debug", 200, `{"level":"debug","was":"debug"}`, zerolog.DebugLevel},
		{http.MethodPut, "trace", 400, "debug info warn error", zerolog.DebugLevel},
		{http.MethodPut, "", 400, "debug info warn error", zerolog.DebugLevel},
		{http.MethodPut, strings.Repeat("info", 1000), 400, "debug info warn error", zerolog.DebugLevel},
		{http.MethodPost, "info", 405, "", zerolog.DebugLevel},
	} {
		if code, text := ask(c.method, c.body); code != c.code || !strings.Contains(text, c.says) || zerolog.GlobalLevel() != c.then {
			t.Errorf("%s %.10q answers %d %s, level %s", c.method, c.body, code, text, zerolog.GlobalLevel())
		}
	}
	// Told at any level, and only when something changed.
	if lines := strings.Count(out.String(), "log level changed"); lines != 2 || !strings.Contains(out.String(), `"from":"error","to":"warn"`) {
		t.Errorf("the log says\n%s", out.String())
	}
}

func TestPprof(t *testing.T) {
	for _, on := range []bool{false, true} {
		cfg := testConfig(streaming())
		cfg.Pprof = on
		h := handler(cfg, NewMetrics(cfg), &history{})
		for path, there := range map[string]bool{
			"/debug/pprof/": on, "/debug/pprof/heap": on, "/debug/pprof/goroutine?debug=1": on,
			"/debug/pprof/profile?seconds=1": on, "/debug/pprof/trace?seconds=0.01": on, "/debug/pprof/symbol": on,
			"/debug/pprof/cmdline": false, // flags may hold secrets
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			if got := w.Code == http.StatusOK; got != there {
				t.Errorf("pprof %v: %s answers %d", on, path, w.Code)
			}
		}
	}
}

// Both are for those who may ask, as everything but the probes.
func TestOperateIsGuarded(t *testing.T) {
	before := zerolog.GlobalLevel()
	defer zerolog.SetGlobalLevel(before)
	cfg := testConfig(streaming())
	cfg.Pprof = true
	cfg.Access.Token = func() (string, error) { return "sesame", nil }
	h := handler(cfg, NewMetrics(cfg), &history{})
	for token, want := range map[string]int{"": 401, "wrong": 401, "sesame": 200} {
		for _, r := range []*http.Request{
			httptest.NewRequest(http.MethodPut, "/loglevel", strings.NewReader("warn")),
			httptest.NewRequest(http.MethodGet, "/loglevel", http.NoBody),
			httptest.NewRequest(http.MethodGet, "/debug/pprof/heap", http.NoBody),
		} {
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%s %s with token %q answers %d, want %d", r.Method, r.URL, token, w.Code, want)
			}
		}
	}
}

// A monitor that reads only the log: red, still red at growing pauses, green with
// the time it took; and again.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		p := streaming()
		cfg := testConfig(p)
		cfg.StallTimeout = time.Minute
		cfg.Progress = func() *pipeline.Progress {
			mu.Lock()
			defer mu.Unlock()
			return p
		}
		be := func(state pipeline.State, reason string) {
			mu.Lock()
			defer mu.Unlock()
			p = streaming()
			p.State, p.Reason = state, reason
			p.Counters.ProgressAt, p.At = time.Now().Add(1000*time.Hour), time.Now()
		}
		ctx, stop := context.WithCancel(t.Context())
		var lines []string
		var watching sync.WaitGroup
		watching.Go(func() {
			Watch(ctx, cfg, func(ok bool, reason string, red time.Duration) {
				lines = append(lines, strings.TrimSpace(fmt.Sprint(ok, " ", reason, " ", red)))
			})
		})
		be(pipeline.Streaming, "")
		time.Sleep(10*time.Second + time.Millisecond)
		be(pipeline.Refused, "no slot")
		time.Sleep(time.Hour)
		be(pipeline.Streaming, "")
		time.Sleep(time.Second)
		be(pipeline.Refused, "no slot")
		time.Sleep(time.Second)
		stop()
		watching.Wait()
		want := []string{
			"false no slot 0s", "false no slot 1m0s", "false no slot 3m0s", "false no slot 7m0s", "false no slot 15m0s", "false no slot 31m0s",
			"true  1h0m0s", "false no slot 0s",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("told\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	})
}
