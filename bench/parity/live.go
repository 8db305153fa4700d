package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/bench/internal/tool"
)

// The live run shows that what the Java side answers is what a Connect worker
// sends: the same rows, once more through Kafka Connect itself, with a connector
// for each group that says live.

// liveVerdict is its result.
type liveVerdict struct {
	Rows      int `json:"rows"`
	Equal     int `json:"equal"`
	Different int `json:"different"`
}

// live runs both and compares. The broker is Connect's alone: topics would be
// shared with walstream otherwise.
func (r *run) live(ctx context.Context) (*liveVerdict, error) {
	r.groups = slices.DeleteFunc(r.groups, func(g *group) bool { return !g.Live })
	dir, err := os.MkdirTemp("", "walstream-parity-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	side, err := compileJava(ctx, dir)
	if err != nil {
		return nil, err
	}
	db, err := pgx.Connect(ctx, r.pg.DSN(""))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if err := createTables(ctx, db, r.groups); err != nil {
		return nil, err
	}
	tool.Say("starting Kafka Connect with %d connectors, and the Java side", len(r.groups))
	worker, err := r.startWorker(ctx, side, dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = worker.Process.Kill(); _ = worker.Wait() }()
	other, err := startDebezium(ctx, side, r.pg, r.groups, r.javaLog)
	if err != nil {
		return nil, err
	}
	defer other.close()
	if err := errors.Join(other.awaitStreaming(), awaitSlots(ctx, db, len(r.groups))); err != nil {
		return nil, err
	}
	samples, err := insertRows(ctx, db, r.groups)
	if err != nil {
		return nil, err
	}
	answers, err := other.answers(samples)
	if err != nil {
		return nil, err
	}
	records, err := r.awaitRecords(ctx, answers)
	if err != nil {
		return nil, err
	}
	return compareLive(samples, answers, records), nil
}

// startWorker starts a standalone worker, as a user would.
func (r *run) startWorker(ctx context.Context, side *javaSide, dir string) (*exec.Cmd, error) {
	args := []string{"org.apache.kafka.connect.cli.ConnectStandalone"}
	write := func(name string, properties map[string]string) error {
		var text strings.Builder
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			fmt.Fprintf(&text, "%s=%s\n", key, strings.ReplaceAll(properties[key], `\`, `\\`))
		}
		path := filepath.Join(dir, name)
		args = append(args, path)
		return os.WriteFile(path, []byte(text.String()), 0o600)
	}
	err := write("worker.properties", map[string]string{
		"bootstrap.servers": strings.Join(r.kafka.Brokers, ","), "listeners": "http://127.0.0.1:0",
		"offset.storage.file.filename": filepath.Join(dir, "offsets"), "offset.flush.interval.ms": "1000",
		"key.converter": converters["json"], "value.converter": converters["json"], // replaced by each connector
	})
	for _, g := range r.groups {
		err = errors.Join(err, write(g.Name+".properties", r.connectorProperties(g)))
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, side.java, append(slices.Clone(side.flags), args...)...)
	cmd.Stdout, cmd.Stderr = r.javaLog, r.javaLog
	return cmd, cmd.Start()
}

func (r *run) connectorProperties(g *group) map[string]string {
	p := map[string]string{
		"name": g.Name, "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"topic.prefix": "live_" + g.table(), "plugin.name": "pgoutput", "slot.name": "live_" + g.table(),
		"publication.name": publication, "publication.autocreate.mode": "disabled", "snapshot.mode": "no_data",
		"database.hostname": r.pg.Host, "database.port": fmt.Sprint(r.pg.Port), "database.user": r.pg.User,
		"database.password": r.pg.Password, "database.dbname": "postgres", "table.include.list": "parity." + g.table(),
		"topic.creation.default.partitions": fmt.Sprint(partitions), "topic.creation.default.replication.factor": "1",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
	}
	maps.Copy(p, g.Connector)
	maps.Copy(p, g.workerOptions())
	for option, value := range g.Router {
		p["transforms.outbox."+option] = value
	}
	return p
}

// awaitSlots waits until so many of Connect's connectors stream: what is written
// from then on, they send.
func awaitSlots(ctx context.Context, db *pgx.Conn, want int) error {
	for {
		var streaming int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
			WHERE s.slot_name LIKE 'live\_%' AND r.state = 'streaming'`).Scan(&streaming); err != nil {
			return err
		}
		if streaming == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d connectors stream: %w", streaming, want, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// awaitRecords reads Connect's topics until there are as many records as the Java
// side has, and no more a moment later.
func (r *run) awaitRecords(ctx context.Context, answers map[string]*answer) ([]*kgo.Record, error) {
	want := 0
	for _, a := range answers {
		if a.Outcome == published {
			want++
		}
	}
	for last := -1; ; {
		records, err := readTopics(ctx, r.kafka)
		if err != nil {
			return nil, err
		}
		if len(records) >= want && len(records) == last {
			return records, nil
		}
		last = len(records)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d records came: %w", last, want, ctx.Err())
		case <-time.After(2 * time.Second): // twice what a connector waits for more
		}
	}
}

// compareLive finds each row's record by its event id.
func compareLive(samples []*sample, answers map[string]*answer, records []*kgo.Record) *liveVerdict {
	v := &liveVerdict{Rows: len(samples)}
	found := map[string]*answer{}
	for _, r := range records {
		a := &answer{}
		a.fill(r)
		found[a.eventID()] = a
	}
	for _, s := range samples {
		want, got := answers[s.name], found[answers[s.name].eventID()]
		delete(found, want.eventID())
		if got == nil {
			got = &answer{Outcome: dropped}
		}
		differences := liveDifferences(want, got, s.when)
		if len(differences) == 0 {
			v.Equal++
			continue
		}
		v.Different++
		for _, d := range differences {
			tool.Say("%s, %s: the Java side says %s, Connect sent %s", s.name, d.Part, d.Debezium, d.Walstream)
		}
	}
	for id := range found {
		v.Different++
		tool.Say("Connect sent a record of no row, id %s", id)
	}
	return v
}

func (a *answer) eventID() string {
	at := slices.IndexFunc(a.Headers, func(h header) bool { return h.Name == "id" })
	if at < 0 {
		return ""
	}
	return string(a.Headers[at].Value)
}

// liveDifferences compares the Java side's answer with Connect's record. A time
// that is Debezium's own differs: each saw the row at another moment.
func liveDifferences(want, got *answer, when written) (differences []difference) {
	differ := func(part, w, g string) {
		if w != g {
			differences = append(differences, difference{part, w, g})
		}
	}
	if want.Outcome != published || got.Outcome != published {
		if want.Outcome == published || got.Outcome == published {
			differ("outcome", want.Outcome, got.Outcome)
		}
		return differences
	}
	differ("topic", want.Topic, got.Topic)
	differ("key", show(want.Key), show(got.Key))
	differ("value", show(want.Value), show(got.Value))
	wantContext, wanted := splitHeaders(want.Headers, contextPrefix)
	gotContext, sent := splitHeaders(got.Headers, contextPrefix)
	differ("connector's headers", headerNames(wantContext), headerNames(gotContext))
	compareHeaders(wanted, sent, differ)
	if want.Partition != nil {
		differ("partition", partition(want), partition(got))
	}
	if want.Timestamp != want.Processed {
		differ("timestamp", clock(want.Timestamp), clock(got.Timestamp))
	} else if got.Timestamp < when.from.UnixMilli() {
		differ("timestamp", "the time it saw the row", clock(got.Timestamp))
	}
	return differences
}

// wrong says what has to be looked at.
func (v *liveVerdict) wrong() error {
	if v.Different > 0 || v.Equal == 0 {
		return fmt.Errorf("%d of %d rows: what Connect sends is not what the Java side says", v.Different, v.Rows)
	}
	return nil
}
