package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/walstream/walstream/internal/verdict"
)

// fault is one thing to do to the pipeline.
type fault func(*campaign, context.Context) error

// faults does them all, in the order that the seed gives.
func (c *campaign) faults(ctx context.Context) error {
	early, anywhere := c.options.kills/10, c.options.kills/8
	order := slices.Concat(
		slices.Repeat([]fault{(*campaign).killStarting}, early),
		slices.Repeat([]fault{(*campaign).killAnywhere}, anywhere),
		slices.Repeat([]fault{(*campaign).killAfterCommit}, c.options.kills-early-anywhere),
		slices.Repeat([]fault{(*campaign).restartBroker}, c.brokerRestarts),
	)
	c.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, do := range order {
		if err := do(c, ctx); err != nil {
			return err
		}
	}
	return c.progress(ctx)
}

// killAfterCommit kills walstream right after a commit, before its rows can be
// through.
func (c *campaign) killAfterCommit(ctx context.Context) error {
	if err := c.caughtUp(ctx); err != nil {
		return err
	}
	return c.killStreaming(ctx, 0)
}

// killAnywhere kills walstream while it makes up for the time it was down, or
// soon after.
func (c *campaign) killAnywhere(ctx context.Context) error {
	return c.killStreaming(ctx, time.Duration(c.rng.IntN(20_000))*time.Microsecond)
}

// killStreaming kills walstream some time after a commit.
func (c *campaign) killStreaming(ctx context.Context, wait time.Duration) error {
	if err := c.progress(ctx); err != nil {
		return err
	}
	var k kill
	err := c.writers.afterCommit(ctx, func() {
		time.Sleep(wait)
		k = c.kill()
	})
	if err != nil {
		return err
	}
	return c.again(ctx, k)
}

// killStarting kills walstream somewhere on its way to streaming, soon after the
// kill or the broker's restart before.
func (c *campaign) killStarting(ctx context.Context) error {
	wait := time.Until(c.startedAt.Add(time.Duration(c.rng.IntN(400)) * time.Millisecond))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.again(ctx, c.kill())
}

// kill is kill -9, and the end of its connections: the machine is gone. What it
// had sent and the network not delivered is lost. (Else it would arrive for as
// long as a second, while the next instance writes, and an instance of which only
// that much has arrived could not be told from the next.)
func (c *campaign) kill() kill {
	k := kill{restart: len(c.restarts), committed: int(c.writers.committed.Load()), ran: time.Since(c.startedAt)}
	select {
	case <-c.service.Done():
		k.tooLate = true
	default:
		c.service.Kill()
		c.proxy.Drop()
	}
	return k
}

// again reads what the killed instance has left in Kafka, and starts the next.
func (c *campaign) again(ctx context.Context, k kill) error {
	if k.tooLate {
		return fmt.Errorf("walstream ended by itself, with exit code %d", c.service.ExitCode())
	}
	killed := time.Now()
	r, err := c.look(ctx)
	if err == nil {
		r, err = c.settled(ctx, r)
	}
	if err != nil {
		return err
	}
	c.restarts, c.kills = append(c.restarts, r), append(c.kills, k)
	if err := c.start(); err != nil {
		return err
	}
	c.say("kill %d of %d after %s: %d rows committed, checkpoint at %s; started again after %s",
		len(c.kills), c.options.kills, k.ran.Round(time.Millisecond), k.committed, r.Checkpoint, time.Since(killed).Round(time.Millisecond))
	return nil
}

// restartBroker stops the broker in order or kills it, and starts it again after
// a while; it returns when rows arrive again.
func (c *campaign) restartBroker(ctx context.Context) error {
	if err := c.progress(ctx); err != nil {
		return err
	}
	r, err := c.look(ctx)
	if err != nil {
		return err
	}
	c.restarts = append(c.restarts, r)
	how, end := "stopped", c.kafka.Stop
	if c.rng.IntN(2) == 0 {
		how, end = "killed", c.kafka.Kill
	}
	down := time.Now()
	if err := end(); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(c.rng.IntN(2000)) * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := c.kafka.Start(ctx); err != nil {
		return err
	}
	up := time.Now()
	c.brokers++
	if err := c.arrivals(ctx, 1); err != nil {
		return err
	}
	c.say("broker restart %d of %d: %s, down for %s, rows arrive again %s later", c.brokers, c.brokerRestarts, how,
		up.Sub(down).Round(time.Millisecond), time.Since(up).Round(time.Millisecond))
	return nil
}

// caughtUp waits until what had been committed when the instance began to stream
// is confirmed.
func (c *campaign) caughtUp(ctx context.Context) error {
	if err := c.streaming(ctx); err != nil {
		return err
	}
	return c.confirmed(ctx)
}

// progress waits until the instance streams and has published for a while, so
// that it has rows behind the last fault in every sense.
func (c *campaign) progress(ctx context.Context) error {
	if err := c.streaming(ctx); err != nil {
		return err
	}
	return c.arrivals(ctx, 500+c.rng.Int64N(2000))
}

// arrivals waits until so many records lie behind the ends of the last restart.
func (c *campaign) arrivals(ctx context.Context, records int64) error {
	var from int64
	if len(c.restarts) > 0 {
		from = total(c.restarts[len(c.restarts)-1].Ends)
	}
	return c.until(ctx, fmt.Sprintf("%d records to arrive", records), func(ctx context.Context) (bool, error) {
		ends, err := c.ends(ctx)
		return total(ends)-from >= records, err
	})
}

func total(ends map[verdict.Place]int64) (sum int64) {
	for _, end := range ends {
		sum += end
	}
	return sum
}

// look reads the durable checkpoint and the ends of the partitions.
func (c *campaign) look(ctx context.Context) (r verdict.Restart, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	ends, err := verdict.CommittedEnds(ctx, c.admin, checkpointTopic)
	if err != nil {
		return r, err
	}
	record, err := c.checkpoints.at(ctx, ends[verdict.Place{Topic: checkpointTopic}])
	if err != nil {
		return r, err
	}
	r.Checkpoint = record.CommitLSN
	r.Ends, err = c.ends(ctx)
	return r, err
}

// settled reads the ends until they stay for a moment: a request that the broker
// had got when its client was killed is still carried out.
func (c *campaign) settled(ctx context.Context, r verdict.Restart) (verdict.Restart, error) {
	for {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return r, ctx.Err()
		}
		ends, err := c.ends(ctx)
		if err != nil || maps.Equal(ends, r.Ends) {
			return r, err
		}
		r.Ends = ends
	}
}

func (c *campaign) ends(ctx context.Context) (map[verdict.Place]int64, error) {
	return verdict.CommittedEnds(ctx, c.admin, topic)
}
