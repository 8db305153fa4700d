package testenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy carries TCP connections and breaks them on demand. It has one link for
// each upstream; a fault is one of all links, new connections included, and
// lasts until Restore. Faults add up.
type Proxy struct {
	Addr  string   // of the first link
	Addrs []string // of all

	mu      sync.Mutex
	links   []*toxiproxy.Proxy
	release func()
}

// NewProxy starts a proxy to upstream that ends with the test. A client of
// Kafka needs Kafka.NewProxy: it would leave this one for the addresses that the
// brokers tell it.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p, err := StartProxy(upstream)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy starts a proxy, for programs. Close ends it.
func StartProxy(upstream string) (*Proxy, error) {
	claimed, err := claimPorts(1)
	if err != nil {
		return nil, err
	}
	return startProxy([]string{address(claimed.numbers[0])}, []string{upstream}, claimed.release)
}

func startProxy(listen, upstream []string, release func()) (*Proxy, error) {
	p := &Proxy{Addr: listen[0], Addrs: listen, release: release}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for i := range listen {
		link := toxiproxy.NewProxy(server, fmt.Sprint(i), listen[i], upstream[i])
		if err := link.Start(); err != nil {
			p.Close()
			return nil, fmt.Errorf("start a proxy at %s: %w", listen[i], err)
		}
		p.links = append(p.links, link)
	}
	return p, nil
}

// Latency delays every answer. Requests sent meanwhile are delayed alongside,
// not one after the other.
func (p *Proxy) Latency(d time.Duration) {
	p.toxic("latency", "downstream", fmt.Sprintf(`{"latency": %d}`, d.Milliseconds()))
}

// Bandwidth limits requests to a number of kilobytes a second.
func (p *Proxy) Bandwidth(kilobytes int) {
	p.toxic("bandwidth", "upstream", fmt.Sprintf(`{"rate": %d}`, kilobytes))
}

// Blackhole swallows everything both ways; connections stay open and silent.
func (p *Proxy) Blackhole() {
	p.toxic("timeout", "upstream", `{"timeout": 0}`)
	p.SwallowAnswers()
}

// SwallowAnswers lets requests through and nothing back: they are carried out
// and never acknowledged.
func (p *Proxy) SwallowAnswers() { p.toxic("timeout", "downstream", `{"timeout": 0}`) }

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, link := range p.links {
		link.Stop()
	}
}

// Drop closes all connections; new ones are carried.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, link := range p.links {
		if link.Enabled {
			link.Stop()
			p.revive(link)
		}
	}
}

// Restore ends all faults. Connections from which bytes were swallowed are
// closed: neither end could make sense of the rest.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, link := range p.links {
		link.Toxics.ResetToxics(context.Background())
		if !link.Enabled {
			p.revive(link)
		}
	}
}

// revive panics: the port is claimed, so only a bug can have taken it.
func (p *Proxy) revive(link *toxiproxy.Proxy) {
	if err := link.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		panic(fmt.Sprintf("testenv: start the proxy at %s again: %v", link.Listen, err))
	}
}

// toxic adds a fault of toxiproxy's to every link; one of the same kind is
// replaced.
func (p *Proxy) toxic(kind, stream, attributes string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := kind + "_" + stream
	for _, link := range p.links {
		if link.Toxics.GetToxic(name) != nil {
			_ = link.Toxics.RemoveToxic(context.Background(), name)
		}
		text := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "toxicity": 1, "attributes": %s}`, name, kind, stream, attributes)
		if _, err := link.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			panic(fmt.Sprintf("testenv: toxic %s: %v", text, err))
		}
	}
}

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() {
	p.Cut()
	if p.release != nil {
		p.release()
	}
}

// NewProxy starts a proxy to every broker that ends with the test. A client
// given its Addrs stays behind it: the brokers tell it no other addresses. It
// needs a cluster of the test's own, and there is one at a time.
func (k *Kafka) NewProxy(t testing.TB) *Proxy {
	t.Helper()
	p, err := k.StartProxy()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy is NewProxy for programs.
func (k *Kafka) StartProxy() (*Proxy, error) {
	if k.server == nil {
		return nil, fmt.Errorf("proxy to Kafka: brokers that were given do not advertise one")
	}
	listen, upstream, release := k.server.behind()
	return startProxy(listen, upstream, release)
}
