package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/verdict"
)

// Report is the JSON line.
type Report struct {
	Faults       int   `json:"faults"`
	Missing      int   `json:"missing"`
	Duplicates   int   `json:"duplicates"`
	Reordered    int   `json:"reordered"`
	Torn         int   `json:"torn"`
	Split        int   `json:"split"`
	LongestStall int64 `json:"longest_stall_ms"`

	Foreign      int    `json:"foreign"` // records of transactions that were not committed
	Altered      int    `json:"altered"` // records with another key, topic or position than their row's
	Rows         int    `json:"rows"`
	Transactions int    `json:"transactions"`
	Looks        int    `json:"looks"`      // between a fault and the next start
	OpenLooks    int    `json:"looks_open"` // of them: with a Kafka transaction left open
	HalfLooks    int    `json:"looks_half"` // of them: with a split transaction published in part
	Seed         uint64 `json:"seed"`
}

// transactionalIDs of the pipeline.
var transactionalIDs = []string{"walstream." + pipeline + ".0", "walstream." + pipeline + ".1"}

// look at what a reader sees while no instance can do anything: some rows of a
// transaction and not all are a torn one, unless it was split. Something that was
// under way when it was looked is looked at again.
func (c *campaign) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	var torn, split []string
	var open bool
	for range 10 {
		ends, isOpen, err := c.quiet(ctx)
		if err != nil {
			return fmt.Errorf("look at the topics: %w", err)
		}
		if torn, split, err = c.tail.at(ctx, ends); err != nil {
			return err
		}
		if open = isOpen; len(torn) == 0 {
			break
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	c.checks++
	if open {
		c.hidden++
	}
	if len(split) > 0 {
		c.halves++
	}
	c.torn += len(torn)
	for _, what := range torn {
		c.say("TORN: %s", what)
	}
	return nil
}

// quiet waits until no transaction of the pipeline is being ended, and the
// readers' ends stay; it tells whether one is open.
func (c *campaign) quiet(ctx context.Context) (ends map[verdict.Place]int64, open bool, err error) {
	all := append([]string{checkpointTopic}, topics...)
	var before map[verdict.Place]int64
	for {
		ends, err := verdict.CommittedEnds(ctx, c.admin, all...)
		if err != nil {
			return nil, false, err
		}
		ending, open, err := c.open(ctx)
		if err != nil {
			return nil, false, err
		}
		if !ending && maps.Equal(ends, before) {
			return ends, open, nil
		}
		before = ends
		if err := sleep(ctx, 30*time.Millisecond); err != nil {
			return nil, false, err
		}
	}
}

func (c *campaign) open(ctx context.Context) (ending, open bool, err error) {
	described, err := c.admin.DescribeTransactions(ctx, transactionalIDs...)
	if err != nil {
		return false, false, err
	}
	for _, t := range described {
		if t.Err != nil && !errors.Is(t.Err, kerr.TransactionalIDNotFound) {
			return true, false, nil //nolint:nilerr // the coordinator is on its way: asked again
		}
		ending = ending || strings.HasPrefix(t.State, "Prepare")
		open = open || t.State == "Ongoing"
	}
	return ending, open, nil
}

// settle ends the load, waits until everything is confirmed, and lets walstream
// leave in order.
func (c *campaign) settle(ctx context.Context) error {
	if err := c.load.stop(); err != nil {
		return fmt.Errorf("the load failed: %w", err)
	}
	c.say("the load has ended with %d transactions; waiting until all are confirmed", c.load.finished.Load())
	db, err := pgx.Connect(ctx, c.pg.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.Background()) }()
	var end string
	if err := db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&end); err != nil {
		return err
	}
	err = c.until(ctx, "the slot to confirm "+end, func(ctx context.Context) (done bool, err error) {
		err = db.QueryRow(ctx, `SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1`, slot, end).Scan(&done)
		return done, err
	})
	if err != nil {
		return err
	}
	c.tail.pause()
	for _, i := range slices.Clone(c.instances) {
		c.forget(i)
		if err := i.Stop(30 * time.Second); err != nil {
			return err
		}
	}
	return nil
}

// judge reads both ends and holds them against each other.
func (c *campaign) judge(ctx context.Context) (*Report, error) {
	written, err := c.written(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	seen := newCollector()
	err = verdict.EachRecord(ctx, c.kafka.Brokers, nil, topics, func(r *kgo.Record) error {
		a, err := parse(r)
		if err == nil {
			seen.take(&a)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	missing, torn, foreign := seen.missing(written)
	for _, example := range seen.examples {
		c.say("%s", example)
	}
	for _, name := range slices.Sorted(maps.Keys(c.done)) {
		c.say("%4d %s", c.done[name], name)
	}
	c.say("requests and status updates that passed: %v", c.toKafka.counts(c.toPG))
	live, _ := c.tail.records()
	r := &Report{
		Faults: c.options.faults, Missing: missing, Duplicates: seen.duplicates, Reordered: seen.reordered, Torn: c.torn + torn,
		Split: c.tail.split(), LongestStall: c.tail.stall().Milliseconds(),
		Foreign: foreign, Altered: seen.altered, Transactions: len(written), Looks: c.checks, OpenLooks: c.hidden, HalfLooks: c.halves, Seed: c.seed,
	}
	for _, size := range written {
		r.Rows += size
	}
	err = r.err()
	if live != seen.records {
		err = errors.Join(err, fmt.Errorf("the reader that was there all the time saw %d records, one at the end %d", live, seen.records))
	}
	return r, err
}

func (r *Report) err() error {
	var faults []error
	for _, fault := range []struct {
		count int
		what  string
	}{
		{r.Missing, "committed rows are missing"},
		{r.Duplicates, "rows are there twice"},
		{r.Reordered, "rows are out of order within their key"},
		{r.Torn, "transactions were seen in part"},
		{r.Foreign, "records are of transactions that were not committed"},
		{r.Altered, "records differ from their row"},
	} {
		if fault.count > 0 {
			faults = append(faults, fmt.Errorf("seed %d: %d %s", r.Seed, fault.count, fault.what))
		}
	}
	return errors.Join(faults...)
}

// written are the transactions that were committed, and their sizes.
func (c *campaign) written(ctx context.Context) (map[id]int, error) {
	db, err := pgx.Connect(ctx, c.pg.DSN(""))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close(context.Background()) }()
	rows, err := db.Query(ctx, `SELECT writer, number, size FROM written`)
	if err != nil {
		return nil, err
	}
	written := map[id]int{}
	var i id
	var size int
	_, err = pgx.ForEachRow(rows, []any{&i.writer, &i.number, &size}, func() error {
		written[i] = size
		return nil
	})
	return written, err
}
