package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

const commandSkip = "skip"

// Skip has the flags that only walstream skip knows.
type Skip struct {
	Position   []string `name:"position" placeholder:"POSITION,..." help:"of the row, as the message that stopped the stream has it: 0/1F20#3"`
	DeadLetter bool     `name:"dead-letter" help:"keep it in walstream.dead-letters.<pipeline> instead of leaving it out"`
	Yes        bool     `name:"yes" help:"do not ask"`

	positions []decode.Position
}

func (k *Skip) validate(r *report) {
	if len(k.Position) == 0 {
		r.refuse("position", "is required: the message that stopped the stream names it")
	}
	for _, text := range k.Position {
		p, err := decode.ParsePosition(text)
		if err != nil {
			r.refuse("position", err.Error())
		}
		k.positions = append(k.positions, p)
	}
}

// runSkip lets rows pass that hold the stream, and nothing else.
func runSkip(ctx context.Context, c *Config, k *Skip, s streams) error {
	log := newLogger(c, s.err)
	cfg, err := c.pipelineConfig(log)
	if err != nil {
		return err
	}
	shot := sink.OneShot{Positions: k.positions, Policy: sink.Skip, By: operator()}
	what := "leaves out"
	if k.DeadLetter {
		shot.Policy, what = sink.DeadLetter, "puts into walstream.dead-letters."+c.Pipeline
	}
	rows := strings.Join(k.Position, ", ")
	if !k.Yes {
		question := fmt.Sprintf("walstream streams slot %s of pipeline %s up to the transaction of %s, %s that row, and moves the slot beyond it.", c.Slot, c.Pipeline, rows, what)
		if err := confirm(s, question); err != nil {
			return err
		}
	}
	ctx, stop := onSignal(ctx, log)
	defer stop()
	log.Warn().Str("positions", rows).Str("action", string(shot.Policy)).Str("by", shot.By).Str("pipeline", c.Pipeline).Str("slot", c.Slot).
		Msg("an operator lets rows pass")
	sound, err := pipeline.Pass(ctx, cfg, shot)
	if err != nil {
		return skipError(err)
	}
	rows = positionList(slices.DeleteFunc(slices.Clone(k.positions), func(p decode.Position) bool { return slices.Contains(sound, p) }))
	log.Warn().Str("positions", rows).Str("sound", positionList(sound)).Str("action", string(shot.Policy)).Str("by", shot.By).Msg("passed: the slot stands behind their transaction")
	if len(sound) > 0 {
		if _, err := fmt.Fprintf(s.out, "nothing was wrong with the row at %s, if there is one: it was published\n", positionList(sound)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(s.out, "passed %s (%s); walstream can be started again\n", rows, shot.Policy)
	return err
}

func positionList(positions []decode.Position) string {
	texts := make([]string, len(positions))
	for i, p := range positions {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// skipError gives what went wrong the exit code of its kind.
func skipError(err error) error {
	switch {
	case errors.Is(err, replication.ErrSlotBusy), errors.Is(err, sink.ErrFenced):
		return withCode(exitPreflight, fmt.Errorf("another instance is at work, so nothing holds the stream, or stop it first: %w", err))
	case errors.Is(err, pipeline.ErrNotBlocked):
		return withCode(exitConfig, err)
	case errors.Is(err, context.Canceled):
		return withCode(exitUnacknowledged, err)
	}
	return classified(err)
}

// operator is who runs this process, and where.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

var errNotConfirmed = errors.New("not confirmed: nothing was done; --yes does not ask")

// confirm asks a person.
func confirm(s streams, question string) error {
	if _, err := fmt.Fprintf(s.err, "%s\nType yes to go on: ", question); err != nil {
		return err
	}
	if s.in != nil {
		answer, _ := bufio.NewReader(s.in).ReadString('\n')
		if strings.TrimSpace(answer) == "yes" {
			return nil
		}
	}
	return withCode(exitConfig, errNotConfirmed)
}
