package ops

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/prune"
	"github.com/walstream/walstream/pkg/repeat"
)

// Config of what others see.
type Config struct {
	Listen           string // host:port
	Pipeline         string
	Slot             string
	Delivery         string
	Version          string
	StallTimeout     time.Duration
	MaxInFlightBytes int
	// MaxRetainedWAL is how much WAL the server may keep for the slot before health
	// is red, in bytes; 0: no limit.
	MaxRetainedWAL int64
	Progress       func() *pipeline.Progress
	// Retention is what takes old rows away beside the stream; nil: nothing does.
	Retention func() *prune.Report
	// Redact takes secrets out of a message: one of a library may quote an address
	// with its password. May be nil.
	Redact func(string) string
	// Access says who may ask.
	Access Access
	// Pprof serves the profiles of the Go runtime.
	Pprof bool
	// Log is told when its level is changed. The level is zerolog's global one.
	Log zerolog.Logger
}

// Server answers over HTTP until Close.
type Server struct {
	http     *http.Server
	listener net.Listener
	stop     chan struct{}
	running  sync.WaitGroup
}

// Listen binds the address and serves in the background.
func Listen(cfg Config, metrics *Metrics) (*Server, error) {
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and probes: %w (another address with --http-listen)", err)
	}
	if cfg.Access.TLS != nil {
		listener = tls.NewListener(listener, cfg.Access.serverTLS())
	}
	past := &history{}
	s := &Server{
		http: &http.Server{
			Handler: handler(cfg, metrics, past), ReadHeaderTimeout: 5 * time.Second,
			// A client that stumbles in the handshake is no news of the pipeline.
			ErrorLog: log.New(io.Discard, "", 0),
		},
		listener: listener, stop: make(chan struct{}),
	}
	s.running.Go(func() { past.watch(cfg.Progress, s.stop) })
	s.running.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("walstream: bug: http server: %v", err))
		}
	})
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops serving; requests under way have a moment to end.
func (s *Server) Close() {
	close(s.stop)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	s.running.Wait()
}

func handler(cfg Config, metrics *Metrics, past *history) http.Handler {
	redact := cfg.Redact
	if redact == nil {
		redact = func(text string) string { return text }
	}
	mux := http.NewServeMux()
	probe := func(path string, verdict func(*pipeline.Progress, time.Time) (ok bool, reason string)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			p := cfg.Progress()
			ok, reason := verdict(p, time.Now())
			code := http.StatusOK
			if !ok {
				code = http.StatusServiceUnavailable
			}
			body := map[string]any{"ok": ok, "state": p.State}
			if cfg.Access.allows(r) {
				body["reason"] = redact(reason)
			}
			answer(w, code, body)
		})
	}
	probe("/livez", live)
	probe("/readyz", ready)
	probe("/healthz", func(p *pipeline.Progress, now time.Time) (bool, string) { return healthy(&cfg, p, now) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s := newStatus(cfg, cfg.Progress(), time.Now())
		s.CommitToAck, s.Errors = metrics.commitToAck(), past.list()
		s.redact(redact)
		answer(w, http.StatusOK, s)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	operate(mux, cfg)
	pages(mux)
	return cfg.Access.guard(mux)
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client left
}

// liveLimit is how long the loop may not have ticked: it ticks ten times a
// second.
const liveLimit = 30 * time.Second

func live(p *pipeline.Progress, now time.Time) (bool, string) {
	if (p.State == pipeline.Streaming || p.State == pipeline.Snapshotting) && now.Sub(p.At) > liveLimit {
		return false, fmt.Sprintf("the loop has not ticked for %s", now.Sub(p.At).Round(time.Second))
	}
	return true, p.Reason
}

// ready: at work, or able to take it up. A paused instance is: were it not, a
// pause would hold up every rolling update, and the probe would say of a machine
// what an operator decided about a pipeline.
func ready(p *pipeline.Progress, _ time.Time) (bool, string) {
	return p.State == pipeline.Streaming || p.State == pipeline.Snapshotting || p.State == pipeline.Standby || p.State == pipeline.Paused, p.Reason
}

func healthy(cfg *Config, p *pipeline.Progress, now time.Time) (bool, string) {
	if p.State == pipeline.Refused {
		return false, p.Reason
	}
	why, _ := cause(p)
	if stalled := p.Stalled(now); stalled > cfg.StallTimeout {
		return false, fmt.Sprintf("no work done for %s: %s", stalled.Round(time.Second), why)
	}
	if b := budgetOf(cfg, p, now); b != nil && b.Level == budgetSpent {
		return false, b.text()
	}
	if p.Silent {
		return true, why
	}
	return true, p.Reason
}

// Watch tells of it whenever the answer of /healthz turns, and at growing pauses
// while it is red, until ctx ends: who reads only the log learns of an outage too.
// Red is for how long it has been, or was.
func Watch(ctx context.Context, cfg Config, tell func(healthy bool, reason string, red time.Duration)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var trouble repeat.Episode // each time it turns red is one
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			ok, reason := healthy(&cfg, cfg.Progress(), now)
			if ok && trouble.Open(now) || !ok && trouble.Trouble("", now) {
				tell(ok, reason, trouble.Lasted(now))
			}
			if ok {
				trouble.Well(now)
			}
		}
	}
}
