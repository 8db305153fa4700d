package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
)

const commandSetup = "setup"

// printTimeout bounds the look at the server's tables.
const printTimeout = 10 * time.Second

// Setup has the flags that only walstream setup knows.
type Setup struct {
	Print bool   `name:"print" help:"print the SQL for a DBA instead: role, rights, publication, slot"`
	For   string `name:"for" default:"plain" values:"plain,rds,cloudsql,azure,supabase" help:"print: for plain, rds, cloudsql, azure or supabase"`
	Role  string `name:"role" default:"walstream" placeholder:"NAME" help:"print: the role that streams"`
}

func (u *Setup) validate(r *report) {
	r.checkOwn(commandSetup)
	if u.Role == "" || len(u.Role) > maxIdentifier {
		r.refuse("role", fmt.Sprintf("is a name of 1 to %d bytes", maxIdentifier))
	}
}

// runSetup makes what a first start makes, or prints it.
func runSetup(ctx context.Context, c *Config, u *Setup, s streams) error {
	log := newLogger(c, s.err)
	ctx, stop := onSignal(ctx, log)
	defer stop()
	if u.Print {
		return u.print(ctx, c, s)
	}
	cfg, err := c.pipelineConfig(log)
	if err != nil {
		return err
	}
	made, at, err := pipeline.SetUp(ctx, cfg)
	if err != nil {
		if _, known := exitCodes[pipeline.Classify(err).Reason]; !known && pipeline.Classify(err).Action == pipeline.Retry {
			return withCode(exitPreflight, err)
		}
		return classified(err)
	}
	what := "was set up before"
	if made {
		what = "is set up: publication " + c.Publication + " is there, and the server keeps WAL until an instance streams"
	}
	_, err = fmt.Fprintf(s.out, "pipeline %s %s; slot %s stands at %s\n", c.Pipeline, what, c.Slot, at)
	return err
}

func (u *Setup) print(ctx context.Context, c *Config, s streams) error {
	cfg, err := c.pipelineConfig(zerolog.Nop())
	if err != nil {
		return err
	}
	cfg.Postgres.ApplicationName = commandName
	ctx, cancel := context.WithTimeout(ctx, printTimeout)
	defer cancel()
	wanted, err := pipeline.Wanted(ctx, cfg)
	if len(wanted.Tables) == 0 {
		return classified(err)
	}
	plan := setupPlan{setup: u, config: c, publication: wanted}
	if err != nil {
		plan.guessed = true
		fmt.Fprintln(s.err, "walstream: the tables could not be looked at, so the publication's columns are those of the settings: "+c.Redact(err.Error()))
	}
	if config, err := parsePostgres(c.Postgres); err == nil {
		plan.database = databaseOf(config)
	}
	_, err = io.WriteString(s.out, c.Redact(plan.sql()))
	return err
}
