package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
)

func TestMain(m *testing.M) {
	code := testenv.Main(m).Run()
	if world.worker != nil {
		world.worker.Close()
	}
	if world.kafka != nil {
		world.kafka.Close()
	}
	if world.binaryIn != "" {
		_ = os.RemoveAll(world.binaryIn)
	}
	os.Exit(code)
}

// world is what all tests share: a worker and a broker take ten seconds to start.
var world struct {
	kafka            *testenv.Kafka
	worker           *Worker
	binary, binaryIn string
	rigs             int
}

// theWorker skips the test where Java or Maven lacks.
func theWorker(t *testing.T) *Worker {
	t.Helper()
	if world.worker != nil {
		return world.worker
	}
	jars := func() (err error) { _, err = Jars(t.Context()); return err }
	if err := jars(); err != nil {
		testenv.SkipOrFail(t, err)
	}
	var err error
	ctx := context.Background() // they outlive the test
	if world.kafka, err = testenv.StartKafka(ctx, testenv.KafkaOptions{Real: true}); err != nil {
		testenv.SkipOrFail(t, err)
	}
	if world.worker, err = Start(ctx, Options{
		Group: "moving", Brokers: world.kafka.Brokers, Settings: map[string]string{"offset.flush.interval.ms": "2000"},
	}); err != nil {
		testenv.SkipOrFail(t, err)
	}
	return world.worker
}

func theBinary(t *testing.T) string {
	t.Helper()
	if world.binary == "" {
		var err error
		if world.binaryIn, err = os.MkdirTemp("", "walstream-moving-"); err == nil {
			world.binary, err = service.Build(t.Context(), world.binaryIn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return world.binary
}

// table is the one that Debezium's documentation shows; no column says in which
// order the rows were written, so the payload does.
const table = `CREATE TABLE outboxevent (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL,
	aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb)`

// rig is one outbox that moves.
type rig struct {
	t         *testing.T
	ctx       context.Context
	worker    *Worker
	connector *Connector
	brokers   []string
	db        *pgx.Conn
	dsn       string
	topic     string
	delivery  string
	// publication that walstream is told to use.
	publication string

	seen []sent // records of the topic so far
	read map[verdict.Place]int64
}

const publicationOfConnector = "dbz_publication"

func newRig(t *testing.T, name, delivery string) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	worker := theWorker(t)
	world.rigs++
	name = fmt.Sprintf("%s_%d", name, world.rigs) // topics and slots are those of one rig, also with -count
	pg := testenv.SharedPostgres(t, 0)
	r := &rig{
		t: t, ctx: ctx, worker: worker, brokers: world.kafka.Brokers, delivery: delivery,
		publication: publicationOfConnector, read: map[verdict.Place]int64{},
	}
	r.dsn = pg.CreateDatabase(t)
	r.db = r.connect()
	r.exec(table)
	database := r.text(`SELECT current_database()::text`)
	r.topic = "outbox.event." + name
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.DisableClientMetrics())
	r.check(err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, 3, 1, nil, r.topic)
	r.check(err)
	r.connector = &Connector{
		Name: name, Postgres: pg, Database: database, Table: "public.outboxevent", Slot: name + "_slot", Publication: publicationOfConnector,
		Settings: map[string]string{"poll.interval.ms": "50"},
	}
	return r
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) connect() *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(r.ctx, r.dsn)
	r.check(err)
	r.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.db.Exec(r.ctx, sql, args...)
	r.check(err)
}

func (r *rig) text(sql string, args ...any) (text string) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, sql, args...).Scan(&text))
	return text
}

// confirmed is the slot's position.
func (r *rig) confirmed() string {
	r.t.Helper()
	return r.text(`SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.connector.Slot)
}

// untilSlotFree: a connector that is STOPPED to Connect may still be leaving.
func (r *rig) untilSlotFree() {
	r.t.Helper()
	r.until("a free slot", func() bool {
		return r.text(`SELECT active::text FROM pg_replication_slots WHERE slot_name = $1`, r.connector.Slot) == "false"
	})
}

// startConnector makes the connector.
func (r *rig) startConnector() {
	r.t.Helper()
	r.check(r.worker.Put(r.ctx, r.connector.Name, r.connector.Config()))
	r.check(r.worker.WaitStreaming(r.ctx, r.connector))
}

// walstream starts one on the connector's slot and table.
func (r *rig) walstream(args ...string) *service.Service {
	r.t.Helper()
	s, err := service.Start(service.Options{
		Binary: theBinary(r.t),
		Args: append([]string{
			"--slot", r.connector.Slot, "--publication", r.publication, "--table", r.connector.Table, "--preset", "debezium",
			"--delivery", r.delivery, "--create-topics", "--kafka-brokers", strings.Join(r.brokers, ","), "--log-format", "json",
		}, args...),
		Env: []string{"WALSTREAM_POSTGRES=" + r.dsn},
	})
	r.check(err)
	r.t.Cleanup(s.Kill)
	return s
}

// refusal waits for walstream to end by itself, and returns what it said.
func (r *rig) refusal(s *service.Service) (exitCode int, log string) {
	r.t.Helper()
	select {
	case <-s.Done():
	case <-r.ctx.Done():
		r.t.Fatalf("walstream goes on:\n%s", s.Log())
	}
	return s.ExitCode(), s.Log()
}

// until asks again and again.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	for !holds() {
		select {
		case <-r.ctx.Done():
			r.t.Fatalf("in vain: %s\n%s", what, r.worker.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// load writes into the outbox until stop, in transactions of one to five rows; the
// payload numbers them.
type load struct {
	stop chan struct{}
	done chan error
}

func (r *rig) startLoad() *load {
	r.t.Helper()
	l := &load{make(chan struct{}), make(chan error, 1)}
	conn := r.connect()
	aggregate := strings.TrimPrefix(r.topic, "outbox.event.")
	go func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for number, transaction := 0, 0; ; transaction++ {
			rows := 1 + transaction%5
			if _, err := conn.Exec(r.ctx, `INSERT INTO outboxevent (aggregatetype, aggregateid, type, payload)
				SELECT $1, 'a-' || n % 7, 'deposited', jsonb_build_object('n', n, 'text', 'Zürich "' || n || '"')
				FROM generate_series($2::int, $3::int) n`, aggregate, number, number+rows-1); err != nil {
				l.done <- fmt.Errorf("write: %w", err)
				return
			}
			number += rows
			select {
			case <-l.stop:
				l.done <- nil
				return
			case <-r.ctx.Done():
				l.done <- errors.New("nobody stopped the load")
				return
			case <-pace.C:
			}
		}
	}()
	return l
}

func (l *load) end() error {
	close(l.stop)
	return <-l.done
}
