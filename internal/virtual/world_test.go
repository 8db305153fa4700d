package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/replication/pgfake"
	"github.com/walstream/walstream/pkg/sink"
)

const (
	pgAddress  = "127.0.0.1:5432"
	pipelineID = "bank"
	slotName   = "bank_outbox_slot"
	topicName  = "events"
	partitions = 3
)

// world is one PostgreSQL, one Kafka, and the instances of walstream between
// them, in a bubble of their own.
type world struct {
	seed     uint64
	rng      *rand.Rand // of the faults; the load has its own
	began    time.Time
	exactly  bool // only instances that deliver exactly once
	mixed    bool // instances of either delivery
	maxOpen  time.Duration
	limits   checkpoint.Limits
	network  *Network
	postgres *pgfake.Server
	kafka    *kfake.Cluster

	level     zerolog.Level // of the instances' logs
	instances []*instance
	healing   sync.WaitGroup // faults that others come on top of

	mu        sync.Mutex
	story     []string
	failures  []string
	committed []*transaction // by the application
	confirms  []confirm
	producers producers
	counts    counts
}

// transaction of the application, and the rows of it as they must arrive.
type transaction struct {
	*pgfake.Transaction
	keys []string
	seqs []int
}

// confirm is a position that PostgreSQL was told it may forget.
type confirm struct {
	at  time.Time
	lsn pglogrepl.LSN
}

func outboxTable() *decode.Relation {
	return &decode.Relation{
		ID: 16400, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd',
		Columns: []decode.Column{
			{Name: "id", TypeOID: 20, TypeMod: -1, Key: true},
			{Name: "aggregate_id", TypeOID: 2950, TypeMod: -1},
			{Name: "topic", TypeOID: 25, TypeMod: -1},
			{Name: "key", TypeOID: 17, TypeMod: -1},
			{Name: "payload", TypeOID: 17, TypeMod: -1},
		},
	}
}

func newWorld(seed uint64) (*world, error) {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), level: *logFlag}
	switch w.rng.IntN(10) {
	case 0:
		w.mixed = true
	case 1, 2, 3: // at-least-once
	default:
		w.exactly = true
	}
	w.maxOpen = pick(w.rng, time.Second, 3*time.Second, 10*time.Second)
	w.limits = checkpoint.Limits{Events: pick(w.rng, 100, 1000, 20_000), Bytes: pick(w.rng, 64<<10, 1<<20, 32<<20)}
	w.network = NewNetwork(pick(w.rng, 100*time.Microsecond, time.Millisecond, 20*time.Millisecond), pick(w.rng, 0, 3_000_000, 500_000))
	w.postgres = pgfake.New(pgfake.Config{
		Database: "bank", Table: outboxTable(),
		SaveEvery: pick(w.rng, 0, 5*time.Second, time.Minute),
		Unknown:   func(sql string) { w.fail("pgfake was sent a statement it does not know: %s", sql) },
		Broken:    func(what string) { w.fail("PostgreSQL was sent %s", what) },
		OnConfirm: func(_ string, lsn pglogrepl.LSN) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.confirms = append(w.confirms, confirm{time.Now(), lsn})
		},
	})
	listener, err := w.network.Listen("tcp", pgAddress)
	if err != nil {
		return nil, err
	}
	w.postgres.Serve(listener)
	return w, w.startKafka()
}

func pick[T any](rng *rand.Rand, some ...T) T { return some[rng.IntN(len(some))] }

// tell the story, for a person who looks at a seed that failed.
func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%12s  %s", time.Since(w.began).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

func (w *world) fail(format string, args ...any) {
	w.tell("BROKEN: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// instance is one process of walstream on a host of its own.
type instance struct {
	name       string
	host       *Host
	supervisor *pipeline.Supervisor
	cancel     context.CancelFunc
	ended      chan struct{}
	err        error // valid once ended
	gone       bool  // killed: what becomes of it is nobody's business
	stopped    bool  // it was asked to
}

// startInstance as a new process.
func (w *world) startInstance() *instance {
	i := &instance{name: fmt.Sprint("walstream-", len(w.instances)+1), ended: make(chan struct{})}
	i.host = w.network.Host(i.name)
	delivery := pipeline.AtLeastOnce
	if w.exactly || w.mixed && w.rng.IntN(2) == 0 {
		delivery = pipeline.ExactlyOnce
	}
	log := zerolog.New(zerolog.ConsoleWriter{
		Out: storyWriter{w, i.name}, NoColor: true, PartsExclude: []string{zerolog.TimestampFieldName},
	}).Level(w.level)
	i.supervisor = pipeline.NewSupervisor(pipeline.Config{
		Pipeline: pipelineID, Slot: slotName, Publication: "bank_outbox_pub", Version: "virtual",
		Postgres: replication.Options{
			Postgres:        "postgres://walstream@" + pgAddress + "/bank?sslmode=disable",
			ApplicationName: "walstream", Dial: i.host.DialContext,
		},
		Kafka: sink.Config{
			Brokers: brokerAddresses, Pipeline: pipelineID, DialContext: dialer(i.host), MaxInFlight: w.limits, Logger: log,
		},
		Mapping: []outbox.MappingConfig{{Schema: "public", Table: "outbox", Preset: "bank"}},
		Limits:  w.limits, Delivery: delivery,
		Transactions:   sink.TransactionalOptions{MaxTransactionTime: w.maxOpen},
		StatusInterval: 5 * time.Second, ShutdownGrace: 20 * time.Second, Logger: log,
	})
	var ctx context.Context
	ctx, i.cancel = context.WithCancel(context.Background())
	w.tell("%s starts, %s", i.name, delivery)
	go func() {
		defer close(i.ended)
		i.err = i.supervisor.Run(ctx)
		w.ended(i)
	}()
	w.instances = append(w.instances, i)
	return i
}

// dialer is what the product uses by default: it gives up after a while.
func dialer(h *Host) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return h.DialContext(ctx, network, address)
	}
}

// ended judges how an instance ended.
func (w *world) ended(i *instance) {
	w.mu.Lock()
	gone, stopped := i.gone, i.stopped
	w.mu.Unlock()
	w.tell("%s ended: %v", i.name, i.err)
	switch {
	case gone:
	case !stopped:
		w.fail("%s stopped for good: %v", i.name, i.err)
	case i.err != nil && !errors.Is(i.err, pipeline.ErrUnacknowledged):
		w.fail("%s did not stop cleanly: %v", i.name, i.err)
	}
}

// abandon an instance whose host is dead: whatever it still does reaches nobody.
func (w *world) abandon(i *instance) {
	w.mu.Lock()
	i.gone = true
	w.mu.Unlock()
	i.cancel()
}

// stop is SIGTERM.
func (w *world) stop(i *instance) {
	w.mu.Lock()
	i.stopped = true
	w.mu.Unlock()
	i.cancel()
}

// running instances: neither killed nor stopped.
func (w *world) running() (some []*instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.instances {
		if !i.gone && !i.stopped {
			some = append(some, i)
		}
	}
	return some
}

// keep a number of instances running.
func (w *world) keep(n int) {
	for len(w.running()) < n {
		w.startInstance()
	}
}

// close everything, and wait for every instance that ever was.
func (w *world) close() {
	for _, i := range w.instances {
		i.host.Kill()
		w.abandon(i)
	}
	for _, i := range w.instances {
		<-i.ended
	}
	w.network.Close()
	w.postgres.Close()
	w.kafka.Close()
}

// storyWriter takes an instance's log into the story.
type storyWriter struct {
	w    *world
	name string
}

func (s storyWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if len(text) > 600 {
		text = text[:600] + "..."
	}
	s.w.tell("  %s: %s", s.name, text)
	return len(line), nil
}
