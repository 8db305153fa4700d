package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

const commandDrop = "drop"

// Drop has the flags that only walstream drop knows.
type Drop struct {
	DryRun  bool   `name:"dry-run" help:"show what would go, and do nothing"`
	Confirm string `name:"confirm" placeholder:"PIPELINE" help:"the pipeline's name once more, instead of being asked for it"`
}

// runDrop removes what the pipeline has on both sides.
func runDrop(ctx context.Context, c *Config, d *Drop, s streams) error {
	if d.Confirm != "" && d.Confirm != c.Pipeline {
		return withCode(exitConfig, fmt.Errorf("--confirm names %q, the pipeline is %q: nothing was done", d.Confirm, c.Pipeline))
	}
	log := newLogger(c, s.err).Level(zerolog.WarnLevel)
	ctx, stop := onSignal(ctx, log)
	defer stop()
	cfg, err := c.pipelineConfig(log)
	if err != nil {
		return err
	}
	cfg.Postgres.ApplicationName = commandName
	estate, err := pipeline.Survey(ctx, cfg)
	if estate != nil { // also when something speaks against dropping it
		defer estate.Close()
	}
	if err == nil || d.DryRun && estate != nil && estate.Known {
		err = errors.Join(err, showEstate(s.out, c, estate))
	}
	switch {
	case err != nil && d.DryRun:
		return dropError(fmt.Errorf("nothing would be dropped now: %w", err))
	case err != nil:
		return dropError(err)
	case estate.Empty(), d.DryRun:
		return nil
	case d.Confirm == "":
		if err := confirmName(s, c.Pipeline); err != nil {
			return err
		}
	}
	var failed error
	err = estate.Drop(ctx, func(what string) {
		if _, err := fmt.Fprintln(s.out, "dropped", c.Redact(what)); err != nil {
			failed = err
		}
	})
	if err != nil {
		return dropError(fmt.Errorf("%w; what is left is dropped by another walstream drop", err))
	}
	return failed
}

func showEstate(out io.Writer, c *Config, e *pipeline.Estate) error {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if e.Empty() {
		say("nothing of pipeline %s is there", c.Pipeline)
	} else {
		say("of pipeline %s go:", c.Pipeline)
	}
	if e.Slot.Exists {
		say("  slot %s, confirmed up to %s: the WAL behind it", c.Slot, e.Slot.ConfirmedFlush)
	}
	if e.Rewind != "" {
		say("  slot %s, which trails it", e.Rewind)
	}
	if e.Record != nil {
		say("  checkpoint at %s", e.Record.Covered)
	}
	for _, topic := range e.Topics {
		say("  topic %s", topic)
	}
	if e.Publication.Ours {
		say("  publication %s", c.Publication)
	}
	if e.Publication.Exists && !e.Publication.Ours {
		say("publication %s stays: %s", c.Publication, e.Publication.Why)
	}
	if e.Letters != "" {
		say("topic %s stays: it holds dead letters", e.Letters)
	}
	if !e.Empty() {
		say("Rows that were committed and not published are then in the table only. A start afterwards begins with rows committed from then on.")
	}
	_, err := io.WriteString(out, c.Redact(b.String()))
	return err
}

// confirmName asks a person for the name, which nobody types by habit.
func confirmName(s streams, name string) error {
	if _, err := fmt.Fprint(s.err, "Type the pipeline's name to go on: "); err != nil {
		return err
	}
	if s.in != nil {
		answer, _ := bufio.NewReader(s.in).ReadString('\n')
		if strings.TrimSpace(answer) == name {
			return nil
		}
	}
	return withCode(exitConfig, fmt.Errorf("not confirmed: nothing was done; --confirm=%s does not ask", name))
}

// dropError gives what went wrong the exit code of its kind.
func dropError(err error) error {
	if errors.Is(err, pipeline.ErrInUse) || errors.Is(err, replication.ErrSlotBusy) || pipeline.Classify(err).Action == pipeline.Retry {
		return withCode(exitPreflight, err)
	}
	return classified(err)
}
