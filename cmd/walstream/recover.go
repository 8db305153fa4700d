package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/recovery"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

const commandRecover = "recover"

// Recover has the flags that only walstream recover knows. The default of the
// window is what a transaction may be open for where nobody watches.
type Recover struct {
	Execute  bool          `name:"execute" help:"do it; without it the command only looks"`
	Confirm  string        `name:"confirm" placeholder:"PIPELINE" help:"the pipeline's name once more, instead of being asked for it"`
	Window   time.Duration `name:"window" default:"1h" range:"0s..87600h" help:"rows made so long before the last commit published are in doubt"`
	AllRows  bool          `name:"all-rows" help:"every row of the table is in doubt: after Kafka was wiped"`
	NewSlot  bool          `name:"new-slot" help:"make a slot anew that looks well: after the server was restored"`
	TrustIDs bool          `name:"trust-ids" help:"leave out rows whose event id is in the topics with another value"`
	Topics   []string      `name:"topics" placeholder:"NAME,..." help:"topics to read beside those that settings and rows name"`
	Earlier  []string      `name:"earlier-pipelines" placeholder:"NAME,..." help:"pipelines that published this table before: their records count"`
	Wait     time.Duration `name:"wait" default:"30s" range:"0s..1h" help:"how long open Kafka transactions may take to end"`
	JSON     bool          `name:"json" help:"one line of JSON"`
}

func (k *Recover) validate(r *report) {
	r.checkOwn(commandRecover)
	for _, topic := range k.Topics {
		if !validTopic(topic) {
			r.refuse("topics", "names no topic; Kafka allows 1 to 249 of letters, digits and ._-")
		}
	}
}

// runRecover shows which rows are in doubt, and publishes those that are in no
// topic when it is told to.
func runRecover(ctx context.Context, c *Config, k *Recover, s streams) error {
	switch {
	case k.Confirm != "" && k.Confirm != c.Pipeline:
		return withCode(exitConfig, fmt.Errorf("--confirm names %q, the pipeline is %q: nothing was done", k.Confirm, c.Pipeline))
	case slices.Contains(k.Earlier, c.Pipeline):
		return withCode(exitConfig, fmt.Errorf("--earlier-pipelines names %q, which is the pipeline itself", c.Pipeline))
	}
	log := newLogger(c, s.err)
	ctx, stop := onSignal(ctx, log)
	defer stop()
	cfg, err := c.pipelineConfig(log.Level(zerolog.WarnLevel))
	if err != nil {
		return err
	}
	cfg.Recover = &pipeline.Recovery{
		Window: k.Window, All: k.AllRows, NewSlot: k.NewSlot, TrustIDs: k.TrustIDs, Earlier: k.Earlier, Topics: k.Topics, Wait: k.Wait,
		Progress: everyFewSeconds(func(text string) { fmt.Fprintln(s.err, "walstream: "+text) }),
	}
	found, err := pipeline.SurveyRecovery(ctx, cfg)
	if err != nil {
		return recoverError(err)
	}
	if !k.Execute {
		return errors.Join(printRecovery(s.out, c, found, k.JSON), notExecuted(s.err, found))
	}
	if k.Confirm == "" {
		if err := printRecovery(s.err, c, found, false); err != nil {
			return err
		}
		if err := confirmName(s, c.Pipeline); err != nil {
			return err
		}
	}
	cfg.Logger = log
	done, err := pipeline.Recover(ctx, cfg, found)
	if err != nil {
		return recoverError(err)
	}
	return printRecovery(s.out, c, done, k.JSON)
}

func notExecuted(out io.Writer, found *recovery.Report) error {
	what := "nothing was done; --execute publishes these rows"
	if found.NewSlot {
		what += ", and makes the slot anew"
	}
	_, err := fmt.Fprintln(out, "walstream: "+what)
	return err
}

func printRecovery(out io.Writer, c *Config, r *recovery.Report, asJSON bool) error {
	text := r.Text()
	if asJSON {
		line, err := r.JSON()
		if err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		text = string(line) + "\n"
	}
	_, err := io.WriteString(out, c.Redact(text))
	return err
}

// recoverError gives what went wrong the exit code of its kind.
func recoverError(err error) error {
	switch {
	case errors.Is(err, pipeline.ErrNothingToRecover), errors.Is(err, pipeline.ErrInUse), errors.Is(err, replication.ErrSlotBusy), errors.Is(err, sink.ErrFenced),
		pipeline.Classify(err).Action == pipeline.Retry:
		return withCode(exitPreflight, err)
	case errors.Is(err, context.Canceled):
		return withCode(exitUnacknowledged, err)
	}
	return classified(err)
}
