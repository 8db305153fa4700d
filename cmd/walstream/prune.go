package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/prune"
	"github.com/walstream/walstream/pkg/sink"
)

const commandPrune = "prune"

// Prune has the flags that only walstream prune knows.
type Prune struct {
	OlderThan time.Duration `name:"older-than" range:"0s..87600h" placeholder:"DURATION" help:"delete rows made longer ago: 7d, 36h"`
	AgeColumn string        `name:"age-column" placeholder:"COLUMN" help:"when a row was made; empty: that of the settings"`
	StampOnly bool          `name:"stamp-only" help:"set the column of --stamp of published rows, delete nothing"`
	Batch     int           `name:"batch" default:"5000" range:"1..100000" help:"rows deleted in one transaction"`
	Wait      time.Duration `name:"wait" default:"60s" range:"0s..1h" help:"how long checkpoint and slot may take to cover the rows read"`
	DryRun    bool          `name:"dry-run" help:"count, and delete nothing"`
	Yes       bool          `name:"yes" help:"do not ask"`
	JSON      bool          `name:"json" help:"one line of JSON"`
}

func (p *Prune) validate(r *report) {
	r.checkOwn(commandPrune)
	switch {
	case p.StampOnly && r.set("older-than"):
		r.refuse("older-than", "has no effect with --stamp-only")
	case p.StampOnly && !r.set("stamp"):
		r.refuse("stamp-only", "needs the column: --stamp")
	case !p.StampOnly && !r.set("older-than"):
		r.refuse("older-than", "is required: how old a row has to be")
	}
}

// pruned is what the command prints as JSON.
type pruned struct {
	Before string        `json:"before"`
	DryRun bool          `json:"dry_run"`
	Tables []prunedTable `json:"tables"`

	stampOnly bool
}

type prunedTable struct {
	Table   string   `json:"table"`
	Deleted int64    `json:"deleted"` // with dry_run: would be, as all of it
	Left    int64    `json:"left"`
	Stamped int64    `json:"stamped"`
	Dropped []string `json:"dropped_partitions,omitempty"`
}

// pruneConfig says in the words of the package what the settings ask for, of the
// service and of the command alike.
func (c *Config) pruneConfig(kafka sink.Config) prune.Config {
	return prune.Config{
		Pipeline: c.Pipeline, Slot: c.Slot, Publication: c.Publication, Postgres: c.postgresOptions(), Kafka: kafka, Mapping: c.mappingConfigs(),
		Delete: c.Retention > 0, OlderThan: c.Retention, AgeColumn: c.RetentionColumn, AgeSetting: "--retention-column",
		DropPartitions: c.DropPartitions, Stamp: c.Stamp, Batch: pruneBatch,
	}
}

// pruneBatch rows are locked, and may be waited for, for some hundredths of a second.
const pruneBatch = 5000

// runPrune deletes rows that are published, and old enough.
func runPrune(ctx context.Context, c *Config, own *Prune, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	kafka, err := c.kafkaConfig(newLogger(c, s.err).Level(zerolog.WarnLevel))
	if err != nil {
		return err
	}
	cfg := c.pruneConfig(kafka)
	cfg.Postgres.ApplicationName = "walstream prune"
	cfg.Delete, cfg.OlderThan, cfg.Batch, cfg.Wait = !own.StampOnly, own.OlderThan, own.Batch, own.Wait
	cfg.Progress = everyFewSeconds(func(text string) { fmt.Fprintln(s.err, "walstream: "+text) })
	if own.AgeColumn != "" {
		cfg.AgeColumn, cfg.AgeSetting = own.AgeColumn, "--age-column"
	}
	if !own.StampOnly {
		cfg.Stamp = ""
	}
	p, err := prune.Open(ctx, cfg)
	if err != nil {
		return pruneError(err)
	}
	defer p.Close()
	result := pruned{Before: p.Before(), DryRun: own.DryRun, stampOnly: own.StampOnly}
	rows, err := p.Count(ctx)
	if err != nil {
		return pruneError(err)
	}
	if !own.DryRun {
		if !own.Yes {
			if err := confirm(s, pruneQuestion(rows, p.Before(), own.StampOnly)); err != nil {
				return err
			}
		}
		err = p.Run(ctx)
		rows = p.Results()
	}
	for _, r := range rows {
		result.Tables = append(result.Tables, prunedTable(r))
	}
	return errors.Join(printPruned(s, result, own.JSON), pruneError(err))
}

func pruneQuestion(rows []prune.Result, before string, stampOnly bool) string {
	var b strings.Builder
	for _, r := range rows {
		if stampOnly {
			fmt.Fprintf(&b, "%d rows of %s are published and have no time yet.\n", r.Stamped, r.Table)
			continue
		}
		fmt.Fprintf(&b, "%d rows of %s are published and were made before %s.\n", r.Deleted, r.Table, before)
		if len(r.Dropped) > 0 {
			fmt.Fprintf(&b, "So are all rows of its partitions %s.\n", strings.Join(r.Dropped, ", "))
		}
	}
	if stampOnly {
		return b.String() + "Each is written anew. Rows from before the slot that no snapshot published are among them."
	}
	return b.String() + "They are deleted for good. Rows from before the slot that no snapshot published are among them."
}

func printPruned(s streams, result pruned, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(s.out).Encode(result)
	}
	deleted, dropped, stamped := "deleted", "dropped", "stamped"
	if result.DryRun {
		deleted, dropped, stamped = "would delete", "would drop", "would stamp"
	}
	for _, t := range result.Tables {
		text := fmt.Sprintf("%s: %s %d rows made before %s", t.Table, deleted, t.Deleted, result.Before)
		if result.stampOnly {
			text = fmt.Sprintf("%s: %s %d rows", t.Table, stamped, t.Stamped)
		}
		if len(t.Dropped) > 0 {
			text += fmt.Sprintf("; %s partitions %s", dropped, strings.Join(t.Dropped, ", "))
		}
		if t.Left > 0 {
			text += fmt.Sprintf("; %d were locked, or gone by themselves", t.Left)
		}
		if _, err := fmt.Fprintln(s.out, text); err != nil {
			return err
		}
	}
	return nil
}

// pruneError gives what went wrong the exit code of its kind.
func pruneError(err error) error {
	if _, setup := errors.AsType[*prune.SetupError](err); setup {
		return withCode(exitPreflight, err)
	}
	if errors.Is(err, context.Canceled) {
		return withCode(exitPreflight, errors.New("interrupted: what was done was done to published rows, the rest is as it was"))
	}
	return classified(err)
}
