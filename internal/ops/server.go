package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/walstream/walstream/pkg/pipeline"
)

// Config of the server.
type Config struct {
	Listen       string // host:port
	Pipeline     string
	Slot         string
	Version      string
	StallTimeout time.Duration
	Progress     func() *pipeline.Progress
	Registry     *prometheus.Registry
}

// Server answers over HTTP until Close.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan struct{}
}

// Listen binds the address and serves in the background.
func Listen(cfg Config) (*Server, error) {
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and probes: %w (another address with --http-listen)", err)
	}
	s := &Server{
		http:     &http.Server{Handler: handler(cfg), ReadHeaderTimeout: 5 * time.Second},
		listener: listener, done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("walstream: bug: http server: %v", err))
		}
	}()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops serving; requests under way have a moment to end.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

func handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	probe := func(path string, verdict func(*pipeline.Progress, time.Time) (ok bool, reason string)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			p := cfg.Progress()
			ok, reason := verdict(p, time.Now())
			code := http.StatusOK
			if !ok {
				code = http.StatusServiceUnavailable
			}
			answer(w, code, map[string]any{"ok": ok, "state": p.State, "reason": reason})
		})
	}
	probe("/livez", live)
	probe("/readyz", ready)
	probe("/healthz", func(p *pipeline.Progress, now time.Time) (bool, string) { return healthy(p, now, cfg.StallTimeout) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, newStatus(cfg, cfg.Progress(), time.Now()))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return mux
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client left
}

// liveLimit is how long the loop may not have ticked: it ticks ten times a
// second.
const liveLimit = 30 * time.Second

func live(p *pipeline.Progress, now time.Time) (bool, string) {
	if p.State == pipeline.Streaming && now.Sub(p.At) > liveLimit {
		return false, fmt.Sprintf("the loop has not ticked for %s", now.Sub(p.At).Round(time.Second))
	}
	return true, p.Reason
}

func ready(p *pipeline.Progress, _ time.Time) (bool, string) {
	return p.State == pipeline.Streaming || p.State == pipeline.Standby, p.Reason
}

func healthy(p *pipeline.Progress, now time.Time, stall time.Duration) (bool, string) {
	if p.State == pipeline.Refused {
		return false, p.Reason
	}
	if stalled := p.Stalled(now); stalled > stall {
		return false, fmt.Sprintf("no work done for %s: %s", stalled.Round(time.Second), cause(p))
	}
	if p.Silent {
		return true, cause(p)
	}
	return true, p.Reason
}

func because(trouble string) string {
	if trouble == "" {
		return ""
	}
	return " (" + trouble + ")"
}

// Watch tells change whenever the answer of /healthz turns, until ctx ends: who
// reads only the log learns of an outage too.
func Watch(ctx context.Context, cfg Config, change func(healthy bool, reason string)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	was := true
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if ok, reason := healthy(cfg.Progress(), now, cfg.StallTimeout); ok != was {
				was = ok
				change(ok, reason)
			}
		}
	}
}

// cause names what holds a stalled pipeline up.
func cause(p *pipeline.Progress) string {
	switch {
	case p.Reason != "":
		return p.Reason
	case p.State != pipeline.Streaming && p.State != pipeline.Draining:
		return "not streaming yet"
	case p.InFlightEvents > 0:
		return fmt.Sprintf("%d rows wait for Kafka to acknowledge them", p.InFlightEvents) + because(p.Trouble)
	case p.Confirmed < p.Published:
		return "the checkpoint is not durable: Kafka does not answer" + because(p.Trouble)
	case p.Health.Err != nil:
		return "the ordinary session cannot reach the server"
	case p.Silent:
		return "the server sends nothing though its walsender is alive: it decodes a large transaction, or waits for a synchronized standby slot"
	}
	return "the server has WAL that it does not send"
}
