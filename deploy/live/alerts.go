package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// stage is where alerts are provoked: real servers, and the real binary between
// them.
type stage struct {
	binary, schema string
	postgres       *testenv.Postgres
	kafka          *testenv.Kafka
	db             *pgx.Conn // of the server, not of a pipeline's database
	states         []state
	running        []*service.Service
}

// provoke brings pipelines into every state that an alert of the rules is for.
func (s *stage) provoke(ctx context.Context) error {
	defer func() {
		for _, process := range s.running {
			process.Kill()
		}
	}()
	if err := s.rewinds(ctx); err != nil { // it writes much: before there is a slot that stands still
		return fmt.Errorf("a rewind slot: %w", err)
	}
	stuck, err := s.stuck(ctx)
	if err != nil {
		return fmt.Errorf("a broker that does not answer: %w", err)
	}
	defer stuck.proxy.Close()
	for name, do := range map[string]func(context.Context) error{
		"two instances": s.pair, "one instance": s.single, "two of one name": s.twins,
	} {
		if err := do(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := stuck.behind(ctx); err != nil {
		return fmt.Errorf("WAL behind a broker that does not answer: %w", err)
	}
	return stuck.lost(ctx)
}

func (s *stage) fires(name string, alerts string, steps ...step) {
	s.states = append(s.states, state{name: name, fires: strings.Fields(alerts), steps: steps})
}

// database is a pipeline's own, with our table in it.
func (s *stage) database(ctx context.Context, name string) (dsn string, db *pgx.Conn, err error) {
	if _, err := s.db.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	dsn = s.postgres.DSN(name)
	if db, err = pgx.Connect(ctx, dsn); err == nil {
		_, err = db.Exec(ctx, s.schema)
	}
	return dsn, db, err
}

func (s *stage) args(name, dsn string, brokers []string, more ...string) []string {
	return append([]string{
		"--slot=" + name + "_slot", "--pipeline=" + name, "--postgres=" + dsn, "--kafka-brokers=" + strings.Join(brokers, ","), "--create-topics",
	}, more...)
}

func (s *stage) start(args []string) (*service.Service, error) {
	process, err := service.Start(service.Options{Binary: s.binary, Args: args})
	if err == nil {
		s.running = append(s.running, process)
	}
	return process, err
}

func (s *stage) stream(ctx context.Context, args []string) (*service.Service, error) {
	process, err := s.start(args)
	if err == nil {
		err = process.WaitStreaming(ctx)
	}
	return process, err
}

// command of walstream, with the settings of an instance.
func (s *stage) command(ctx context.Context, name string, args []string) error {
	cmd := exec.CommandContext(ctx, s.binary, append([]string{name}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, service.EnvBinary+"=") })
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("walstream %s: %w\n%s", name, err, out)
	}
	return nil
}

const putRow = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('account', '1', 'deposited', $1, $2)`

// shows waits until a scrape has each of these values, and returns it.
func shows(ctx context.Context, process *service.Service, fits map[string]func(value float64) bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 75*time.Second)
	defer cancel()
	for {
		code, body, err := process.Get(ctx, "/metrics")
		left := make([]string, 0, len(fits))
		if err == nil && code == 200 {
			for metric, fit := range fits {
				if !slices.ContainsFunc(slices.Collect(strings.Lines(string(body))), func(line string) bool {
					name, value, ok := sample(line)
					number, err := strconv.ParseFloat(value, 64)
					return ok && err == nil && strings.HasPrefix(name, metric) && fit(number)
				}) {
					left = append(left, metric)
				}
			}
			if len(left) == 0 {
				return string(body), nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("waited in vain for %v: %w\n%s", left, ctx.Err(), process.Log())
		case <-process.Done():
			return "", fmt.Errorf("walstream ended while %v was waited for\n%s", left, process.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

type values = map[string]func(float64) bool

func is(want float64) func(float64) bool      { return func(v float64) bool { return v == want } }
func atLeast(want float64) func(float64) bool { return func(v float64) bool { return v >= want } }
func below(want float64) func(float64) bool   { return func(v float64) bool { return v < want } }

// in a state, with the slot read where that is done.
func in(pipeline, state string) values {
	v := values{fmt.Sprintf("walstream_state{pipeline=%q,state=%q}", pipeline, state): is(1)}
	if state == "streaming" || state == "paused" {
		v["walstream_slot_readable{"] = is(1)
	}
	return v
}

// idle: it streams, and everything is done.
func idle(pipeline string) values {
	v := in(pipeline, "streaming")
	v["walstream_healthy{"] = is(1)
	v[fmt.Sprintf("walstream_lag_bytes{pipeline=%q,stage=%q}", pipeline, "confirmed")] = is(0)
	return v
}

// silent holds that an instance that ended does not answer a scrape.
func silent(ctx context.Context, process *service.Service) error {
	select {
	case <-process.Done():
	case <-ctx.Done():
		return fmt.Errorf("it does not end: %w\n%s", ctx.Err(), process.Log())
	}
	if code, _, err := process.Get(ctx, "/metrics"); err == nil {
		return fmt.Errorf("a process that ended answers %d", code)
	}
	return nil
}

// pair is an active and a standby instance.
func (s *stage) pair(ctx context.Context) error {
	dsn, db, err := s.database(ctx, "pair")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(ctx) }()
	toServer, err := testenv.StartProxy(fmt.Sprintf("%s:%d", s.postgres.Host, s.postgres.Port))
	if err != nil {
		return err
	}
	defer toServer.Close()
	dsn = strings.Replace(dsn, fmt.Sprintf("%s:%d", s.postgres.Host, s.postgres.Port), toServer.Addr, 1)
	args := s.args("pair", dsn, s.kafka.Brokers)
	active, err := s.stream(ctx, args)
	if err != nil {
		return err
	}
	second, err := s.start(args)
	if err != nil {
		return err
	}
	at := func(minutes int, wanted, other values) (step, error) {
		a, err := shows(ctx, active, wanted)
		if err != nil {
			return step{}, err
		}
		b, err := shows(ctx, second, other)
		return step{minutes, map[string]string{"a": a, "b": b}}, err
	}
	well, err := at(90, idle("pair"), in("pair", "standby"))
	if err != nil {
		return err
	}
	s.fires("an active and a standby instance", "", well)
	well.minutes = 10

	if err := s.command(ctx, "pause", args); err != nil {
		return err
	}
	resting, err := at(70, in("pair", "paused"), in("pair", "paused"))
	if err != nil {
		return err
	}
	s.fires("paused", "WalstreamPaused", well, resting)
	if err := s.command(ctx, "resume", args); err != nil {
		return err
	}
	for _, process := range []*service.Service{active, second} { // either of them
		if _, err := shows(ctx, process, values{`walstream_state{pipeline="pair",state="paused"}`: is(0), `walstream_state{pipeline="pair",state="waiting"}`: is(0)}); err != nil {
			return err
		}
	}

	toServer.Cut()
	gone := values{`walstream_state{pipeline="pair",state="streaming"}`: is(0), `walstream_state{pipeline="pair",state="standby"}`: is(0)}
	apart, err := at(5, gone, gone)
	if err != nil {
		return err
	}
	s.fires("PostgreSQL cannot be reached", "WalstreamNotStreaming", well, apart)
	toServer.Restore()

	second.Kill()
	if err := silent(ctx, second); err != nil {
		return err
	}
	if active, err = s.alone(ctx, args, active, well); err != nil {
		return err
	}
	active.Kill()
	return s.refused(ctx, args, db, well)
}

// alone is the one that is left, and then one that is always starting.
func (s *stage) alone(ctx context.Context, args []string, active *service.Service, well step) (*service.Service, error) {
	alone, err := shows(ctx, active, in("pair", "streaming"))
	if err != nil {
		return nil, err
	}
	s.fires("the standby instance is gone", "WalstreamInstanceDown", well, step{10, map[string]string{"a": alone, "b": ""}})

	starts := []step{{5, map[string]string{"a": alone}}}
	for range 4 {
		active.Kill()
		if active, err = s.start(args); err != nil {
			return nil, err
		}
		up, err := shows(ctx, active, in("pair", "streaming"))
		if err != nil {
			return nil, err
		}
		starts = append(starts, step{2, map[string]string{"a": up}})
	}
	s.fires("the process is always starting", "WalstreamRestartsOften", starts...)

	return active, nil
}

// refused is one whose slot was dropped while it was down: it ends by itself.
func (s *stage) refused(ctx context.Context, args []string, db *pgx.Conn, well step) error {
	if _, err := db.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'pair_slot' AND active`); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `SELECT pg_drop_replication_slot('pair_slot')`)
	for ; err != nil && ctx.Err() == nil; _, err = db.Exec(ctx, `SELECT pg_drop_replication_slot('pair_slot')`) {
		time.Sleep(50 * time.Millisecond) // a walsender outlives its client by a moment
	}
	if err != nil {
		return err
	}
	active, err := s.start(args)
	if err != nil {
		return err
	}
	if err := silent(ctx, active); err != nil {
		return err
	}
	if code := active.ExitCode(); code != 5 {
		return fmt.Errorf("without its slot it ended with %d\n%s", code, active.Log())
	}
	s.fires("it refused and ended, and nobody else is there", "WalstreamAbsent WalstreamInstanceDown WalstreamNotStreaming",
		well, step{15, map[string]string{"a": "", "b": ""}})
	return nil
}

// single is one instance alone.
func (s *stage) single(ctx context.Context) error {
	dsn, db, err := s.database(ctx, "single")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(ctx) }()
	args := s.args("single", dsn, s.kafka.Brokers, "--on-poison=skip", "--max-transaction-time=100ms", "--max-in-flight-bytes=256KiB")
	process, err := s.stream(ctx, args)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, putRow, "deposits", []byte("x")); err != nil {
		return err
	}
	before, err := shows(ctx, process, idle("single"))
	if err != nil {
		return err
	}
	change := func(name, alerts, sql string, wanted values, args ...any) error {
		if _, err := db.Exec(ctx, sql, args...); err != nil {
			return err
		}
		after, err := shows(ctx, process, wanted)
		if err == nil {
			s.fires(name, alerts, step{10, map[string]string{"a": before}}, step{5, map[string]string{"a": after}})
			before, err = shows(ctx, process, idle("single"))
		}
		return err
	}
	if err := change("a row that is no record is skipped", "WalstreamBadRows", putRow,
		values{`walstream_poisoned_rows_total{action="skip"`: atLeast(1)}, "no topic has such a name", []byte("x")); err != nil {
		return err
	}
	if err := change("a transaction takes long", "WalstreamSplitTransactions",
		`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload)
			SELECT 'account', '1', 'deposited', 'deposits', convert_to(repeat('x', 1000), 'UTF8') FROM generate_series(1, 30000)`,
		values{`walstream_split_transactions_total{`: atLeast(1), `walstream_events_total{`: atLeast(30001), `walstream_in_flight_events{`: is(0)}); err != nil {
		return err
	}
	restarted := before
	for n := range 6 {
		_, err := db.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'single_slot' AND active`)
		if err == nil {
			wanted := in("single", "streaming")
			wanted["walstream_restarts_total{"] = atLeast(float64(n + 1))
			restarted, err = shows(ctx, process, wanted)
		}
		if err != nil {
			return err
		}
	}
	s.fires("PostgreSQL ends the stream again and again", "WalstreamRestartsOften", step{10, map[string]string{"a": before}}, step{4, map[string]string{"a": restarted}})

	if err := process.Stop(20 * time.Second); err != nil {
		return err
	}
	return s.unreadable(ctx, args, dsn, db)
}

// unreadable: the stream stays; the session beside it may not look any more.
func (s *stage) unreadable(ctx context.Context, args []string, dsn string, db *pgx.Conn) error {
	for _, sql := range []string{
		`CREATE ROLE watched LOGIN REPLICATION PASSWORD 'watched'`, `GRANT pg_read_all_stats TO watched`, `ALTER TABLE outbox OWNER TO watched`,
	} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return err
		}
	}
	args[2] = "--postgres=" + strings.Replace(dsn, s.postgres.User+":"+s.postgres.Password+"@", "watched:watched@", 1)
	process, err := s.stream(ctx, args)
	if err != nil {
		return err
	}
	before, err := shows(ctx, process, idle("single"))
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `REVOKE SELECT ON pg_replication_slots FROM PUBLIC`); err != nil {
		return err
	}
	after, err := shows(ctx, process, values{`walstream_slot_readable{`: is(0), `walstream_state{pipeline="single",state="streaming"}`: is(1)})
	s.fires("the slot cannot be read", "WalstreamSlotUnreadable", step{10, map[string]string{"a": before}}, step{5, map[string]string{"a": after}})
	return err
}

// twins are two pipelines of one name, a copy and its original: on one Kafka the
// second one is refused, so each has its own here.
func (s *stage) twins(ctx context.Context) error {
	other, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer other.Close()
	seen := map[string]string{}
	for database, brokers := range map[string][]string{"original": s.kafka.Brokers, "copy": other.ListenAddrs()} {
		dsn, db, err := s.database(ctx, database)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close(ctx) }()
		args := s.args("twin", dsn, brokers)
		args[0] = "--slot=" + database + "_slot"
		process, err := s.stream(ctx, args)
		if err != nil {
			return err
		}
		defer process.Kill()
		if seen[database], err = shows(ctx, process, idle("twin")); err != nil {
			return err
		}
	}
	s.fires("two pipelines of one name", "WalstreamTwoStreaming", step{10, seen})
	return nil
}
