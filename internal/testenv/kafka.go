package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KafkaOptions says what cluster is wanted. The zero value is a throw-away one
// with one broker, kfake where no real one can be had.
type KafkaOptions struct {
	// Brokers is their number; 0 is one.
	Brokers int
	// Real refuses kfake.
	Real bool
	// Props are broker settings over ours. kfake takes those it knows.
	Props map[string]string
	// DataDir is kept and used again. Empty: a temporary one.
	DataDir string
	// Port is the first broker's; the others follow. 0 takes free ones below
	// the ephemeral range.
	Port int
	// JVM are flags over ours, which make a native broker small and quick to
	// start, e.g. "-Xmx2g".
	JVM []string
}

// Kafka is a running cluster.
type Kafka struct {
	Brokers []string // addresses on loopback, one for each broker
	From    string   // Given, Docker, Native or Kfake

	server kafkaServer // nil when given
}

// kafkaServer is a cluster that we may stop, whole or by broker.
type kafkaServer interface {
	start(ctx context.Context, node int) error
	stop(node int) error
	kill(node int) error
	running(node int) bool
	log(node int) string
	// behind returns where proxies must listen, and the listeners that send
	// their clients there; done says that the proxies are gone.
	behind() (listen, upstream []string, done func())
	close()
}

// StartKafka starts a cluster of its own, for programs. Close ends it.
func StartKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	return startKafka(ctx, o, false)
}

func startKafka(ctx context.Context, o KafkaOptions, shared bool) (*Kafka, error) {
	o.Brokers = max(o.Brokers, 1)
	ways := []way[*Kafka]{
		{Given, func() (*Kafka, error) { return givenKafka(ctx, shared) }},
		{Docker, func() (*Kafka, error) { return dockerKafka(ctx, o) }},
		{Native, func() (*Kafka, error) { return nativeKafka(ctx, o) }},
	}
	if !o.Real && !requireReal() {
		ways = append(ways, way[*Kafka]{Kfake, func() (*Kafka, error) { return kfakeKafka(ctx, o) }})
	}
	return firstOf("Kafka", ways...)
}

func givenKafka(ctx context.Context, shared bool) (*Kafka, error) {
	text := os.Getenv(EnvKafkaBrokers)
	if text == "" {
		return nil, closed("%s is not set", EnvKafkaBrokers)
	}
	if !shared {
		return nil, closed("the cluster of %s may not be stopped or set up", EnvKafkaBrokers)
	}
	k := &Kafka{Brokers: strings.Split(text, ","), From: Given}
	return k, k.ready(ctx)
}

// NewKafka starts a cluster of the test's own, which it may stop and kill; it
// ends with the test.
func NewKafka(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	k, err := StartKafka(t.Context(), o)
	if err != nil {
		SkipOrFail(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() && k.server != nil {
			for node := range k.Brokers {
				t.Logf("Kafka's broker %d at %s: %s", node, k.Brokers[node], k.server.log(node))
			}
		}
		k.Close()
	})
	k.announce(t)
	return k
}

// SharedKafka returns the test process's cluster, started by the first caller.
// It must not be stopped.
func SharedKafka(t testing.TB) *Kafka {
	t.Helper()
	k, err := shared.kafka.get(func() (*Kafka, error) {
		// Not the test's context: the cluster outlives it.
		return startKafka(context.Background(), KafkaOptions{}, true)
	})
	if err != nil {
		SkipOrFail(t, err)
	}
	k.announce(t)
	return k
}

// CreateTopic makes a topic of the test's own, replicated as the brokers do by
// default, and returns its name. It is deleted at the end of the test.
func (k *Kafka) CreateTopic(t testing.TB, partitions int32, settings map[string]string) string {
	t.Helper()
	configs := make(map[string]*string, len(settings))
	for name, value := range settings {
		configs[name] = &value
	}
	topic := strings.ReplaceAll(databaseName(t.Name()), "_", "-")
	err := k.administer(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(t.Context(), partitions, -1, configs, topic)
		return err
	})
	if err != nil {
		t.Fatalf("testenv: create a topic: %v", err)
	}
	t.Cleanup(func() {
		if k.server != nil && k.runningBrokers() == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		// A leftover harms nobody: names are unique.
		_ = k.administer(func(admin *kadm.Client) error {
			_, err := admin.DeleteTopic(ctx, topic)
			return err
		})
	})
	return topic
}

func (k *Kafka) administer(do func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	return do(kadm.NewClient(client))
}

// announce says in the test's log when it proves less than it could.
func (k *Kafka) announce(t testing.TB) {
	t.Helper()
	if k.From == Kfake {
		t.Log("testenv: kfake, not the real broker")
	}
}

// Stop stops brokers in good order, all of them when none is named, and waits.
func (k *Kafka) Stop(nodes ...int) error {
	return k.each("stop", nodes, func(node int) error { return k.server.stop(node) })
}

// Kill ends brokers at once, all of them when none is named. kfake cannot be
// killed; it is stopped.
func (k *Kafka) Kill(nodes ...int) error {
	return k.each("kill", nodes, func(node int) error { return k.server.kill(node) })
}

// Start starts brokers that were stopped or killed on the same data and ports,
// all of them when none is named, and returns when the cluster answers.
func (k *Kafka) Start(ctx context.Context, nodes ...int) error {
	err := k.each("start", nodes, func(node int) error { return k.server.start(ctx, node) })
	if err != nil {
		return err
	}
	return k.ready(ctx)
}

func (k *Kafka) each(what string, nodes []int, do func(node int) error) error {
	if k.server == nil {
		return fmt.Errorf("%s Kafka: brokers that were given are not ours to %s", what, what)
	}
	if len(nodes) > 0 && k.From == Kfake {
		return fmt.Errorf("%s a broker: kfake stops and starts whole: name none", what)
	}
	if len(nodes) == 0 {
		for node := range k.Brokers {
			nodes = append(nodes, node)
		}
	}
	for _, node := range nodes {
		if err := do(node); err != nil {
			return fmt.Errorf("%s Kafka's broker %d at %s: %w", what, node, k.Brokers[node], err)
		}
	}
	return nil
}

// Pid is a broker's process id, 0 when it is not a process of ours.
func (k *Kafka) Pid(node int) int {
	if c, ok := k.server.(*cluster); ok {
		return c.pid(node)
	}
	return 0
}

// Close ends the cluster and removes its data if that is temporary.
func (k *Kafka) Close() {
	if k.server != nil {
		k.server.close()
	}
}

// ready waits until every broker that runs answers and knows of the others.
func (k *Kafka) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for node, broker := range k.Brokers {
		if k.server != nil && !k.server.running(node) {
			continue
		}
		if err := k.brokerReady(ctx, node, broker); err != nil {
			return fmt.Errorf("Kafka's broker at %s: %w", broker, err)
		}
	}
	return nil
}

func (k *Kafka) brokerReady(ctx context.Context, node int, broker string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		// Asked directly only once somebody listens: the client's own pauses
		// between attempts are longer than a start.
		known := 0
		if listening(broker) {
			var brokers kadm.BrokerDetails
			brokers, err = kadm.NewClient(client).ListBrokers(ctx)
			known = len(brokers)
		}
		if known >= max(k.runningBrokers(), 1) {
			return nil
		}
		if k.server != nil && !k.server.running(node) {
			return fmt.Errorf("ended during its start\n%s", k.server.log(node))
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("knows %d of %d brokers: %w", known, k.runningBrokers(), errors.Join(err, ctx.Err()))
			if k.server != nil {
				err = fmt.Errorf("%w\n%s", err, k.server.log(node))
			}
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (k *Kafka) runningBrokers() int {
	if k.server == nil {
		return 1
	}
	count := 0
	for node := range k.Brokers {
		if k.server.running(node) {
			count++
		}
	}
	return count
}

// NewKfake starts franz-go's fake for a test that wants it and its faults, not
// a stand-in for the real broker, and returns its addresses too.
func NewKfake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatalf("testenv: start kfake: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster, cluster.ListenAddrs()
}
