package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/audit"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

const commandAudit = "audit"

// Audit has the flags that only walstream audit knows. The range is that of rows;
// both bounds belong to it.
type Audit struct {
	FromID     string        `name:"from-id" placeholder:"ID" help:"rows from this id on (the table's id column)"`
	ToID       string        `name:"to-id" placeholder:"ID" help:"rows up to this id"`
	FromTime   string        `name:"from-time" placeholder:"TIME" help:"rows from this time on: 2026-11-30T15:04:05Z, or 2h for two hours ago"`
	ToTime     string        `name:"to-time" placeholder:"TIME" help:"rows up to this time"`
	TimeColumn string        `name:"time-column" placeholder:"COLUMN" help:"when a row was made; empty: timestamp-column, else created_at"`
	FromLSN    pglogrepl.LSN `name:"from-lsn" placeholder:"LSN" help:"events of commits from this LSN on"`
	ToLSN      pglogrepl.LSN `name:"to-lsn" placeholder:"LSN" help:"events of commits up to this LSN"`
	Topics     []string      `name:"topics" placeholder:"NAME,..." help:"topics to read beside those that settings and rows name"`
	Earlier    []string      `name:"earlier-pipelines" placeholder:"NAME,..." help:"pipelines that published this table before: their records count"`
	MissingTo  string        `name:"missing-to" placeholder:"FILE" help:"write the event ids of missing rows there, one a line"`
	Wait       time.Duration `name:"wait" default:"30s" range:"0s..1h" help:"how long the checkpoint may take to cover the rows read"`
	Memory     Size          `name:"memory" default:"256MiB" range:"32MiB..1TiB" help:"what to stay within; the rest goes to temporary files"`
	TempDir    string        `name:"temp-dir" placeholder:"DIR" help:"where to; empty: the system's"`
	JSON       bool          `name:"json" help:"one line of JSON"`

	from, to time.Time
}

// validate notes what is wrong with the flags.
func (a *Audit) validate(r *report) {
	r.checkOwn(commandAudit)
	now := time.Now()
	for _, t := range []struct {
		name, text string
		at         *time.Time
	}{{"from-time", a.FromTime, &a.from}, {"to-time", a.ToTime, &a.to}} {
		var err error
		if *t.at, err = parseMoment(t.text, now); err != nil {
			r.refuse(t.name, err.Error())
		}
	}
	for _, topic := range a.Topics {
		if !validTopic(topic) {
			r.refuse("topics", "names no topic; Kafka allows 1 to 249 of letters, digits and ._-")
		}
	}
}

// parseMoment reads a time, or how long ago it was.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00", time.DateTime, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, errors.New("is no time such as 2026-11-30T15:04:05Z (UTC without a zone), and no duration such as 2h for two hours ago")
}

// runAudit prints the result; the exit code is its verdict.
func runAudit(ctx context.Context, c *Config, a *Audit, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	cfg, err := auditConfig(c, a, s)
	if err != nil {
		return err
	}
	restore := limitMemory(cfg.Memory)
	defer restore()
	var missing []string
	if a.MissingTo != "" {
		cfg.Missing = func(id string) { missing = append(missing, id+"\n") }
	}
	result, err := audit.Run(ctx, cfg)
	if ctx.Err() != nil {
		return withCode(exitUndecided, errors.New("interrupted: there is no verdict"))
	}
	if err != nil {
		return auditError(err)
	}
	if a.MissingTo != "" {
		if err := os.WriteFile(a.MissingTo, []byte(strings.Join(missing, "")), 0o600); err != nil {
			return withCode(exitConfig, fmt.Errorf("write the ids of missing rows: %w", err))
		}
	}
	text := result.Table()
	if a.JSON {
		line, err := result.JSON()
		if err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		text = string(line) + "\n"
	}
	if _, err := fmt.Fprint(s.out, c.Redact(text)); err != nil {
		return err
	}
	switch result.Verdict {
	case audit.Difference:
		return withCode(exitDifference, errors.New("the audit found a difference"))
	case audit.Undecided:
		return withCode(exitUndecided, errors.New("the audit could not check everything"))
	case audit.Clean:
	}
	return nil
}

func auditConfig(c *Config, a *Audit, s streams) (audit.Config, error) {
	if slices.Contains(a.Earlier, c.Pipeline) {
		return audit.Config{}, withCode(exitConfig, fmt.Errorf("--earlier-pipelines names %q, which is the pipeline itself: the one that streams now belongs in --pipeline", c.Pipeline))
	}
	kafka, err := c.kafkaConfig(newLogger(c, s.err).Level(zerolog.WarnLevel))
	if err != nil {
		return audit.Config{}, err
	}
	postgres := c.postgresOptions()
	postgres.ApplicationName = "walstream audit"
	return audit.Config{
		Pipeline: c.Pipeline, Slot: c.Slot, Publication: c.Publication,
		Postgres: postgres, Kafka: kafka, Mapping: c.mappingConfigs(),
		FromID: a.FromID, ToID: a.ToID, FromTime: a.from, ToTime: a.to, FromLSN: a.FromLSN, ToLSN: a.ToLSN,
		TimeColumn: a.TimeColumn, Topics: a.Topics, Earlier: a.Earlier, Wait: a.Wait, Memory: int64(a.Memory), TempDir: a.TempDir,
		Progress: everyFewSeconds(func(text string) { fmt.Fprintln(s.err, "walstream: "+text) }),
	}, nil
}

// everyFewSeconds passes on what it is told, at most every five seconds.
func everyFewSeconds(say func(string)) func(string) {
	last := time.Now()
	return func(text string) {
		if time.Since(last) >= 5*time.Second {
			last = time.Now()
			say(text)
		}
	}
}

// limitMemory makes the collector work harder before memory is exceeded.
func limitMemory(bytes int64) (restore func()) {
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, bytes))
	return func() { debug.SetMemoryLimit(before) }
}

// auditError gives an error that leaves no verdict the exit code of its kind.
func auditError(err error) error {
	_, setting := errors.AsType[*audit.SettingError](err)
	_, setup := errors.AsType[*audit.SetupError](err)
	switch {
	case setting:
		return withCode(exitConfig, err)
	case errors.Is(err, replication.ErrMissingRight):
		return withCode(exitRights, err)
	case setup, replication.Transient(err), sink.Retriable(err):
		return withCode(exitPreflight, err)
	}
	return classified(err)
}
