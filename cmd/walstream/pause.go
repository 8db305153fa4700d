package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/sink"
)

const (
	commandPause  = "pause"
	commandResume = "resume"
)

// Pause has the flags that only walstream pause knows.
type Pause struct {
	For    time.Duration `name:"for" default:"0s" range:"0s..720h" help:"go on by itself after this; 0s: when somebody resumes"`
	Reason string        `name:"reason" placeholder:"TEXT" help:"shown with the state of each instance"`
	Wait   time.Duration `name:"wait" default:"30s" range:"0s..1h" help:"how long the slot may take to be free; 0s: do not look"`
}

func (*Pause) validate(r *report) { r.checkOwn(commandPause) }

// runPause asks all instances to leave the slot in peace, and waits until they do.
func runPause(ctx context.Context, c *Config, p *Pause, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	now := time.Now()
	word := sink.Pause{Paused: true, At: now, By: operator(), Reason: p.Reason}
	if p.For > 0 {
		word.Until = now.Add(p.For)
	}
	if err := writePause(ctx, c, word); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.out, "pipeline %s: %s\n", c.Pipeline, word); err != nil || p.Wait == 0 {
		return err
	}
	return awaitFreeSlot(ctx, c, p.Wait, s)
}

// awaitFreeSlot looks until nobody holds the slot.
func awaitFreeSlot(ctx context.Context, c *Config, wait time.Duration, s streams) error {
	cfg, err := c.pipelineConfig(zerolog.Nop())
	if err != nil {
		return err
	}
	cfg.Postgres.ApplicationName = commandName
	for deadline := time.Now().Add(wait); ; {
		view := readView(ctx, cfg, new(lagSamples))
		switch {
		case ctx.Err() != nil:
			return withCode(exitPreflight, fmt.Errorf("the pause is written; whether the slot is free was not waited for: %w", ctx.Err()))
		case view.Slot != nil && !view.Slot.Exists:
			_, err := fmt.Fprintf(s.out, "slot %s does not exist; the pause holds for the first start too\n", c.Slot)
			return err
		case view.Slot != nil && view.Holder == nil:
			_, err := fmt.Fprintf(s.out, "slot %s is free at %s; the server keeps WAL for it until walstream resume: %s\n", c.Slot, orUnknown(view.Slot.Confirmed), view.kept())
			return err
		case time.Now().Before(deadline):
		case view.Slot == nil:
			return withCode(exitPreflight, fmt.Errorf("the pause is written; whether the slot is free cannot be told: %w", view.unread))
		default:
			return withCode(exitPreflight, fmt.Errorf("the pause is written, but slot %s is still held by %s", c.Slot, view.Holder.text))
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// runResume takes the pause back.
func runResume(ctx context.Context, c *Config, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	before, err := readPause(ctx, c)
	if err == nil && !before.InForce(time.Now()) {
		_, err := fmt.Fprintf(s.out, "pipeline %s is not paused\n", c.Pipeline)
		return err
	}
	if _, strange := errors.AsType[*sink.SetupError](err); err != nil && !strange { // what stands there is written over
		return kafkaError(err)
	}
	word := sink.Pause{At: time.Now(), By: operator()}
	if err := writePause(ctx, c, word); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "pipeline %s: %s; its instances go on within seconds\n", c.Pipeline, word)
	return err
}

func readPause(ctx context.Context, c *Config) (sink.Pause, error) {
	cfg, err := c.kafkaConfig(zerolog.Nop())
	if err != nil {
		return sink.Pause{}, err
	}
	kafka, err := sink.Open(cfg)
	if err != nil {
		return sink.Pause{}, withCode(exitConfig, err)
	}
	defer kafka.Close()
	return kafka.ReadPause(ctx)
}

// pauseTimeout bounds the writing: brokers that do not answer are waited for
// otherwise.
const pauseTimeout = 20 * time.Second

func writePause(ctx context.Context, c *Config, word sink.Pause) error {
	cfg, err := c.kafkaConfig(zerolog.Nop())
	if err != nil {
		return err
	}
	kafka, err := sink.Open(cfg)
	if err != nil {
		return withCode(exitConfig, err)
	}
	defer kafka.Close()
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	return kafkaError(kafka.WritePause(ctx, word))
}

// kafkaError gives an error of a command that asks Kafka the exit code of its kind.
func kafkaError(err error) error {
	if err == nil {
		return nil
	}
	if code, ok := exitCodes[pipeline.Classify(err).Reason]; ok {
		return withCode(code, err)
	}
	return withCode(exitPreflight, err)
}
