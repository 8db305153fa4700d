package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
	"github.com/walstream/walstream/pkg/outbox"
)

const (
	name     = "drill"
	slotName = name + "_slot"
	topic    = name
	// waitLimit ends a step that does not come to its end.
	waitLimit = 2 * time.Minute
	cutOff    = 500 * time.Millisecond // before the primary is killed
)

var (
	postgresOptions = testenv.PGOptions{Durable: true}
	kafkaOptions    = testenv.KafkaOptions{Real: true}
)

// drill is one run.
type drill struct {
	options
	kafka   *testenv.Kafka
	server  *testenv.Postgres // that takes writes
	standby *testenv.Postgres
	db      *pgx.Conn
	admin   *kadm.Client
	logged  *os.File
	flow    *service.Service
	report  Report
	wrong   []error
}

// run goes through the steps. The report is nil when one did not come to its end.
func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (_ *Report, err error) {
	d := &drill{options: o, kafka: kafka, server: pg, report: Report{Times: map[string]float64{}}}
	if d.logged, err = os.OpenFile(o.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if d.flow != nil {
			d.flow.Kill()
		}
		_ = d.logged.Close()
	}()
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers...), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	d.admin = kadm.NewClient(client)
	if d.standby, err = pg.StartStandby(ctx, testenv.StandbyOptions{}); err != nil {
		return nil, err
	}
	defer d.standby.Close()
	began := time.Now()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"prepare", d.prepare}, {"failover", d.failover}, {"kafka", d.loseKafka}, {"slot", d.loseSlot}} {
		stepCtx, cancel := context.WithTimeout(ctx, waitLimit)
		err := step.do(stepCtx)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	d.report.Times["all"] = seconds(time.Since(began))
	return &d.report, errors.Join(d.wrong...)
}

func seconds(t time.Duration) float64 {
	return float64(t.Round(10*time.Millisecond).Milliseconds()) / 1000
}

func (d *drill) prepare(ctx context.Context) error {
	if err := d.server.Exec(ctx, "", "CREATE DATABASE "+name); err != nil {
		return err
	}
	if err := d.connect(ctx); err != nil {
		return err
	}
	if _, err := d.db.Exec(ctx, tool.OutboxTable); err != nil {
		return err
	}
	return d.start(ctx)
}

// connect to the server that takes writes.
func (d *drill) connect(ctx context.Context) (err error) {
	d.db, err = pgx.Connect(ctx, d.server.DSN(name))
	return err
}

func (d *drill) args() []string {
	return []string{
		"--slot", slotName, "--kafka-brokers", d.kafka.Brokers[0], "--log-format", "json",
		"--create-topics", "--topic-partitions", "3", "--topic", topic,
	}
}

func (d *drill) start(ctx context.Context) (err error) {
	d.flow, err = service.Start(service.Options{Binary: d.binary, Log: d.logged, Args: d.args(), Env: []string{"WALSTREAM_POSTGRES=" + d.server.DSN(name)}})
	if err == nil {
		err = d.flow.WaitStreaming(ctx)
	}
	return err
}

// write commits rows until stop is called, which returns the ids that were
// acknowledged. The server may go meanwhile.
func (d *drill) write(ctx context.Context) (stop func() []string, err error) {
	db, err := pgx.Connect(ctx, d.server.DSN(name))
	if err != nil {
		return nil, err
	}
	var ids []string
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
		ticker := time.NewTicker(time.Second / time.Duration(d.rate))
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			var id string
			err := db.QueryRow(ctx, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', $1, 'deposited', $2) RETURNING event_id::text`,
				fmt.Sprintf("account-%d", i%20), []byte(fmt.Sprintf("%d %d", i, time.Now().UnixNano()))).Scan(&id)
			if err != nil {
				return // it was killed
			}
			ids = append(ids, id)
		}
	})
	return func() []string {
		close(ended)
		running.Wait()
		return ids
	}, nil
}

// under load for a while.
func (d *drill) under(ctx context.Context, t time.Duration) error {
	stop, err := d.write(ctx)
	if err != nil {
		return err
	}
	defer stop()
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// said is walstream's report.
type said struct {
	Found     int  `json:"rows_found"`
	Left      int  `json:"rows_left_to_stream"`
	Published int  `json:"rows_published"`
	Lost      int  `json:"events_lost"`
	NewSlot   bool `json:"new_slot"`
	Window    struct {
		From string `json:"stream_from"`
	} `json:"window"`
}

// command runs walstream, and decodes its last line.
func (d *drill) command(ctx context.Context, result any, words ...string) error {
	cmd := exec.CommandContext(ctx, d.binary, append(words, d.args()...)...)
	cmd.Env = append(os.Environ(), "WALSTREAM_POSTGRES="+d.server.DSN(name))
	cmd.Stderr = d.logged
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("walstream %s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return json.Unmarshal(out, result)
}

// table is the ids of the rows that are there.
func (d *drill) table(ctx context.Context) (map[string]bool, error) {
	rows, err := d.db.Query(ctx, `SELECT event_id::text FROM outbox`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	return there, err
}

// inTopic is the ids of the records that are there, with their positions.
func (d *drill) inTopic(ctx context.Context) (map[string]string, error) {
	there := map[string]string{}
	err := verdict.EachRecord(ctx, d.kafka.Brokers, nil, []string{topic}, func(r *kgo.Record) error {
		var id, position string
		for _, h := range r.Headers {
			switch h.Key {
			case outbox.HeaderEventID:
				id = string(h.Value)
			case outbox.HeaderPosition:
				position = string(h.Value)
			}
		}
		there[id] = position
		return nil
	})
	return there, err
}

// recover looks while nobody writes, then executes while somebody does, and holds
// both against the truth. left tells which rows the stream still carries.
func (d *drill) recover(ctx context.Context, step string, topicThere bool, left map[string]bool, extra ...string) error {
	rows, err := d.table(ctx)
	if err != nil {
		return err
	}
	before := map[string]string{}
	if topicThere {
		if before, err = d.inTopic(ctx); err != nil {
			return err
		}
	}
	w := Window{Step: step}
	for id := range rows {
		_, found := before[id]
		switch {
		case left[id]:
			w.Truth.Left++
		case found:
			w.Truth.Found++
		default:
			w.Truth.Published++
		}
	}
	for id := range before {
		if !rows[id] {
			w.Truth.Lost++
		}
	}
	words := append([]string{"recover", "--json"}, extra...)
	var look, done said
	began := time.Now()
	if err := d.command(ctx, &look, words...); err != nil {
		return err
	}
	d.report.Times[step+"_look"] = seconds(time.Since(began))
	w.Reported = Counts{Found: look.Found, Left: look.Left, Published: look.Published, Lost: look.Lost}
	if w.Reported != w.Truth {
		d.wrong = append(d.wrong, fmt.Errorf("%s: the report said %+v, and it is %+v", step, w.Reported, w.Truth))
	}
	stop, err := d.write(ctx)
	if err != nil {
		return err
	}
	began = time.Now()
	err = d.command(ctx, &done, append(words, "--execute", "--confirm", name+"."+slotName)...)
	d.report.Times[step+"_execute"] = seconds(time.Since(began))
	if err == nil {
		began = time.Now()
		err = d.start(ctx)
		d.report.Times[step+"_start"] = seconds(time.Since(began))
	}
	stop()
	if err != nil {
		return err
	}
	return d.settle(ctx, w, done, before)
}

// settle waits until all is published, and judges the step.
func (d *drill) settle(ctx context.Context, w Window, done said, before map[string]string) error {
	if err := d.under(ctx, d.load/2); err != nil {
		return err
	}
	var audited struct {
		Verdict    string `json:"verdict"`
		Missing    int    `json:"missing"`
		Duplicates int    `json:"duplicates"`
		Reordered  int    `json:"reordered"`
	}
	if err := d.command(ctx, &audited, "audit", "--json"); err != nil {
		d.wrong = append(d.wrong, fmt.Errorf("%s: %w", w.Step, err))
	}
	rows, err := verdict.ReadTable(ctx, d.db, `SELECT event_id::text, aggregate_id, id, payload FROM outbox`)
	if err != nil {
		return err
	}
	records, err := verdict.ReadTopics(ctx, d.kafka.Brokers, topic)
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for i := range records {
		seen[records[i].ID]++
	}
	missing, duplicates := 0, 0
	for i := range rows {
		if seen[rows[i].ID] == 0 {
			missing++
		}
	}
	for _, n := range seen {
		duplicates += n - 1
	}
	from, err := pglogrepl.ParseLSN(done.Window.From)
	if err != nil {
		return err
	}
	after, err := d.inTopic(ctx)
	if err != nil {
		return err
	}
	for id, position := range after {
		_, at, err := verdict.ParsePosition(position)
		if err != nil {
			return err
		}
		if before[id] == "" && at.CommitLSN < from { // a page's: before the stream
			w.ExecutedInTopic++
		}
	}
	w.Executed = done.Published
	if w.Executed != w.ExecutedInTopic || w.Executed < w.Truth.Published {
		d.wrong = append(d.wrong, fmt.Errorf("%s: %d rows were published by its word, %d are in the topic, and %d had to be", w.Step, w.Executed, w.ExecutedInTopic, w.Truth.Published))
	}
	if missing+duplicates+audited.Missing+audited.Duplicates > 0 {
		d.wrong = append(d.wrong, fmt.Errorf("%s: %d missing, %d twice; by the audit %d and %d", w.Step, missing, duplicates, audited.Missing, audited.Duplicates))
	}
	d.report.Missing, d.report.Duplicates, d.report.Rows = d.report.Missing+missing, d.report.Duplicates+duplicates, len(rows)
	d.report.Windows = append(d.report.Windows, w)
	d.say("%s: reported %+v, published %d; %d rows, %d missing, %d twice; audit: %s", w.Step, w.Reported, w.Executed, len(rows), missing, duplicates, audited.Verdict)
	return nil
}
