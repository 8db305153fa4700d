package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/walstream/walstream/internal/pgtypes"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

var deliveries = []string{"at-least-once", "exactly-once"}

const (
	tablesOfRound       = 4
	transactionsOfTable = 30
	patience            = 60 * time.Second // until all is confirmed, or a service streams
)

// round is a database with a few tables, from their first row to the verdict.
type round struct {
	o        *options
	seed     uint64
	rand     *rand.Rand
	pg       *testenv.Postgres
	brokers  []string
	dir      string // of settings and logs; kept after a failure
	db       *pgx.Conn
	dsn      string
	name     string
	onPoison string // what becomes of bad rows; stop: there are none
	foreign  string // the publication that is not walstream's own
	tables   []*table
	writers  []*writer

	services [2]*service.Service
	logs     [2]*os.File
	restarts int
	kills    [2]int // kill -9 of each delivery
}

// run returns what is wrong.
func (r *round) run(ctx context.Context) (found *verdict, err error) {
	defer func() { err = errors.Join(err, r.close()) }()
	all, err := r.stream(ctx)
	if err != nil {
		return nil, err
	}
	return r.judge(ctx, all)
}

// stream is the round's life, and the records that came of it.
func (r *round) stream(ctx context.Context) ([]*kgo.Record, error) {
	r.rand = rand.New(rand.NewPCG(r.seed, 0))
	r.onPoison = oneOf(r.rand, "stop", "skip", "dead-letter")
	r.name = fmt.Sprintf("fuzz_%d_%d", r.seed, time.Now().UnixNano()%1e9)
	if err := r.database(ctx); err != nil {
		return nil, err
	}
	for i, delivery := range deliveries {
		if err := r.configure(i, delivery); err != nil {
			return nil, err
		}
		if err := r.start(i); err != nil {
			return nil, err
		}
	}
	for i := range r.services {
		if err := r.streams(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := r.live(ctx); err != nil {
		return nil, err
	}
	if err := r.confirmed(ctx); err != nil {
		return nil, err
	}
	return r.read(ctx)
}

func (r *round) database(ctx context.Context) error {
	if err := r.pg.Exec(ctx, "postgres", "CREATE DATABASE "+quote(r.name)); err != nil {
		return err
	}
	for _, setting := range oddSettings {
		if err := r.pg.Exec(ctx, "postgres", "ALTER DATABASE "+quote(r.name)+" SET "+setting); err != nil {
			return err
		}
	}
	r.dsn = r.pg.DSN(r.name)
	var err error
	if r.db, err = r.connect(ctx); err != nil {
		return err
	}
	given, ddl := newNames(r.rand), []string{pgtypes.Shared, oracleTable, lettersTable}
	listed, binary := r.rand.IntN(2) == 0, r.rand.IntN(3) == 0
	var all []string
	for n := range tablesOfRound {
		schema, name := given.next(), given.next()
		t, make := newTable(r.rand, n, schema, name, r.name, listed && r.pg.Major >= 18, binary)
		t.poison = r.onPoison != "stop"
		r.tables = append(r.tables, t)
		all = append(all, t.quoted())
		ddl = append(append(ddl, "CREATE SCHEMA "+quote(schema)), make...)
	}
	if !listed {
		r.foreign = "Odd \"pub\""
		ddl = append(ddl, "CREATE PUBLICATION "+quote(r.foreign)+[]string{
			" FOR ALL TABLES WITH (publish_via_partition_root)",
			" FOR TABLE " + strings.Join(all, ", ") + " WITH (publish = 'insert', publish_via_partition_root)",
			" FOR TABLE " + strings.Join(all, ", ") + " WITH (publish = 'insert, truncate', publish_via_partition_root)",
		}[r.rand.IntN(3)])
	}
	log, err := os.Create(filepath.Join(r.dir, "schema.sql"))
	if err != nil {
		return err
	}
	defer log.Close()
	return (&writer{conn: r.db, log: log}).exec(ctx, ddl...)
}

// connect opens a session with the settings that the records are promised in.
func (r *round) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(r.dsn)
	if err != nil {
		return nil, err
	}
	maps.Copy(cfg.RuntimeParams, writerSettings)
	return pgx.ConnectConfig(ctx, cfg)
}

func (r *round) slot(i int) string { return fmt.Sprintf("%s_%d", r.name, i) }

func (r *round) configPath(i int) string { return filepath.Join(r.dir, deliveries[i]+".yaml") }

// configure writes the settings; JSON is YAML.
func (r *round) configure(i int, delivery string) error {
	settings := map[string]any{
		"slot": r.slot(i), "pipeline": r.slot(i), "postgres": r.dsn, "kafka-brokers": r.brokers, "delivery": delivery,
		"on-poison": r.onPoison, "create-topics": true, "topic-partitions": 3,
	}
	if r.foreign != "" {
		settings["publication"] = r.foreign
	}
	var outboxes []map[string]any
	for _, t := range r.tables {
		outboxes = append(outboxes, t.settings())
	}
	settings["outboxes"] = outboxes
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.configPath(i), text, 0o600)
}

func (r *round) start(i int) (err error) {
	if r.logs[i] == nil {
		if r.logs[i], err = os.Create(filepath.Join(r.dir, deliveries[i]+".log")); err != nil {
			return err
		}
	}
	r.services[i], err = service.Start(service.Options{
		Binary: r.o.binary, Args: []string{"--config", r.configPath(i), "--log-format=json"}, Log: r.logs[i],
	})
	return err
}

func (r *round) streams(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.services[i].WaitStreaming(ctx)
}

// live lets all writers write, and restarts the services under them.
func (r *round) live(ctx context.Context) error {
	for n, t := range r.tables {
		conn, err := r.connect(ctx)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all is committed
		log, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("table%d.sql", n)))
		if err != nil {
			return err
		}
		defer log.Close()
		r.writers = append(r.writers, &writer{
			conn: conn, rand: rand.New(rand.NewPCG(r.seed, uint64(n)+1)), table: t, listed: r.foreign == "", log: log,
			changes: map[string]int{}, refused: map[string]int{},
		})
	}
	group, ctx := errgroup.WithContext(ctx)
	progress := make(chan struct{}, tablesOfRound*transactionsOfTable)
	for _, w := range r.writers {
		group.Go(func() error {
			for range transactionsOfTable {
				if err := w.transaction(ctx); err != nil {
					return err
				}
				progress <- struct{}{}
			}
			return nil
		})
	}
	group.Go(func() error { return r.disturb(ctx, progress) })
	return group.Wait()
}

// disturb kills and stops services while the writers go on: each is killed once
// at least.
func (r *round) disturb(ctx context.Context, progress <-chan struct{}) error {
	const all = tablesOfRound * transactionsOfTable
	type blow struct {
		at, delivery int
		kill         bool
	}
	blows := []blow{{r.rand.IntN(all), 0, true}, {r.rand.IntN(all), 1, true}, {r.rand.IntN(all), r.rand.IntN(2), r.rand.IntN(3) == 0}}
	slices.SortFunc(blows, func(a, b blow) int { return a.at - b.at })
	done := 0
	for _, b := range blows {
		for ; done < b.at; done++ {
			select {
			case <-progress:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := r.restart(ctx, b.delivery, b.kill, time.Duration(r.rand.IntN(300))*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) restart(ctx context.Context, i int, kill bool, away time.Duration) error {
	select {
	case <-r.services[i].Done():
		return fmt.Errorf("%s: walstream ended by itself, exit code %d", deliveries[i], r.services[i].ExitCode())
	default:
	}
	if kill {
		r.services[i].Kill()
		r.kills[i]++
	} else if err := r.services[i].Stop(patience); err != nil && r.services[i].ExitCode() >= 0 { // a signal ends a process that has only just begun
		return fmt.Errorf("%s: %w", deliveries[i], err)
	}
	r.restarts++
	select { // rows are written and tables altered while it is down
	case <-time.After(away):
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.start(i)
}

// confirmed waits until both slots have confirmed all that is committed.
func (r *round) confirmed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var end string
	if err := r.db.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return err
	}
	for i, s := range r.services {
		for there := false; !there; {
			err := r.db.QueryRow(ctx, "SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $2", end, r.slot(i)).Scan(&there)
			if err != nil {
				return fmt.Errorf("%s does not come to confirm %s: %w", deliveries[i], end, err)
			}
			select {
			case <-s.Done():
				return fmt.Errorf("%s: walstream ended by itself, exit code %d", deliveries[i], s.ExitCode())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// retyped counts what the services say of types that changed under them.
func (r *round) retyped() (n int) {
	for i := range deliveries {
		text, err := os.ReadFile(filepath.Join(r.dir, deliveries[i]+".log"))
		if err == nil {
			n += bytes.Count(text, []byte(`"reason":"type-changed"`))
		}
	}
	return n
}

func (r *round) close() error {
	ctx := context.Background()
	for i, s := range r.services {
		if s != nil {
			s.Kill()
			r.logs[i].Close()
		}
	}
	if r.db != nil {
		_ = r.db.Close(ctx) // nothing is left to be said on it
	}
	// The topics of many rounds would be too many for one broker.
	_, err := r.withTopics(ctx, func(string) bool { return true }, func(ctx context.Context, admin *kadm.Client, topics []string) error {
		_, err := admin.DeleteTopics(ctx, topics...)
		return err
	})
	for i := range deliveries {
		drop := fmt.Sprintf("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '%s'", r.slot(i))
		for attempt := 0; r.pg.Exec(ctx, "postgres", drop) != nil && attempt < 50; attempt++ {
			time.Sleep(100 * time.Millisecond) // until the server has seen that its reader is gone
		}
	}
	return errors.Join(err, r.pg.Exec(ctx, "postgres", "DROP DATABASE "+quote(r.name)+" WITH (FORCE)"))
}
