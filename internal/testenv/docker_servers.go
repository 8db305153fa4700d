package testenv

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// pgContainer is PostgreSQL's official image.
type pgContainer struct{ *container }

// dockerPostgres runs one. It has no DataDir, and connections reach it from the
// bridge's address, which lines of pg_hba.conf could not name: what asks for
// either goes on to a native one.
func dockerPostgres(ctx context.Context, o PGOptions) (*Postgres, error) {
	if o.DataDir != "" || len(o.HBA) > 0 {
		return nil, closed("a container has no data directory or pg_hba.conf of ours")
	}
	if _, err := engine(); err != nil {
		return nil, err
	}
	major := o.Major
	if major == 0 {
		major = NewestMajor
	}
	claimed, err := claimPorts(1)
	if err != nil {
		return nil, err
	}
	port := o.Port
	if port == 0 {
		port = claimed.numbers[0]
	}
	bindings := make(map[docker.Port][]docker.PortBinding)
	publish(bindings, 5432, port)
	c, err := runContainer(ctx, claimed, &dockertest.RunOptions{
		Repository: "postgres", Tag: fmt.Sprint(major),
		Env: []string{
			"POSTGRES_USER=" + superuser, "POSTGRES_PASSWORD=" + superuserPassword,
			"POSTGRES_INITDB_ARGS=--encoding=UTF8 --locale=C",
		},
		Cmd:          pgCommand(o),
		PortBindings: bindings, ExposedPorts: exposed(bindings),
	})
	if err != nil {
		claimed.release()
		return nil, err
	}
	p := &Postgres{
		Host: "127.0.0.1", Port: port, User: superuser, Password: superuserPassword,
		Major: major, From: Docker, server: pgContainer{c},
	}
	if err := p.ready(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// pgCommand gives the settings on the command line: unlike with a native
// server, ALTER SYSTEM cannot change these.
func pgCommand(o PGOptions) []string {
	settings := pgSettings(o)
	command := []string{"postgres"}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		command = append(command, "-c", name+"="+settings[name])
	}
	return command
}

func (p pgContainer) start(ctx context.Context) error { return p.startAgain(ctx) }

func (p pgContainer) stop(mode string, wait time.Duration) error {
	sig, ok := stopSignals[mode].(syscall.Signal)
	if !ok {
		return fmt.Errorf("no such mode: smart, fast or immediate")
	}
	return p.signal(docker.Signal(sig), wait)
}

func (p pgContainer) kill() error { return p.signal(docker.SIGKILL, 10*time.Second) }

// kafkaContainer is Apache's image with one node.
type kafkaContainer struct {
	*container
	behindPort, proxied int
}

func dockerKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	if o.DataDir != "" || o.Brokers > 1 || len(o.JVM) > 0 {
		return nil, closed("a container is one broker with its own data and JVM flags")
	}
	if _, err := engine(); err != nil {
		return nil, err
	}
	claimed, err := claimPorts(portsPerBroker)
	if err != nil {
		return nil, err
	}
	// A client finds the broker under the port it was told of, so inside and
	// outside are the same.
	b := &broker{node: 1, data: "/tmp/kafka-logs"}
	b.ports(claimed.numbers)
	if o.Port != 0 {
		b.port = o.Port
	}
	bindings := make(map[docker.Port][]docker.PortBinding)
	publish(bindings, b.port, b.port)
	publish(bindings, b.behind, b.behind)
	c, err := runContainer(ctx, claimed, &dockertest.RunOptions{
		Repository: "apache/kafka", Tag: kafkaVersion(),
		Env:          kafkaEnvironment(b, o.Props),
		PortBindings: bindings, ExposedPorts: exposed(bindings),
	})
	if err != nil {
		claimed.release()
		return nil, err
	}
	k := &Kafka{
		Brokers: []string{address(b.port)}, From: Docker,
		server: &kafkaContainer{container: c, behindPort: b.behind, proxied: b.proxied},
	}
	if err := k.ready(ctx); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// kafkaEnvironment names settings as the image's start script wants them.
func kafkaEnvironment(b *broker, props map[string]string) []string {
	settings := b.settings([]*broker{b}, props)
	settings["listeners"] = fmt.Sprintf("DIRECT://:%d,BEHIND://:%d,CONTROLLER://:%d", b.port, b.behind, b.controller)
	env := []string{"CLUSTER_ID=" + kafkaClusterID, "KAFKA_HEAP_OPTS=-Xmx512m"}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		spelled := strings.NewReplacer("_", "__", "-", "___", ".", "_").Replace(name)
		env = append(env, "KAFKA_"+strings.ToUpper(spelled)+"="+settings[name])
	}
	return env
}

func (k *kafkaContainer) start(ctx context.Context, _ int) error { return k.startAgain(ctx) }
func (k *kafkaContainer) stop(int) error                         { return k.signal(docker.SIGTERM, 20*time.Second) }

func (k *kafkaContainer) kill(int) error   { return k.signal(docker.SIGKILL, 10*time.Second) }
func (k *kafkaContainer) running(int) bool { return k.container.running() }
func (k *kafkaContainer) log(int) string   { return k.container.log() }

func (k *kafkaContainer) behind() (listen, upstream []string, done func()) {
	return []string{address(k.proxied)}, []string{address(k.behindPort)}, nil
}
