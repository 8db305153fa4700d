package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/walstream/walstream/internal/connect"
	"github.com/walstream/walstream/internal/testenv"
)

// debezium is its PostgreSQL connector with the outbox event router on a Connect
// worker of its own, which sends the same records as walstream but for walstream's
// own headers. Its default is its defaults, as they are.
type debezium struct {
	label, short string
	settings     map[string]string
	exactlyOnce  bool
}

func (c debezium) name() string { return c.label }

func (debezium) version(context.Context) string { return connect.Versions }

// addDebeziums adds those that are asked for, by words; where Java or Maven lacks,
// none is run, and that is said.
func (f *field) addDebeziums(ctx context.Context, words []string) error {
	eo := connect.Tuned()
	maps.Copy(eo, connect.ExactlyOnce())
	all := []debezium{
		{nameDebezium, "default", nil, false},
		{nameDebeziumWell, "tuned", connect.Tuned(), false},
		{nameDebeziumEO, "exactly-once", eo, true},
	}
	var found []contender
	for _, word := range words {
		before := len(found)
		for _, c := range all {
			if word == "debezium" || word == "debezium-"+c.short {
				found = append(found, c)
			}
		}
		if len(found) == before {
			return fmt.Errorf("no contender %q: socket, debezium, debezium-default, debezium-tuned, debezium-exactly-once", word)
		}
	}
	if len(found) == 0 {
		return nil
	}
	_, err := connect.Jars(ctx)
	var unavailable *testenv.UnavailableError
	if errors.As(err, &unavailable) {
		for _, c := range found {
			f.without(err, c.name())
		}
		return nil
	}
	f.add(found...)
	return err
}

func (c debezium) slot(w *world, round int) string {
	return fmt.Sprintf("debezium_%d_%s_%d", w.number, strings.ReplaceAll(c.short, "-", "_"), round)
}

func (c debezium) group(w *world, round int) string {
	return fmt.Sprintf("bench-%d-%s-%d", w.number, c.short, round)
}

// connector reads the columns that walstream maps, from the same publication.
func (c debezium) connector(w *world, round int) *connect.Connector {
	settings := map[string]string{
		"message.prefix.exclude.list": "bench", // load's, behind the last row
		"publication.autocreate.mode": "disabled", "key.converter": "io.debezium.converters.BinaryDataConverter",
		"transforms.outbox.table.field.event.id":              "id",
		"transforms.outbox.table.field.event.key":             "key",
		"transforms.outbox.route.by.field":                    "topic",
		"transforms.outbox.route.topic.replacement":           "${routedByValue}",
		"transforms.outbox.table.fields.additional.placement": "event_type:header",
	}
	maps.Copy(settings, c.settings)
	return &connect.Connector{
		Name: c.slot(w, round), Postgres: w.pg, Database: "postgres", Table: "public.outbox",
		Slot: c.slot(w, round), Publication: publication, Settings: settings,
	}
}

// prepare makes the slot, which the connector then takes where it is, and the
// worker's topics, which a worker in life has.
func (c debezium) prepare(ctx context.Context, w *world, round int) error {
	for _, kind := range []string{"configs", "offsets", "status"} {
		compact := "compact"
		made, err := w.admin.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &compact}, c.group(w, round)+"."+kind)
		if err := errors.Join(err, made.Err); err != nil {
			return err
		}
	}
	_, err := w.db.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, c.slot(w, round))
	return err
}

// workerJVM is what Kafka's scripts start a worker with.
var workerJVM = []string{
	"-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
}

// connected is a worker with its connector.
type connected struct {
	*connect.Worker
	connector *connect.Connector
	from      time.Time
}

func (c debezium) start(ctx context.Context, w *world, round int) (process, error) {
	worker, err := connect.New(ctx, connect.Options{Group: c.group(w, round), Brokers: w.kafka.Brokers, ExactlyOnce: c.exactlyOnce, JVM: workerJVM})
	if err != nil {
		return nil, err
	}
	p := &connected{Worker: worker, connector: c.connector(w, round), from: time.Now()}
	err = worker.Launch()
	if err == nil {
		err = worker.WaitAnswer(ctx)
	}
	if err == nil {
		err = worker.Put(ctx, p.connector.Name, p.connector.Config())
	}
	if err != nil {
		worker.Close()
		return nil, err
	}
	return p, nil
}

func (p *connected) pid() int                        { return p.Pid() }
func (p *connected) began() time.Time                { return p.from }
func (p *connected) ready(ctx context.Context) error { return p.WaitStreaming(ctx, p.connector) }
func (p *connected) kill()                           { p.Close() }

// quietLimit is how long the ends must not move to be the ends: in exactly-once
// they count the markers of the transactions too.
const quietLimit = 2 * time.Second

func (p *connected) done(_ context.Context, quiet time.Duration) (bool, error) {
	return quiet > quietLimit, nil
}

func (p *connected) failed(ctx context.Context) error {
	if err := p.Failed(ctx, p.connector.Name); err != nil {
		return fmt.Errorf("%w\n%s", err, p.Log())
	}
	return nil
}

func (p *connected) stop() (time.Duration, error) {
	if err := p.Stop(); err != nil {
		return 0, err
	}
	return p.Usage().UserTime() + p.Usage().SystemTime(), nil
}

func (c debezium) drain(ctx context.Context, w *world, round int) (sample, error) {
	return drainInto(ctx, w, c, round)
}
