package outboxes

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite testdata and the documentation that shows it")

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "walstream-outboxes-")
	if err == nil {
		binary, err = service.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := testenv.Main(m).Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// cases in the order in which the documentation shows them.
var cases = []string{"own", "bank", "relay", "events", "debezium", "settings", "router"}

// tableFile is where a case's table is made.
func tableFile(name string) string {
	switch name {
	case "own":
		return "../../sql/publication.sql"
	case "settings", "router":
		return filepath.Join("testdata", name, "table.sql")
	}
	return "../../sql/presets/" + name + ".sql"
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRecords streams each table by the configuration that the documentation
// shows, and compares the records.
func TestRecords(t *testing.T) {
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRun(t)
			if name == "own" { // the script makes a role, which no other test shall see
				r = newRunOn(t, testenv.NewPostgres(t, testenv.PGOptions{}))
			}
			r.exec(read(t, tableFile(name)))
			if name == "own" {
				r.exec(`DROP PUBLICATION bank_outbox_pub`) // walstream makes its own, under the name of the test's slot
			}
			dir := filepath.Join("testdata", name)
			records := r.stream(filepath.Join(dir, "config.yaml"), func() { r.exec(read(t, filepath.Join(dir, "rows.sql"))) })
			compare(t, filepath.Join(dir, "records.txt"), r.describe(records))
		})
	}
}

// TestSeveralTablesOnOneSlot: tables of different shape, each with its preset and
// settings, in one process.
func TestSeveralTablesOnOneSlot(t *testing.T) {
	r := newRunOn(t, testenv.NewPostgres(t, testenv.PGOptions{}))
	r.exec(read(t, tableFile("own")))
	r.exec(`DROP PUBLICATION bank_outbox_pub`)
	names := []string{"bank", "relay", "events", "debezium"}
	for _, name := range names {
		r.exec("CREATE SCHEMA " + name + "; SET search_path = " + name + "; " + read(t, tableFile(name)))
	}
	records := r.stream("testdata/all.yaml", func() {
		for _, name := range append([]string{"public"}, names...) {
			dir := name
			if name == "public" {
				dir = "own"
			}
			r.exec("SET search_path = " + name + "; " + read(t, filepath.Join("testdata", dir, "rows.sql")))
		}
	})
	var published []string
	rows, err := r.db.Query(r.ctx, `SELECT schemaname || '.' || tablename FROM pg_publication_tables ORDER BY 1`)
	if err == nil {
		published, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(published) != len(names)+1 {
		t.Errorf("the publication has %v, %v", published, err)
	}
	compare(t, "testdata/all.txt", r.describe(records))
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, path); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// run is one walstream between a database and the broker.
type run struct {
	t        *testing.T
	ctx      context.Context
	dsn      string
	db       *pgx.Conn
	brokers  []string
	pipeline string
	begin    time.Time
}

func newRun(t *testing.T) *run { return newRunOn(t, testenv.SharedPostgres(t, 0)) }

func newRunOn(t *testing.T, server *testenv.Postgres) *run {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r := &run{
		t: t, ctx: ctx, dsn: server.CreateDatabase(t), brokers: testenv.SharedKafka(t).Brokers,
		pipeline: fmt.Sprintf("outboxes_%d", time.Now().UnixNano()),
	}
	db, err := pgx.Connect(ctx, r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	r.db = db
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return r
}

func (r *run) exec(sql string) {
	r.t.Helper()
	if _, err := r.db.Exec(r.ctx, sql); err != nil {
		r.t.Fatalf("%v in\n%s", err, sql)
	}
}

// stream runs walstream by a settings file, and returns what it published.
func (r *run) stream(config string, application func()) []*kgo.Record {
	r.t.Helper()
	s, err := service.Start(service.Options{Binary: binary, Args: []string{
		"--config", config, "--slot=" + r.pipeline, "--pipeline=" + r.pipeline, "--postgres=" + r.dsn,
		"--kafka-brokers=" + strings.Join(r.brokers, ","), "--create-topics", "--topic-partitions=3",
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Kill()
	if err := s.WaitStreaming(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	r.begin = time.Now()
	application()
	var end string
	if err := r.db.QueryRow(r.ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&end); err != nil {
		r.t.Fatal(err)
	}
	for done := false; !done; time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.Done():
			r.t.Fatalf("walstream ended:\n%s", s.Log())
		default:
		}
		err := r.db.QueryRow(r.ctx, `SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, end, r.pipeline).Scan(&done)
		if err != nil {
			r.t.Fatalf("%v\n%s", err, s.Log())
		}
	}
	if err := s.Stop(20 * time.Second); err != nil {
		r.t.Error(err)
	}
	return r.records()
}

// records of our pipeline in all topics, in the order of the WAL.
func (r *run) records() (ours []*kgo.Record) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	left := map[string]map[int32]kgo.Offset{}
	waiting := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 && !strings.HasPrefix(o.Topic, "walstream.") && !strings.HasPrefix(o.Topic, "__") {
			if left[o.Topic] == nil {
				left[o.Topic] = map[int32]kgo.Offset{}
			}
			left[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
			waiting++
		}
	})
	client.AddConsumePartitions(left)
	for waiting > 0 {
		fetches := client.PollFetches(r.ctx)
		if err := fetches.Err0(); err != nil {
			r.t.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if end, _ := ends.Lookup(record.Topic, record.Partition); record.Offset+1 == end.Offset {
				waiting--
			}
			if !record.Attrs.IsControl() && header(record, "walstream-pipeline") == r.pipeline {
				ours = append(ours, record)
			}
		})
	}
	slices.SortFunc(ours, func(a, b *kgo.Record) int {
		return strings.Compare(header(a, "walstream-position"), header(b, "walstream-position"))
	})
	return ours
}

func header(record *kgo.Record, name string) string {
	for _, h := range record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// describe writes the records for people.
func (r *run) describe(records []*kgo.Record) string {
	var b strings.Builder
	for i, record := range records {
		if i > 0 {
			b.WriteString("\n")
		}
		line := func(indent, name, value string) { fmt.Fprintf(&b, "%s%-*s %s\n", indent, 24-len(indent), name, value) }
		line("", "topic", record.Topic)
		line("", "partition", r.partition(record))
		line("", "timestamp", r.timestamp(record))
		line("", "key", show(record.Key))
		line("", "value", show(record.Value))
		line("", "headers", "")
		position := header(record, "walstream-position")
		for _, h := range record.Headers {
			value := show(h.Value)
			switch {
			case len(position) == 34 && string(h.Value) == position:
				value = "<position>"
			case h.Key == "walstream-pipeline":
				value = "<pipeline>"
			}
			line("  ", h.Key, value)
		}
	}
	return strings.ReplaceAll(b.String(), "headers                  \n", "headers\n")
}

// partition: that of the key where it is, else its number.
func (r *run) partition(record *kgo.Record) string {
	if record.Key != nil && record.Partition == int32(uint32(murmur2(record.Key))&0x7fffffff%3) {
		return "<of the key>"
	}
	return fmt.Sprint(record.Partition)
}

func (r *run) timestamp(record *kgo.Record) string {
	age := record.Timestamp.Sub(r.begin)
	switch {
	case age > -time.Second && age < time.Minute:
		return "<of the commit>"
	case age.Round(time.Minute) == -time.Hour:
		return "<an hour before>"
	}
	return record.Timestamp.UTC().Format(time.RFC3339Nano)
}

// show a text as it stands, bytes in hex, and what would look like nothing in
// words.
func show(value []byte) string {
	switch {
	case value == nil:
		return "<none>"
	case len(value) == 0:
		return "<empty>"
	case !utf8.Valid(value) || bytes.ContainsFunc(value, unicode.IsControl):
		return "0x" + hex.EncodeToString(value)
	}
	return string(value)
}

// murmur2 is the hash of Kafka's Java client.
// https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/utils/Utils.java
func murmur2(data []byte) int32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h *= m
		h ^= k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h)
}
