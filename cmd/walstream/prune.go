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
)

const commandPrune = "prune"

// Prune has the flags that only walstream prune knows.
type Prune struct {
	OlderThan time.Duration `name:"older-than" range:"0s..87600h" placeholder:"DURATION" help:"delete rows made longer ago: 7d, 36h"`
	AgeColumn string        `name:"age-column" placeholder:"COLUMN" help:"when a row was made; empty: timestamp-column, else created_at"`
	Batch     int           `name:"batch" default:"5000" range:"1..100000" help:"rows deleted in one transaction"`
	Wait      time.Duration `name:"wait" default:"60s" range:"0s..1h" help:"how long checkpoint and slot may take to cover the rows read"`
	DryRun    bool          `name:"dry-run" help:"count, and delete nothing"`
	Yes       bool          `name:"yes" help:"do not ask"`
	JSON      bool          `name:"json" help:"one line of JSON"`
}

func (p *Prune) validate(r *report) {
	r.checkOwn(commandPrune)
	if !r.set("older-than") {
		r.refuse("older-than", "is required: how old a row has to be")
	}
}

// pruned is what the command prints as JSON.
type pruned struct {
	Before string        `json:"before"`
	DryRun bool          `json:"dry_run"`
	Tables []prunedTable `json:"tables"`
}

type prunedTable struct {
	Table   string `json:"table"`
	Deleted int64  `json:"deleted"` // with dry_run: would be
	Left    int64  `json:"left"`
}

// runPrune deletes rows that are published, and old enough.
func runPrune(ctx context.Context, c *Config, own *Prune, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	kafka, err := c.kafkaConfig(newLogger(c, s.err).Level(zerolog.WarnLevel))
	if err != nil {
		return err
	}
	postgres := c.postgresOptions()
	postgres.ApplicationName = "walstream prune"
	p, err := prune.Open(ctx, prune.Config{
		Pipeline: c.Pipeline, Slot: c.Slot, Publication: c.Publication, Postgres: postgres, Kafka: kafka, Mapping: c.mappingConfigs(),
		OlderThan: own.OlderThan, AgeColumn: own.AgeColumn, Batch: own.Batch, Wait: own.Wait,
		Progress: everyFewSeconds(func(text string) { fmt.Fprintln(s.err, "walstream: "+text) }),
	})
	if err != nil {
		return pruneError(err)
	}
	defer p.Close()
	result := pruned{Before: p.Before(), DryRun: own.DryRun}
	rows, err := p.Count(ctx)
	if err != nil {
		return pruneError(err)
	}
	if !own.DryRun {
		if !own.Yes {
			if err := confirm(s, pruneQuestion(rows, p.Before())); err != nil {
				return err
			}
		}
		rows, err = p.Delete(ctx)
	}
	for _, r := range rows {
		result.Tables = append(result.Tables, prunedTable(r))
	}
	return errors.Join(printPruned(s, result, own.JSON), pruneError(err))
}

func pruneQuestion(rows []prune.Result, before string) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%d rows of %s are published and were made before %s.\n", r.Deleted, r.Table, before)
	}
	return b.String() + "They are deleted for good. Rows from before the slot that no snapshot published are among them."
}

func printPruned(s streams, result pruned, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(s.out).Encode(result)
	}
	for _, t := range result.Tables {
		verb := "deleted"
		if result.DryRun {
			verb = "would delete"
		}
		text := fmt.Sprintf("%s: %s %d rows made before %s", t.Table, verb, t.Deleted, result.Before)
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
		return withCode(exitPreflight, errors.New("interrupted: what was deleted was published, the rest is still there"))
	}
	return classified(err)
}
