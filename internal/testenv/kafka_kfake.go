package testenv

import (
	"context"
	"path/filepath"
	"sync"

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
	numbers, claimed, err := consecutivePorts(o.Port, o.Brokers)
	if err != nil {
		return err
	}
	f.claimed = claimed
	for _, port := range numbers {
		k.Brokers = append(k.Brokers, address(port))
	}
	f.opts = []kfake.Opt{
		kfake.Ports(numbers...), kfake.DataDir(data), kfake.SyncWrites(),
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

// consecutivePorts are n ports from a fixed first one, or any that are free.
func consecutivePorts(first, n int) ([]int, *ports, error) {
	if first == 0 {
		claimed, err := claimPorts(n)
		if err != nil {
			return nil, nil, err
		}
		return claimed.numbers, claimed, nil
	}
	var numbers []int
	for port := first; port < first+n; port++ {
		numbers = append(numbers, port)
	}
	return numbers, nil, nil
}
