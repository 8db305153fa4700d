package main

import (
	"context"
	"fmt"
	"path"
	"time"
)

// fault is one thing to do to the pipeline.
type fault struct {
	name string
	do   func(*campaign, context.Context) error
}

// deck holds every kind of fault, in the proportion in which they are made.
func (c *campaign) deck() []fault {
	deck := []fault{
		{"kill", (*campaign).killStreaming},
		{"kill", (*campaign).killStreaming},
		{"kill", (*campaign).killStreaming},
		{"kill-starting", (*campaign).killStarting},
		{"kill-starting", (*campaign).killStarting},
		{"broker-kill", (*campaign).killBroker},
		{"broker-stop", (*campaign).stopBroker},
		{"postgres-immediate", (*campaign).restartPostgres},
		{"postgres-immediate", (*campaign).restartPostgres},
		{"kafka-cut", (*campaign).cutKafka},
		{"kafka-blackhole", (*campaign).blackholeKafka},
		{"kafka-unanswered", (*campaign).unansweredKafka},
		{"postgres-cut", (*campaign).cutPostgres},
		{"postgres-blackhole", (*campaign).blackholePostgres},
		{"postgres-unanswered", (*campaign).unansweredPostgres},
		{"pause", (*campaign).pauseStreaming},
		{"pause-starting", (*campaign).pauseStarting},
		{"pause-at-" + endTxn, holdAt(endTxn)},
		{"pause-at-" + produce, holdAt(produce)},
		{"cut-at-" + endTxn, cutAt(endTxn, beforeRequest)},
		{"cut-at-" + endTxn, cutAt(endTxn, beforeAnswer)},
		{"broker-kill-at-" + endTxn, killBrokerAt(endTxn, afterRequest)},
	}
	moments := []when{beforeRequest, afterRequest, beforeAnswer}
	for _, what := range []string{produce, endTxn, initProducerID, addPartitionsToTxn} {
		for _, when := range moments {
			if what != addPartitionsToTxn || c.txnVersion == 1 {
				deck = append(deck, fault{"kill-at-" + what, killAt(what, when)})
			}
		}
	}
	for _, when := range moments[:2] {
		deck = append(deck, fault{"kill-at-" + confirmation, killAt(confirmation, when)})
	}
	return deck
}

// inflict faults in the order that the seed gives.
func (c *campaign) inflict(ctx context.Context) error {
	var deck []fault
	for n := 1; n <= c.options.faults; {
		if len(deck) == 0 {
			deck = c.chosen()
			if len(deck) == 0 {
				return fmt.Errorf("no fault is called %q", c.only)
			}
			c.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := deck[0]
		deck = deck[1:]
		// One in five comes while the pipeline is not over the one before.
		if c.rng.IntN(5) > 0 {
			if err := c.progress(ctx); err != nil {
				return fmt.Errorf("before fault %d (%s): %w", n, f.name, err)
			}
		}
		began := time.Now()
		if err := f.do(c, ctx); err != nil {
			return fmt.Errorf("fault %d (%s): %w", n, f.name, err)
		}
		c.done[f.name]++
		records, err := c.tail.records()
		if err != nil {
			return err
		}
		c.say("fault %3d of %d, %s (%s): %d rows committed, %d records read, longest stall %s", n, c.options.faults, f.name,
			time.Since(began).Round(time.Millisecond), c.load.committed.Load(), records, c.tail.stall().Round(time.Millisecond))
		n++
	}
	return c.progress(ctx)
}

func (c *campaign) chosen() (deck []fault) {
	for _, f := range c.deck() {
		if fits, _ := path.Match(c.only, f.name); c.only == "" || fits {
			deck = append(deck, f)
		}
	}
	return deck
}

func (c *campaign) progress(ctx context.Context) error {
	if _, err := c.streaming(ctx); err != nil {
		return err
	}
	return c.arrivals(ctx, 20+c.rng.IntN(300))
}

func (c *campaign) random(least, most time.Duration) time.Duration {
	return least + time.Duration(c.rng.Int64N(int64(most-least)+1))
}

// killStreaming is kill -9 at a random moment.
func (c *campaign) killStreaming(ctx context.Context) error {
	i, err := c.streaming(ctx)
	if err == nil {
		err = sleep(ctx, c.random(0, 500*time.Millisecond))
	}
	if err != nil {
		return err
	}
	return c.killed(ctx, i)
}

// killStarting is kill -9 on the way to streaming.
func (c *campaign) killStarting(ctx context.Context) error {
	i, err := c.streaming(ctx)
	if err == nil {
		err = c.killed(ctx, i)
	}
	if err != nil {
		return err
	}
	newest := c.instances[len(c.instances)-1]
	if err := sleep(ctx, time.Until(newest.startedAt.Add(c.random(0, 400*time.Millisecond)))); err != nil {
		return err
	}
	return c.killed(ctx, newest)
}

// killed kills an instance, in every second case with what it had sent and the
// network not delivered, and goes on.
func (c *campaign) killed(ctx context.Context, i *instance) error {
	if err := c.ended(); err != nil {
		return err
	}
	c.kill(i)
	if c.rng.IntN(2) == 0 {
		c.toKafka.drop()
		c.toPG.drop()
	}
	return c.again(ctx)
}

// again looks what a reader sees while nobody is at work, and starts an instance;
// where one stood by it takes over, and another stands by in every second case.
func (c *campaign) again(ctx context.Context) error {
	if len(c.instances) == 0 {
		if err := c.look(ctx); err != nil {
			return err
		}
	} else if c.rng.IntN(2) == 0 {
		return nil
	}
	_, err := c.start()
	return err
}

func (c *campaign) killBroker(ctx context.Context) error {
	if err := c.kafka.Kill(); err != nil {
		return err
	}
	return c.startBroker(ctx)
}

func (c *campaign) stopBroker(ctx context.Context) error {
	if err := c.kafka.Stop(); err != nil {
		return err
	}
	return c.startBroker(ctx)
}

func (c *campaign) startBroker(ctx context.Context) error {
	if err := sleep(ctx, c.random(0, time.Second)); err != nil {
		return err
	}
	return c.kafka.Start(ctx)
}

func (c *campaign) restartPostgres(ctx context.Context) error {
	if err := c.pg.Stop("immediate"); err != nil {
		return err
	}
	if err := sleep(ctx, c.random(0, time.Second)); err != nil {
		return err
	}
	return c.pg.Start(ctx)
}

// broken breaks a link for a while; one in four is long.
func (c *campaign) broken(ctx context.Context, l *link, breakIt func()) error {
	d := c.random(50*time.Millisecond, c.longest/4)
	if c.rng.IntN(4) == 0 {
		d = c.random(c.longest/4, c.longest)
	}
	breakIt()
	err := sleep(ctx, d)
	if err == nil && l == c.toKafka {
		err = c.look(ctx) // nothing that walstream does arrives
	}
	if restored := l.restore(); err == nil {
		err = restored
	}
	return err
}

func (c *campaign) cutKafka(ctx context.Context) error {
	return c.broken(ctx, c.toKafka, c.toKafka.cut)
}

func (c *campaign) blackholeKafka(ctx context.Context) error {
	return c.broken(ctx, c.toKafka, func() { c.toKafka.swallow(requests, answers) })
}

func (c *campaign) unansweredKafka(ctx context.Context) error {
	l := c.toKafka
	l.swallow(answers)
	if err := sleep(ctx, c.random(50*time.Millisecond, c.longest/2)); err != nil {
		return err
	}
	return l.restore()
}

func (c *campaign) cutPostgres(ctx context.Context) error {
	return c.broken(ctx, c.toPG, c.toPG.cut)
}

func (c *campaign) blackholePostgres(ctx context.Context) error {
	return c.broken(ctx, c.toPG, func() { c.toPG.swallow(requests, answers) })
}

func (c *campaign) unansweredPostgres(ctx context.Context) error {
	return c.broken(ctx, c.toPG, func() { c.toPG.swallow(requests) })
}
