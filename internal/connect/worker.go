package connect

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

//go:embed pom.xml
var pom string

// Jars returns the directory of the jars of Connect and Debezium, fetched on first
// use. A *testenv.UnavailableError says that they cannot be had here.
func Jars(ctx context.Context) (string, error) { return testenv.Jars(ctx, "debezium", pom) }

// Options of a worker.
type Options struct {
	Group       string // name of the worker's group, and of its topics
	Brokers     []string
	ExactlyOnce bool     // exactly.once.source.support, which each connector may then require
	JVM         []string // default: as small as a test wants it
	// Settings go over those of the worker.
	Settings map[string]string
}

// testJVM starts quickly; a benchmark wants the whole compiler.
var testJVM = []string{"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// Worker is a Connect worker that is a child process of ours.
type Worker struct {
	process *testenv.Java
}

// startLimit is far beyond the 10 s of an idle machine.
const startLimit = 2 * time.Minute

// Versions of Connect and Debezium, as pom.xml has them.
const Versions = "Debezium 3.6.1.Final on Kafka Connect 4.3.0"

// Start starts a worker, and waits until it answers.
func Start(ctx context.Context, o Options) (*Worker, error) {
	w, err := New(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := w.Start(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// New prepares a worker, for those who want to see it start.
func New(ctx context.Context, o Options) (*Worker, error) {
	jars, err := Jars(ctx)
	if err != nil {
		return nil, err
	}
	if o.JVM == nil {
		o.JVM = testJVM
	}
	process, err := testenv.NewJava(ctx, testenv.JavaOptions{
		Name: "connect", Jars: jars, Main: "org.apache.kafka.connect.cli.ConnectDistributed",
		JVM:        append(o.JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.log.org.reflections=error"),
		Properties: func(port int) map[string]string { return o.properties(port) },
	})
	if err != nil {
		return nil, err
	}
	return &Worker{process}, nil
}

func (o *Options) properties(port int) map[string]string {
	p := map[string]string{
		"bootstrap.servers": strings.Join(o.Brokers, ","), "group.id": o.Group,
		"listeners":            fmt.Sprintf("http://127.0.0.1:%d", port),
		"config.storage.topic": o.Group + ".configs", "offset.storage.topic": o.Group + ".offsets", "status.storage.topic": o.Group + ".status",
		"config.storage.replication.factor": "1", "offset.storage.replication.factor": "1", "status.storage.replication.factor": "1",
		"offset.storage.partitions": "1", "status.storage.partitions": "1",
		// Replaced by each connector.
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		// The plugins are on the class path; looking for others takes seconds.
		"plugin.discovery": "service_load",
		// One worker has nobody to wait for.
		"scheduled.rebalance.max.delay.ms": "0",
	}
	if o.ExactlyOnce {
		p["exactly.once.source.support"] = "enabled"
	}
	for name, value := range o.Settings {
		p[name] = value
	}
	return p
}

// Start starts a worker that was stopped or killed, and waits until it answers.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.Launch(); err != nil {
		return err
	}
	return w.WaitAnswer(ctx)
}

// WaitAnswer waits until a launched worker answers.
func (w *Worker) WaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return w.until(ctx, "the worker to answer", func() (bool, error) {
		err := w.ask(ctx, "GET", "/connectors", nil, nil)
		return err == nil, nil // it is on its way, or until says that it ended
	})
}

// Launch starts the process and waits for nothing.
func (w *Worker) Launch() error { return w.process.Start() }

// Stop is SIGTERM: connectors end in order, and their offsets are written.
func (w *Worker) Stop() error { return w.process.Stop(time.Minute) }

// Kill is kill -9.
func (w *Worker) Kill() error { return w.process.Kill() }

// Close ends the worker for good.
func (w *Worker) Close() { w.process.Close() }

// Pid of its process.
func (w *Worker) Pid() int { return w.process.Pid() }

// Usage of a worker that has ended.
func (w *Worker) Usage() *os.ProcessState { return w.process.Usage() }

// Log is the end of what it wrote.
func (w *Worker) Log() string { return w.process.Log() }

// LogPath is the whole of it, until Close.
func (w *Worker) LogPath() string { return w.process.LogPath() }

const pause = 100 * time.Millisecond

// until asks again and again, as long as the process is there.
func (w *Worker) until(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		done, err := holds()
		if err != nil {
			return fmt.Errorf("wait for %s: %w\n%s", what, err, w.Log())
		}
		if done {
			return nil
		}
		if !w.process.Running() {
			return fmt.Errorf("wait for %s: Kafka Connect ended: %s\n%s", what, w.Usage(), w.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w\n%s", what, ctx.Err(), w.Log())
		case <-time.After(pause):
		}
	}
}
