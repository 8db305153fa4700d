package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/internal/verdict"
)

// judge reads both ends and holds them against each other.
func (c *campaign) judge(ctx context.Context) (*Report, error) {
	rows, err := verdict.ReadTable(ctx, c.db, tableQuery)
	if err != nil {
		return nil, err
	}
	records, err := verdict.ReadTopics(ctx, c.kafka.Brokers, topic)
	if err != nil {
		return nil, err
	}
	if c.delivery == exactlyOnce {
		// No restart excuses a copy: all lies before its checkpoint.
		for i := range c.restarts {
			c.restarts[i].Checkpoint = ^pglogrepl.LSN(0)
		}
	}
	result := verdict.Judge(rows, records, c.restarts)
	for _, example := range result.Examples {
		c.say("%s", example)
	}
	report := &Report{
		Delivery: c.delivery, Kills: len(c.kills), BrokerRestarts: c.brokers,
		Committed: result.Committed, Published: result.Published, Missing: result.Missing,
		Duplicates: result.Duplicates, BeforeCheckpoint: result.BeforeCheckpoint, Reordered: result.Reordered,
	}
	var unpublished []int
	for _, k := range c.kills {
		waiting := k.committed - result.PublishedBefore(k.restart)
		unpublished = append(unpublished, waiting)
		if waiting > 0 {
			report.KillsInFlight++
		}
	}
	c.say("rows committed and not in Kafka at each kill: %v", unpublished)
	if err := c.countRestarts(); err != nil {
		return report, err
	}
	err = result.Err()
	if counted := int(c.writers.committed.Load()); counted != len(rows) {
		err = errors.Join(err, fmt.Errorf("the writers committed %d rows, the table has %d", counted, len(rows)))
	}
	if report.KillsInFlight < enoughInFlight(report.Kills) {
		err = errors.Join(err, fmt.Errorf("only %d of %d kills hit rows in flight: this run proves too little", report.KillsInFlight, report.Kills))
	}
	return report, err
}

// enoughInFlight is how many kills of a run that proves something hit rows in
// flight. Of a few, a busy machine may miss most by chance.
func enoughInFlight(kills int) int {
	if kills < 12 {
		return min(kills, 1)
	}
	return kills * 5 / 6
}

// countRestarts tells how often walstream went back to its start by itself.
func (c *campaign) countRestarts() error {
	file, err := os.Open(c.log)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	counts := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Message, Reason string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "will start again" {
			counts[line.Reason]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		c.say("the log tells of %d failed starts or streams: %s", counts[reason], reason)
	}
	return lines.Err()
}
