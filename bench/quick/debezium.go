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

const (
	nameDebezium      = "Debezium, default"
	nameDebeziumTuned = "Debezium, tuned"
	nameDebeziumEO    = "Debezium, tuned, exactly-once"
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

// debeziums are those that are asked for. Where Java or Maven lacks, none is run,
// and that is said.
func debeziums(ctx context.Context, o options) (found []contender, err error) {
	eo := connect.Tuned()
	maps.Copy(eo, connect.ExactlyOnce())
	all := []debezium{
		{nameDebezium, "default", nil, false},
		{nameDebeziumTuned, "tuned", connect.Tuned(), false},
		{nameDebeziumEO, "exactly-once", eo, true},
	}
	for word := range strings.SplitSeq(o.others, ",") {
		before := len(found)
		for _, c := range all {
			if word == "debezium" || word == "debezium-"+c.short {
				found = append(found, c)
			}
		}
		if word != "" && len(found) == before {
			return nil, fmt.Errorf("no contender %q: debezium, debezium-default, debezium-tuned, debezium-exactly-once", word)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	_, err = connect.Jars(ctx)
	var unavailable *testenv.UnavailableError
	if errors.As(err, &unavailable) {
		o.say("Debezium is not run: %v", err)
		return nil, nil
	}
	return found, err
}

func (c debezium) slot(round int) string {
	return fmt.Sprintf("debezium_%s_%d", strings.ReplaceAll(c.short, "-", "_"), round)
}

func (c debezium) group(round int) string { return fmt.Sprintf("bench-%s-%d", c.short, round) }

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
		Name: c.slot(round), Postgres: w.pg, Database: "postgres", Table: "public.outbox",
		Slot: c.slot(round), Publication: publication, Settings: settings,
	}
}

// prepare makes the slot, which the connector then takes where it is, and the
// worker's topics, which a worker in life has.
func (c debezium) prepare(ctx context.Context, w *world, round int) error {
	for _, kind := range []string{"configs", "offsets", "status"} {
		compact := "compact"
		made, err := w.admin.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &compact}, c.group(round)+"."+kind)
		if err := errors.Join(err, made.Err); err != nil {
			return err
		}
	}
	_, err := w.db.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, c.slot(round))
	return err
}

// workerJVM is what Kafka's scripts start a worker with.
var workerJVM = []string{
	"-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
}

func (c debezium) drain(ctx context.Context, w *world, round int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	before, base, err := w.ends(ctx)
	if err != nil {
		return sample{}, err
	}
	watch, err := newWatcher(ctx, w, c.slot(round))
	if err != nil {
		return sample{}, err
	}
	worker, err := connect.New(ctx, connect.Options{Group: c.group(round), Brokers: w.kafka.Brokers, ExactlyOnce: c.exactlyOnce, JVM: workerJVM})
	if err != nil {
		return sample{}, errors.Join(err, watch.abandon())
	}
	defer worker.Close()
	from := time.Now()
	if err := worker.Launch(); err != nil {
		return sample{}, errors.Join(err, watch.abandon())
	}
	watch.begin(worker.Pid())
	course := newCourse(w.rows, worker.Pid(), from)
	last, err := c.arrive(ctx, w, worker, round, base, course)
	seen := watch.end()
	if err == nil {
		err = worker.Stop()
	}
	if err == nil {
		err = verify(ctx, w, before)
	}
	if err != nil {
		return sample{}, err
	}
	cpu := worker.Usage().UserTime() + worker.Usage().SystemTime()
	result := newSample(c, round, w.rows, last.Sub(from), cpu, seen)
	course.fill(&result)
	return result, nil
}

// quiet is how long the ends must not move to be the ends: in exactly-once they
// count the markers of the transactions too.
const quiet = 2 * time.Second

// arrive starts the connector and waits until readers have all rows; last is when
// the last of them came.
func (c debezium) arrive(ctx context.Context, w *world, worker *connect.Worker, round int, base int64, course *course) (last time.Time, err error) {
	connector := c.connector(w, round)
	if err := worker.WaitAnswer(ctx); err != nil {
		return last, err
	}
	if err := worker.Put(ctx, connector.Name, connector.Config()); err != nil {
		return last, err
	}
	asked, previous := time.Now(), int64(-1)
	for {
		_, total, err := w.ends(ctx)
		if err != nil {
			return last, fmt.Errorf("%d of %d rows published: %w\n%s", previous-base, w.rows, err, worker.Log())
		}
		now := time.Now()
		course.note(total - base)
		if total != previous {
			previous, last = total, now
		}
		if total-base >= int64(w.rows) && now.Sub(last) > quiet {
			return last, nil
		}
		if now.Sub(asked) > time.Second {
			asked = now
			if err := worker.Failed(ctx, connector.Name); err != nil {
				return last, fmt.Errorf("%d of %d rows published: %w", total-base, w.rows, err)
			}
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("%d of %d rows published: %w\n%s", total-base, w.rows, ctx.Err(), worker.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
