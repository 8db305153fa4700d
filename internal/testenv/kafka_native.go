package testenv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// broker is a Kafka node, broker and controller in one, that is a child
// process of ours.
type broker struct {
	node    int
	data    string
	install kafkaInstall
	jvm     []string
	// port serves clients that reach the broker directly. Clients that come in
	// by behind are told to find it at proxied, where a Proxy listens.
	port, controller, behind, proxied int

	child *child
}

// cluster is a set of brokers.
type cluster struct {
	nodes   []*broker
	temp    *tempDir
	claimed *ports
}

const portsPerBroker = 4

func nativeKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	install, err := findKafka(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	k := &Kafka{From: Native, server: c}
	if err := c.prepare(ctx, o, install); err != nil {
		c.close()
		return nil, err
	}
	for _, b := range c.nodes {
		k.Brokers = append(k.Brokers, address(b.port))
	}
	if err := k.Start(ctx); err != nil {
		c.close()
		return nil, err
	}
	return k, nil
}

func (c *cluster) prepare(ctx context.Context, o KafkaOptions, install kafkaInstall) error {
	data := o.DataDir
	if data == "" {
		temp, err := newTempDir(ctx, "kafka", nil)
		if err != nil {
			return err
		}
		c.temp, data = temp, temp.path
	}
	data, err := filepath.Abs(data)
	if err != nil {
		return err
	}
	if c.claimed, err = claimPorts(portsPerBroker * o.Brokers); err != nil {
		return err
	}
	for i := range o.Brokers {
		b := &broker{node: i + 1, data: filepath.Join(data, fmt.Sprintf("broker-%d", i+1)), install: install, jvm: slices.Concat(kafkaJVM, o.JVM)}
		b.ports(c.claimed.numbers[i*portsPerBroker:])
		if o.Port != 0 {
			b.port = o.Port + i
		}
		c.nodes = append(c.nodes, b)
	}
	for _, b := range c.nodes {
		if err := b.prepare(ctx, c.nodes, o.Props); err != nil {
			return err
		}
	}
	return nil
}

// newBroker is a cluster of one on free ports.
func newBroker(ctx context.Context, install kafkaInstall, data string) (*broker, *ports, error) {
	claimed, err := claimPorts(portsPerBroker)
	if err != nil {
		return nil, nil, err
	}
	b := &broker{node: 1, data: data, install: install, jvm: kafkaJVM}
	b.ports(claimed.numbers)
	return b, claimed, b.prepare(ctx, []*broker{b}, nil)
}

func (b *broker) ports(free []int) {
	b.port, b.controller, b.behind, b.proxied = free[0], free[1], free[2], free[3]
}

// prepare makes the data directory and the configuration.
func (b *broker) prepare(ctx context.Context, all []*broker, props map[string]string) error {
	if !exists(filepath.Join(b.data, "meta.properties")) {
		format, err := formatKafka(ctx, b.install, b.node)
		if err != nil {
			return err
		}
		if err := copyTree(format, b.data, nil); err != nil {
			return err
		}
	}
	settings := b.settings(all, props)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", name, strings.ReplaceAll(settings[name], `\`, `\\`))
	}
	return os.WriteFile(b.propertiesPath(), []byte(text.String()), 0o600)
}

// settings are the broker's; a cluster of three or more replicates as one in
// production would.
func (b *broker) settings(all []*broker, props map[string]string) map[string]string {
	var voters []string
	for _, voter := range all {
		voters = append(voters, fmt.Sprintf("%d@%s", voter.node, address(voter.controller)))
	}
	replicas := fmt.Sprint(min(len(all), 3))
	inSync := fmt.Sprint(min(len(all), 2))
	settings := map[string]string{
		"process.roles":                            "broker,controller",
		"node.id":                                  fmt.Sprint(b.node),
		"controller.quorum.voters":                 strings.Join(voters, ","),
		"controller.listener.names":                "CONTROLLER",
		"listeners":                                fmt.Sprintf("DIRECT://%s,BEHIND://%s,CONTROLLER://%s", address(b.port), address(b.behind), address(b.controller)),
		"advertised.listeners":                     fmt.Sprintf("DIRECT://%s,BEHIND://%s", address(b.port), address(b.proxied)),
		"listener.security.protocol.map":           "DIRECT:PLAINTEXT,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":               "DIRECT",
		"log.dirs":                                 filepath.ToSlash(b.data),
		"auto.create.topics.enable":                "false",
		"default.replication.factor":               replicas,
		"min.insync.replicas":                      inSync,
		"offsets.topic.replication.factor":         replicas,
		"offsets.topic.num.partitions":             "4",
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            inSync,
		"transaction.state.log.num.partitions":     "4",
		"group.initial.rebalance.delay.ms":         "0",
		// A killed broker may come back only after its session has ended, which
		// takes 9 s by default; much less, and a busy machine fences brokers.
		"broker.session.timeout.ms":    "5000",
		"broker.heartbeat.interval.ms": "500",
	}
	maps.Copy(settings, props)
	return settings
}

// Kafka takes every directory in its data for a partition, files it leaves be.
func (b *broker) propertiesPath() string { return filepath.Join(b.data, "server.properties") }
func (b *broker) logPath() string        { return filepath.Join(b.data, serverLog) }

func (b *broker) start() error {
	if b.running() {
		return nil
	}
	log, err := os.OpenFile(b.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	args := slices.Clone(b.jvm)
	if b.install.archive != "" {
		args = append(args, "-XX:SharedArchiveFile="+b.install.archive)
	}
	args = append(args,
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", b.install.classpath, "kafka.Kafka", b.propertiesPath())
	cmd := exec.Command(b.install.java, args...)
	cmd.Dir = b.data
	cmd.Stdout, cmd.Stderr = log, log
	confine(cmd, nil, syscall.SIGKILL)
	b.child, err = startChild(cmd)
	return err
}

// pid is the broker's process id, 0 when it does not run.
func (c *cluster) pid(node int) int {
	if !c.running(node) {
		return 0
	}
	return c.nodes[node].child.pid()
}

func (b *broker) running() bool { return b.child != nil && b.child.running() }

// stop lets the broker write everything and leave the cluster. It may wait a
// while for a quorum that is gone, and is then killed.
func (b *broker) stop() error {
	if !b.running() {
		return nil
	}
	if err := b.child.signal(syscall.SIGTERM, 20*time.Second); err != nil {
		return b.kill()
	}
	return nil
}

func (b *broker) kill() error {
	if !b.running() {
		return nil
	}
	return b.child.signal(os.Kill, 10*time.Second)
}

func (c *cluster) start(_ context.Context, node int) error { return c.nodes[node].start() }
func (c *cluster) stop(node int) error                     { return c.nodes[node].stop() }
func (c *cluster) kill(node int) error                     { return c.nodes[node].kill() }
func (c *cluster) running(node int) bool                   { return c.nodes[node].running() }
func (c *cluster) log(node int) string                     { return tail(c.nodes[node].logPath()) }

func (c *cluster) behind() (listen, upstream []string, done func()) {
	for _, b := range c.nodes {
		listen = append(listen, address(b.proxied))
		upstream = append(upstream, address(b.behind))
	}
	return listen, upstream, nil
}

// close ends the brokers: kept data is left in order, temporary data is not
// worth the wait.
func (c *cluster) close() {
	for _, b := range c.nodes {
		if c.temp == nil {
			_ = b.stop()
		}
		_ = b.kill()
	}
	c.temp.remove()
	c.claimed.release()
}
