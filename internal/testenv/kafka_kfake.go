package testenv

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kfake"
)

// fake is kfake in the place of a real cluster: on fixed ports, with its data
// on disk, so that it can be stopped and started.
type fake struct {
	mu      sync.Mutex
	opts    []kfake.Opt
	brokers int
	cluster *kfake.Cluster // nil while stopped
	temp    *tempDir
	claimed *ports
	real    []int // ports the brokers listen on

	// proxied are the ports the brokers tell of while a proxy listens there:
	// a fake has one address a broker, so all its clients go by the proxy then.
	proxied     []int
	advertising atomic.Bool
}

func kfakeKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	f := &fake{brokers: o.Brokers}
	k := &Kafka{From: Kfake, server: f}
	if err := f.prepare(ctx, o, k); err != nil {
		f.close()
		return nil, err
	}
	if err := k.Start(ctx); err != nil {
		f.close()
		return nil, err
	}
	return k, nil
}

func (f *fake) prepare(ctx context.Context, o KafkaOptions, k *Kafka) error {
	data := o.DataDir
	if data == "" {
		temp, err := newTempDir(ctx, "kfake", nil)
		if err != nil {
			return err
		}
		f.temp, data = temp, filepath.Join(temp.path, "data")
	}
	var err error
	if f.claimed, err = claimPorts(2 * o.Brokers); err != nil {
		return err
	}
	f.real, f.proxied = f.claimed.numbers[:o.Brokers], f.claimed.numbers[o.Brokers:]
	for i := range f.real {
		if o.Port != 0 {
			f.real[i] = o.Port + i
		}
	}
	for _, port := range f.real {
		k.Brokers = append(k.Brokers, address(port))
	}
	f.opts = []kfake.Opt{
		kfake.Ports(f.real...), kfake.ListenFn(f.listen), kfake.DataDir(data), kfake.SyncWrites(),
		// Compaction would otherwise wait an hour.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "1000"}),
		kfake.BrokerConfigs(o.Props),
	}
	return nil
}

// start starts the whole cluster with its first broker.
func (f *fake) start(_ context.Context, _ int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster != nil {
		return nil
	}
	var err error
	f.cluster, err = kfake.NewCluster(f.opts...)
	return err
}

func (f *fake) stop(_ int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster != nil {
		f.cluster.Close()
		f.cluster = nil
	}
	return nil
}

func (f *fake) kill(node int) error { return f.stop(node) }

func (f *fake) running(int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cluster != nil
}

func (f *fake) log(int) string { return "(kfake keeps no log)" }

func (f *fake) close() {
	_ = f.stop(0)
	f.temp.remove()
	f.claimed.release()
}

func (f *fake) behind() (listen, upstream []string, done func()) {
	for i := range f.real {
		listen = append(listen, address(f.proxied[i]))
		upstream = append(upstream, address(f.real[i]))
	}
	f.advertising.Store(true)
	return listen, upstream, func() { f.advertising.Store(false) }
}

// listen opens a broker's listener. kfake tells clients the listener's address.
func (f *fake) listen(network, addr string) (net.Listener, error) {
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	proxied := f.proxied[slices.Index(f.real, port)]
	return &advertised{Listener: l, fake: f, proxied: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: proxied}}, nil
}

type advertised struct {
	net.Listener
	fake    *fake
	proxied net.Addr
}

func (a *advertised) Addr() net.Addr {
	if a.fake.advertising.Load() {
		return a.proxied
	}
	return a.Listener.Addr()
}
