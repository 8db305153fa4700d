package audit

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// TestRanges: the same rows by id, by time and by LSN.
func TestRanges(t *testing.T) {
	r := newRig(t, "ours")
	r.stream()
	var middle [2]time.Time
	r.put(10) // ids 1 to 10
	r.check(r.db.QueryRow(r.ctx, "SELECT clock_timestamp()").Scan(&middle[0]))
	r.put(7) // 11 to 17
	r.put(5) // 18 to 22
	r.check(r.db.QueryRow(r.ctx, "SELECT clock_timestamp()").Scan(&middle[1]))
	r.put(20) // 23 to 42
	r.published()
	lsns := map[string]pglogrepl.LSN{} // by row id
	ids := map[string]string{}
	rows, err := r.db.Query(r.ctx, "SELECT event_id::text, id::text FROM outbox")
	r.check(err)
	for rows.Next() {
		var event, id string
		r.check(rows.Scan(&event, &id))
		ids[event] = id
	}
	for _, partition := range r.records() {
		for _, rec := range partition {
			_, p, err := decode.ParseHeader([]byte(headerOf(rec, outbox.HeaderPosition)))
			r.check(err)
			lsns[ids[headerOf(rec, outbox.HeaderEventID)]] = p.CommitLSN
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		rows   int64
	}{
		{"ids", func(cfg *Config) { cfg.FromID, cfg.ToID = "11", "22" }, 12},
		{"from an id on", func(cfg *Config) { cfg.FromID = "23" }, 20},
		{"up to an id", func(cfg *Config) { cfg.ToID = "10" }, 10},
		{"times", func(cfg *Config) { cfg.FromTime, cfg.ToTime = middle[0], middle[1] }, 12},
		{"from a time on", func(cfg *Config) { cfg.FromTime = middle[1] }, 20},
		{"LSNs", func(cfg *Config) { cfg.FromLSN, cfg.ToLSN = lsns["11"], lsns["22"] }, 12},
		{"from an LSN on", func(cfg *Config) { cfg.FromLSN = lsns["23"] }, 20},
		{"up to an LSN", func(cfg *Config) { cfg.ToLSN = lsns["10"] }, 10},
		{"nothing", func(cfg *Config) { cfg.FromID = "1000" }, 0},
	} {
		result := r.audit(c.change)
		t.Logf("%s: %s", c.name, result.Range)
		want(t, result, map[string]int64{"rows": c.rows, "found": c.rows}, Clean)
		if result.Records != c.rows {
			t.Errorf("%s: %d events, want %d", c.name, result.Records, c.rows)
		}
	}
	for _, c := range []struct {
		change func(*Config)
		says   string
	}{
		{func(cfg *Config) { cfg.FromID = "x" }, "does not take a bound"},
		{func(cfg *Config) { cfg.FromLSN, cfg.ToLSN = 5, 4 }, "to-lsn"},
		{func(cfg *Config) { cfg.FromTime, cfg.ToTime = middle[1], middle[0] }, "to-time"},
		{func(cfg *Config) { cfg.TimeColumn = "payload" }, "time-column"},
		{func(cfg *Config) { cfg.Memory = 1 }, "memory"},
		{func(cfg *Config) { cfg.Mapping = append(cfg.Mapping, cfg.Mapping[0]); cfg.FromID = "1" }, "from-id"},
	} {
		cfg := r.config()
		c.change(&cfg)
		_, err := Run(r.ctx, cfg)
		var setting *SettingError
		if !errors.As(err, &setting) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want something about %s", err, c.says)
		}
	}
}

// TestTimesOfRowsMayLie: rows whose time is later than their records' are not
// called missing for that.
func TestTimesOfRowsMayLie(t *testing.T) {
	r := newRig(t, "ours")
	r.stream()
	r.put(10)
	r.exec("UPDATE outbox SET created_at = created_at + interval '1 hour'")
	result := r.audit(func(cfg *Config) { cfg.FromTime = time.Now().Add(30 * time.Minute) })
	want(t, result, map[string]int64{"rows": 10, "found": 10}, Clean)
}

// TestGap: rows that the stream was made to pass over are missing, and those
// alone.
func TestGap(t *testing.T) {
	r := newRig(t, "ours")
	s := r.stream()
	r.put(20)
	r.published()
	r.check(s.Stop(20 * time.Second))
	r.put(6)
	r.exec("SELECT pg_replication_slot_advance($1, pg_current_wal_flush_lsn())", r.slot)
	var at string
	r.check(r.db.QueryRow(r.ctx, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", r.slot).Scan(&at))
	kafka, err := sink.Open(r.config().Kafka)
	r.check(err)
	defer kafka.Close()
	record, _, err := kafka.Load(r.ctx)
	r.check(err)
	r.stream(fmt.Sprintf("--accept-gap=%s..%s", record.Covered, at))
	r.put(4)
	result := r.audit(nil)
	want(t, result, map[string]int64{"rows": 30, "found": 24, "missing": 6}, Difference)
	// Five of the six, in the order of their event ids.
	if said := strings.Join(result.Examples, "\n"); strings.Count(said, "missing: public.outbox, row 2") != 5 || !strings.Contains(said, " (topic "+r.topic) {
		t.Errorf("said %s", said)
	}
	want(t, r.audit(func(cfg *Config) { cfg.FromID = "27" }), map[string]int64{"rows": 4, "found": 4}, Clean)
	want(t, r.audit(func(cfg *Config) { cfg.ToID = "23" }), map[string]int64{"rows": 23, "found": 20, "missing": 3}, Difference)
}

// TestStopped: of a pipeline that does not run, the slot's catalog_xmin says
// which rows were due.
func TestStopped(t *testing.T) {
	r := newRig(t, "bank_outbox")
	s := r.stream()
	r.put(20)
	r.published()
	empty := r.topic + "-empty"
	r.createTopic(empty)
	// Until the slot's catalog_xmin has passed those rows: it moves at running-xacts
	// records, of which a checkpoint of the server writes one.
	for due := int64(0); due < 20; {
		r.exec("CHECKPOINT")
		r.published()
		r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM bank_outbox, pg_replication_slots
			WHERE slot_name = $1 AND bank_outbox.xmin::text::int8 < catalog_xmin::text::int8`, r.slot).Scan(&due))
	}
	r.check(s.Stop(20 * time.Second))
	r.put(5)
	want(t, r.audit(func(cfg *Config) { cfg.Wait = time.Second }), map[string]int64{"rows": 25, "found": 20, "not due": 5}, Undecided)
	want(t, r.audit(func(cfg *Config) { cfg.Wait, cfg.Mapping[0].Topic = time.Second, empty }),
		map[string]int64{"rows": 25, "missing": 20, "not due": 5}, Difference)
}

// TestRights: the role that streams need not be able to read the table; to audit
// it must.
func TestRights(t *testing.T) {
	r := newRig(t, "ours")
	s := r.stream()
	r.put(1)
	role := strings.ReplaceAll(r.pipeline, "audit_", "auditor_")
	r.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'x'")
	defer r.exec("DROP OWNED BY " + role + "; DROP ROLE " + role)
	cfg := r.config()
	config := r.db.Config()
	cfg.Postgres.Postgres = fmt.Sprintf("host=%s port=%d dbname=%s user=%s password=x sslmode=disable", config.Host, config.Port, config.Database, role)
	_, err := Run(r.ctx, cfg)
	if !errors.Is(err, replication.ErrMissingRight) || !strings.Contains(err.Error(), `GRANT SELECT ON "public"."outbox" TO "`+role) {
		t.Fatalf("got %v", err)
	}
	r.exec("GRANT SELECT ON outbox TO " + role)
	result, err := Run(r.ctx, cfg)
	r.check(err)
	want(t, result, map[string]int64{"rows": 1, "found": 1}, Clean)
	r.check(s.Stop(20 * time.Second))
}

func TestNoVerdictWithoutACheckpoint(t *testing.T) {
	r := newRig(t, "ours")
	r.put(1)
	cfg := r.config()
	cfg.Wait = 0
	var setup *SetupError
	if _, err := Run(r.ctx, cfg); !errors.As(err, &setup) || !strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("got %v", err)
	}
}

// TestCommand: the exit code says the verdict, standard output the rest, and the
// memory asked for bounds what the process takes.
func TestCommand(t *testing.T) {
	r := newRig(t, "ours")
	r.stream()
	const n = 200_000
	for range 4 {
		r.put(n / 4)
	}
	r.published()
	run := func(args ...string) (code int, out string, mem int64) {
		t.Helper()
		cmd := exec.CommandContext(r.ctx, r.binary(), append([]string{"audit"}, append(r.args(), args...)...)...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		t.Logf("%s", stderr.String())
		return cmd.ProcessState.ExitCode(), stdout.String(), peakMemory(cmd.ProcessState)
	}
	code, out, memory := run("--memory=32MiB")
	if code != 0 || !strings.Contains(out, "missing                                0") || !strings.Contains(out, "\nclean: ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	t.Logf("%d rows in %d MiB\n%s", n, memory>>20, out)
	if memory > 64<<20 {
		t.Errorf("%d MiB at the peak", memory>>20)
	}
	code, out, _ = run("--json", "--from-id=100", "--to-id=199")
	if code != 0 || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"verdict":"clean"`) || !strings.Contains(out, `"found":100,`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	r.exec("UPDATE outbox SET payload = 'x' WHERE id = 150")
	if code, out, _ = run("--from-id=100", "--to-id=199"); code != 9 || !strings.Contains(out, "altered: public.outbox, row 150") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestForgotten: retention makes no row missing, unless the user says how far the
// topics reach back.
func TestForgotten(t *testing.T) {
	r := newRig(t, "ours")
	r.stream()
	r.put(50)
	r.published()
	offsets := kadm.Offsets{}
	forgotten := int64(0)
	for partition, records := range r.records() {
		if len(records) > 2 {
			offsets.AddOffset(r.topic, int32(partition), 2, -1)
			forgotten += 2
		}
	}
	_, err := kadm.NewClient(r.client).DeleteRecords(r.ctx, offsets)
	r.check(err)
	want(t, r.audit(nil), map[string]int64{"rows": 50, "found": 50 - forgotten, "forgotten": forgotten}, Undecided)
	want(t, r.audit(func(cfg *Config) { cfg.FromID = "1" }), map[string]int64{"rows": 50, "found": 50 - forgotten, "missing": forgotten, "torn": 1}, Difference)
}

// TestHidden: what somebody's open transaction hides is not missing.
func TestHidden(t *testing.T) {
	r := newRig(t, "ours")
	r.stream()
	r.put(50)
	r.published()
	all := r.records()
	lane, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.TransactionalID(r.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r.check(err)
	defer lane.Close()
	r.check(lane.BeginTransaction())
	partition := int32(slices.IndexFunc(all, func(records []*kgo.Record) bool { return len(records) > 0 }))
	r.check(lane.ProduceSync(r.ctx, &kgo.Record{Topic: r.topic, Partition: partition, Value: []byte("open")}).FirstErr())
	r.put(50)
	result := r.audit(func(cfg *Config) { cfg.Wait = 3 * time.Second })
	hidden := int64(len(all[partition])) // the second fifty have the same keys
	want(t, result, map[string]int64{"rows": 100, "found": 100 - hidden, "hidden": hidden}, Undecided)
	r.check(lane.EndTransaction(r.ctx, kgo.TryCommit))
	want(t, r.audit(nil), map[string]int64{"rows": 100, "found": 100, "foreign": 1}, Clean)
}
