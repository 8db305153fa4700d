package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sessions = 8
	// arriveLimit ends a measurement whose rows do not all arrive.
	arriveLimit = time.Minute
)

// timedInsert stamps the row with the clock in microseconds.
const timedInsert = `
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, key, payload, headers)
VALUES ('account', $1::text::uuid, 'deposited', '` + oneTopic + `', convert_to($1, 'UTF8'),
	convert_to((extract(epoch FROM clock_timestamp()) * 1000000)::bigint || ' ' || $2, 'UTF8'), '{"source":"bench"}')`

// latency of a contender at a rate, in milliseconds.
type latency struct {
	Contender string  `json:"contender"`
	Round     int     `json:"round"`
	Rate      int     `json:"rate"`
	Written   float64 `json:"written_per_second"` // what the sessions came to
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	P999      float64 `json:"p999_ms"`
	Max       float64 `json:"max_ms"`
	N         int     `json:"rows"`
}

// idle is what a contender takes when nothing happens.
type idle struct {
	Contender string  `json:"contender"`
	Round     int     `json:"round"`
	CPU       float64 `json:"cpu_percent"`
	RSS       float64 `json:"rss_mb"`
}

// pace is how long is measured.
type pace struct {
	rates              []int
	warmUp, took, idle time.Duration
}

// follow lets the publishers follow a table that is being written, in turn, at
// all rates.
func follow(ctx context.Context, w *world, r *report, all []contender, rounds int, p pace) error {
	for round := 1; round <= rounds; round++ {
		for i := range all {
			c, ok := all[(i+round-1)%len(all)].(publisher)
			if !ok {
				continue // it publishes nothing
			}
			if err := followOne(ctx, w, r, c, round, p); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				w.say("round %d, %s: does not count: %v", round, c.name(), err)
				r.Failed = append(r.Failed, fmt.Sprintf("%s, latency, round %d: %v", c.name(), round, err))
			}
		}
	}
	return nil
}

func followOne(ctx context.Context, w *world, r *report, c publisher, round int, p pace) error {
	if err := w.begin(ctx, usual(0, 1)); err != nil {
		return err
	}
	if err := c.prepare(ctx, w, round); err != nil {
		return err
	}
	process, err := c.start(ctx, w, round)
	if err != nil {
		return err
	}
	defer process.kill()
	if err := process.ready(ctx); err != nil {
		return err
	}
	var resting *idle
	if p.idle > 0 {
		if resting, err = rest(ctx, c, process, round, p.idle); err != nil {
			return err
		}
	}
	var found []latency
	for _, rate := range p.rates {
		l, err := measure(ctx, w, rate, p)
		if err != nil {
			return errors.Join(fmt.Errorf("at %d/s: %w", rate, err), process.failed(ctx))
		}
		l.Contender, l.Round = c.name(), round
		w.say("round %d, %s at %d/s: p50 %.1f ms, p99 %.1f, p99.9 %.1f, max %.1f of %d rows", round, c.name(), rate, l.P50, l.P99, l.P999, l.Max, l.N)
		found = append(found, l)
	}
	if _, err := process.stop(); err != nil {
		return err
	}
	if resting != nil {
		r.Idle = append(r.Idle, *resting)
	}
	r.Latencies = append(r.Latencies, found...)
	return nil
}

// rest measures a process that has nothing to do, once its start is over.
func rest(ctx context.Context, c publisher, p process, round int, took time.Duration) (*idle, error) {
	if err := pause(ctx, took/2); err != nil {
		return nil, err
	}
	before, err := cpuTime(p.pid())
	if err == nil {
		err = pause(ctx, took)
	}
	after, err2 := cpuTime(p.pid())
	resident, err3 := memory(p.pid(), "VmRSS")
	return &idle{
		Contender: c.name(), Round: round,
		CPU: round2((after - before).Seconds() / took.Seconds() * 100), RSS: round2(float64(resident) / (1 << 20)),
	}, errors.Join(err, err2, err3)
}

func round2(value float64) float64 { return round(value, 2) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// measure writes at a rate while a consumer reads behind where the topic ends now.
func measure(ctx context.Context, w *world, rate int, p pace) (l latency, err error) {
	listed, err := w.admin.ListCommittedOffsets(ctx, oneTopic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return l, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(listed.KOffsets()))
	if err != nil {
		return l, err
	}
	defer client.Close()
	skip := int(float64(rate) * p.warmUp.Seconds())
	rows := skip + int(float64(rate)*p.took.Seconds())
	wrote := make(chan error, 1)
	began := time.Now()
	go func() {
		err := write(ctx, w, rate, rows)
		l.Written = round(float64(rows)/time.Since(began).Seconds(), 1)
		wrote <- err
	}()
	taken, err := consume(ctx, client, rows, p.warmUp+p.took+arriveLimit)
	if err = errors.Join(<-wrote, err); err != nil {
		return l, err
	}
	written := l.Written
	l = conclude(taken[skip:])
	l.Rate, l.Written = rate, written
	return l, nil
}

// write keeps to the schedule whatever a commit takes, as far as the sessions do.
func write(ctx context.Context, w *world, rate, rows int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan int)
	var running sync.WaitGroup
	for n := range sessions {
		running.Go(func() {
			if err := session(ctx, w, uint64(n), due); err != nil {
				cancel(err)
			}
		})
	}
	began := time.Now()
	for n := range rows {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(rate))))
		select {
		case due <- n:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(due)
	running.Wait()
	return context.Cause(ctx)
}

func session(ctx context.Context, w *world, n uint64, due <-chan int) error {
	conn, err := pgx.Connect(ctx, w.pg.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// Commits take the time they take in life.
	if _, err := conn.Exec(ctx, `SET synchronous_commit = on`); err != nil {
		return err
	}
	source := rand.New(rand.NewPCG(n, 0))
	filler := make([]byte, 1000)
	for i := range filler {
		filler[i] = byte('a' + source.IntN(26))
	}
	for number := range due {
		key := fmt.Sprintf("00000000-0000-4000-8000-%012d", source.IntN(accounts))
		if _, err := conn.Exec(ctx, timedInsert, key, fmt.Sprintf("%d %s", number, filler)); err != nil {
			return err
		}
	}
	return nil
}

// consume returns what each row took, in the order in which they came.
func consume(ctx context.Context, client *kgo.Client, rows int, limit time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seen := make([]bool, rows)
	var taken []time.Duration
	for len(taken) < rows {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d rows arrived: %w", len(taken), rows, ctx.Err())
		}
		for it := fetches.RecordIter(); !it.Done(); {
			number, at, err := parse(it.Next().Value)
			if err == nil && (number < 0 || number >= rows || seen[number]) {
				err = fmt.Errorf("row %d arrived twice, or was never written", number)
			}
			if err != nil {
				return nil, err
			}
			seen[number] = true
			taken = append(taken, now.Sub(at))
		}
	}
	return taken, nil
}

// parse reads a row's number and when it was written.
func parse(value []byte) (number int, at time.Time, err error) {
	parts := bytes.SplitN(value, []byte(" "), 3)
	if len(parts) != 3 {
		return 0, at, fmt.Errorf("a record holds %.40q", value)
	}
	micros, err := strconv.ParseInt(string(parts[0]), 10, 64)
	number, numberErr := strconv.Atoi(string(parts[1]))
	return number, time.UnixMicro(micros), errors.Join(err, numberErr)
}

func conclude(taken []time.Duration) latency {
	sorted := slices.Sorted(slices.Values(taken))
	at := func(share float64) float64 {
		d := sorted[int(math.Ceil(share*float64(len(sorted))))-1]
		return math.Round(float64(d.Microseconds())/100) / 10
	}
	return latency{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1), N: len(sorted)}
}

// latencyOnly is make bench-latency.
func latencyOnly(ctx context.Context, w *world, r *report, f *field) error {
	return follow(ctx, w, r, f.all, w.rounds, w.pace)
}
