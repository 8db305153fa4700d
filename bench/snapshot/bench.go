package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/bench/internal/tool"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/internal/verdict"
)

const (
	topic       = "bench.snapshot"
	slot        = "bench_slot"
	payloadSize = 1000
	perCopy     = 50_000
	accounts    = 10_000
	poll        = 10 * time.Millisecond
)

// bench is one run.
type bench struct {
	options
	pg     *testenv.Postgres
	kafka  *testenv.Kafka
	logged *os.File
	random *rand.Rand

	db        *pgx.Conn
	walstream *service.Service
	peak      int64
	published int           // rows of the stretches that were measured
	took      time.Duration // of those
}

func (b *bench) close() {
	if b.walstream != nil {
		b.walstream.Kill()
	}
	if b.db != nil {
		_ = b.db.Close(context.Background())
	}
}

func (b *bench) run(ctx context.Context) (*report, error) {
	var err error
	if b.db, err = pgx.Connect(ctx, b.pg.DSN("")); err != nil {
		return nil, err
	}
	if err := b.fill(ctx); err != nil {
		return nil, fmt.Errorf("fill the table: %w", err)
	}
	before, err := b.copyOut(ctx)
	if err != nil {
		return nil, err
	}
	w, err := b.write(ctx)
	if err != nil {
		return nil, err
	}
	r := &report{Rows: b.rows}
	began := time.Now()
	r.Kills, err = b.snapshot(ctx)
	took := time.Since(began)
	if wrote := w.end(); err == nil {
		err = wrote
	}
	if err != nil {
		return nil, err
	}
	if err := b.drain(ctx); err != nil {
		return nil, err
	}
	after, err := b.copyOut(ctx)
	if err != nil {
		return nil, err
	}
	r.Written, r.Deleted, r.PeakRSS = w.written, w.deleted, float64(b.peak)/(1<<20)
	r.CopyRate = (before + after) / 2
	r.Rate = float64(b.published) / max(b.took.Seconds(), 1e-3)
	r.RateVsCopy, r.WithKills = r.Rate/r.CopyRate, float64(b.rows)/took.Seconds()/r.CopyRate
	b.say("published %.0f rows/s, COPY %.0f and %.0f; the whole of it took %s with %d kills", r.Rate, before, after, took.Round(time.Millisecond), r.Kills)
	return r, b.judge(ctx, r, b.rows+w.written)
}

// fill the table, and have the server note what there is to know of its rows.
func (b *bench) fill(ctx context.Context) error {
	if _, err := b.db.Exec(ctx, tool.OutboxTable); err != nil {
		return err
	}
	from := time.Now()
	source := rand.NewChaCha8([32]byte{byte(b.seed)})
	for first := 1; first <= b.rows; first += perCopy {
		last := min(first+perCopy-1, b.rows)
		_, err := b.db.CopyFrom(ctx, pgx.Identifier{"outbox"}, []string{"event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "payload"},
			pgx.CopyFromSlice(last-first+1, func(i int) ([]any, error) {
				n := first + i
				return []any{eventID(n), "account", account(n), "deposited", topic, payload(n, source)}, nil
			}))
		if err != nil {
			return err
		}
	}
	_, err := b.db.Exec(ctx, "VACUUM (ANALYZE) outbox")
	if err == nil {
		_, err = b.db.Exec(ctx, "CHECKPOINT")
	}
	b.say("%d rows of %d bytes are there: %s", b.rows, payloadSize, time.Since(from).Round(time.Millisecond))
	return err
}

const idPrefix = "00000000-0000-4000-8000-"

func eventID(n int) string { return fmt.Sprintf(idPrefix+"%012d", n) }

// numberOf an event id; 0: it is none of ours.
func numberOf(id string) int {
	digits, ok := strings.CutPrefix(id, idPrefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return 0
	}
	return n
}

func account(n int) string { return "acc-" + strconv.Itoa(n%accounts) }

// payload is JSON of random hexadecimal digits.
func payload(n int, source *rand.ChaCha8) []byte {
	text := fmt.Appendf(make([]byte, 0, payloadSize), `{"number":%d,"note":"`, n)
	random := make([]byte, (payloadSize-len(text))/2)
	_, _ = source.Read(random) // never fails
	text = hex.AppendEncode(text, random)[:payloadSize-2]
	return append(text, `"}`...)
}

// copyOut is how many rows a second the server alone gives.
func (b *bench) copyOut(ctx context.Context) (rate float64, err error) {
	from := time.Now()
	tag, err := b.db.PgConn().CopyTo(ctx, io.Discard, "COPY outbox TO STDOUT")
	if err != nil {
		return 0, fmt.Errorf("copy the table out: %w", err)
	}
	return float64(tag.RowsAffected()) / time.Since(from).Seconds(), nil
}

// writer inserts and deletes beside the snapshot.
type writer struct {
	conn             *pgx.Conn
	stop             context.CancelFunc
	done             chan error
	written, deleted int
}

func (b *bench) write(ctx context.Context) (*writer, error) {
	conn, err := pgx.Connect(ctx, b.pg.DSN(""))
	if err != nil {
		return nil, err
	}
	w := &writer{conn: conn, stop: nil, done: make(chan error, 1)}
	stopping, stop := context.WithCancel(ctx)
	w.stop = stop
	random, source := rand.New(rand.NewPCG(b.seed, 1)), rand.NewChaCha8([32]byte{1, byte(b.seed)})
	go func() {
		var err error
		for err == nil && stopping.Err() == nil {
			err = b.writeSome(ctx, w, random, source)
			time.Sleep(b.pauseOfWriters) // a rate, not a wait
		}
		w.done <- errors.Join(err, conn.Close(context.Background()))
	}()
	return w, nil
}

func (w *writer) end() error {
	w.stop()
	return <-w.done
}

// writeSome is one transaction: a few new rows, and a few deleted, of all there are
// and of the newest.
func (b *bench) writeSome(ctx context.Context, w *writer, random *rand.Rand, source *rand.ChaCha8) error {
	return pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) error {
		newest := b.rows + w.written
		some := 1 + random.IntN(5)
		for i := range some {
			n := newest + 1 + i
			_, err := tx.Exec(ctx, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES ($1, 'account', $2, 'deposited', $3, $4)`,
				eventID(n), account(n), topic, payload(n, source))
			if err != nil {
				return err
			}
		}
		gone := []string{eventID(1 + random.IntN(newest)), eventID(1 + random.IntN(b.rows)), eventID(newest + 1)}
		tag, err := tx.Exec(ctx, `DELETE FROM outbox WHERE event_id = ANY ($1::text[]::uuid[])`, gone)
		if err == nil {
			w.written, w.deleted = w.written+some, w.deleted+int(tag.RowsAffected())
		}
		return err
	})
}

// snapshot runs walstream until it streams, and kills it on the way: each time when it
// has come a random bit farther.
func (b *bench) snapshot(ctx context.Context) (kills int, err error) {
	for {
		b.walstream, err = service.Start(service.Options{Binary: b.binary, Log: b.logged, Args: []string{
			"--slot=" + slot, "--pipeline=bench", "--postgres=" + b.pg.DSN(""), "--kafka-brokers=" + strings.Join(b.kafka.Brokers, ","),
			"--snapshot=initial", "--create-topics=true", "--topic-partitions=3",
		}})
		if err != nil {
			return kills, err
		}
		// Never so far that the last one would come too late.
		limit := b.rows
		if kills < b.kills {
			limit = b.rows * kills / b.kills
			limit += b.random.IntN(max(1, b.rows/b.kills*4/5))
		}
		streams, err := b.until(ctx, limit, kills < b.kills)
		if err != nil || streams {
			return kills, err
		}
		b.walstream.Kill()
		kills++
	}
}

// until it streams, or has published so many rows. What it did meanwhile is measured
// from the first page to the last.
func (b *bench) until(ctx context.Context, limit int, kill bool) (streams bool, err error) {
	var first, last uint64
	var from, at time.Time
	note := func() {
		if last > first {
			b.published, b.took = b.published+int(last-first), b.took+at.Sub(from)
		}
	}
	for {
		status, err := b.walstream.Status(ctx)
		now := time.Now()
		if peak, rssErr := tool.PeakRSS(b.walstream.PID()); rssErr == nil {
			b.peak = max(b.peak, peak)
		}
		switch {
		case err != nil: // not up yet
		case status.State == "streaming":
			note()
			return true, nil
		case status.Snapshot != nil:
			if rows := status.Snapshot.Rows; from.IsZero() {
				first, last, from, at = rows, rows, now, now
			} else if rows != last {
				last, at = rows, now
			}
			if kill && last >= uint64(limit) {
				note()
				return false, nil
			}
		}
		select {
		case <-b.walstream.Done():
			return false, fmt.Errorf("walstream ended with exit code %d: %s", b.walstream.ExitCode(), b.walstream.Log())
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(poll):
		}
	}
}

// drain waits until all that was committed is confirmed, and stops walstream in order.
func (b *bench) drain(ctx context.Context) error {
	var end string
	if err := b.db.QueryRow(ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&end); err != nil {
		return err
	}
	for done := false; !done; time.Sleep(poll) {
		err := b.db.QueryRow(ctx, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, end, slot).Scan(&done)
		if err != nil {
			return err
		}
	}
	return b.walstream.Stop(time.Minute)
}

// judge reads the topic, and holds it against the table.
func (b *bench) judge(ctx context.Context, r *report, newest int) error {
	if err := b.markers(ctx); err != nil {
		return err
	}
	seen := make([]bool, newest+1)
	err := verdict.EachRecord(ctx, b.kafka.Brokers, nil, []string{topic}, func(rec *kgo.Record) error {
		record, err := verdict.NewRecord(rec)
		n := numberOf(record.ID)
		r.Records++
		switch {
		case n < 1 || n > newest:
			r.Foreign++
		case seen[n]:
			r.Duplicates++
		default:
			seen[n] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	rows, err := b.db.Query(ctx, `SELECT event_id::text FROM outbox`)
	if err != nil {
		return err
	}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		if n := numberOf(id); n < 1 || n > newest || !seen[n] {
			r.Missing++
		}
		return nil
	})
	return err
}

// markers waits until every transaction is ended for readers, too: a broker answers a
// commit before it has written them.
func (b *bench) markers(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.Brokers...), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return fmt.Errorf("list the end of %s: %w", topic, err)
		}
		stable, err := verdict.CommittedEnds(ctx, admin, topic)
		if err != nil {
			return err
		}
		open := false
		ends.Each(func(o kadm.ListedOffset) {
			open = open || stable[verdict.Place{Topic: o.Topic, Partition: o.Partition}] < o.Offset
		})
		if !open {
			return nil
		}
		time.Sleep(poll)
	}
}
