package main

import (
	"context"
	"fmt"
	"time"
)

// momentLimit is how long a moment is waited for. A commit comes every few
// milliseconds.
const momentLimit = 20 * time.Second

// linkOf is where a piece passes.
func (c *campaign) linkOf(what string) *link {
	if what == confirmation {
		return c.toPG
	}
	return c.toKafka
}

// wait for a trap to spring.
func (c *campaign) wait(ctx context.Context, l *link, t *trap) error {
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		l.take(t)
		return ctx.Err()
	case <-time.After(momentLimit):
	}
	if l.take(t) {
		if err := c.ended(); err != nil {
			return err
		}
		return fmt.Errorf("the moment %s did not come within %s", t, momentLimit)
	}
	<-t.done
	return nil
}

// killAt kills the instance at work at a moment of its conversation, and its
// connections with it: what the trap holds is not passed on.
func killAt(what string, when when) func(*campaign, context.Context) error {
	return func(c *campaign, ctx context.Context) error {
		i, err := c.streaming(ctx)
		if err != nil {
			return err
		}
		nth := 1 + c.rng.IntN(4)
		if what == initProducerID { // it is of the start, once for each lane
			if nth = 1 + c.rng.IntN(2); len(c.instances) == 1 {
				if err := c.killed(ctx, i); err != nil {
					return err
				}
				i = c.instances[0]
			} else {
				c.kill(i)
				i = c.instances[0]
			}
		}
		l := c.linkOf(what)
		t := l.set(what, when, nth, func() {
			i.Kill()
			c.toKafka.drop()
			c.toPG.drop()
		})
		if err := c.wait(ctx, l, t); err != nil {
			return err
		}
		c.forget(i)
		return c.again(ctx)
	}
}

// cutAt closes all connections to Kafka at a moment: what became of the request
// is open.
func cutAt(what string, when when) func(*campaign, context.Context) error {
	return func(c *campaign, ctx context.Context) error {
		return c.wait(ctx, c.toKafka, c.toKafka.set(what, when, 1+c.rng.IntN(4), c.toKafka.drop))
	}
}

// killBrokerAt kills the broker at a moment.
func killBrokerAt(what string, when when) func(*campaign, context.Context) error {
	return func(c *campaign, ctx context.Context) error {
		var killed error
		t := c.toKafka.set(what, when, 1+c.rng.IntN(4), func() { killed = c.kafka.Kill() })
		if err := c.wait(ctx, c.toKafka, t); err != nil {
			return err
		}
		if killed != nil {
			return killed
		}
		return c.startBroker(ctx)
	}
}

// standby makes sure that a second instance stands by.
func (c *campaign) standby(ctx context.Context) (active *instance, err error) {
	if active, err = c.streaming(ctx); err != nil {
		return nil, err
	}
	if len(c.instances) == 1 {
		if _, err := c.start(); err != nil {
			return nil, err
		}
	}
	return active, c.until(ctx, "an instance to stand by", func(ctx context.Context) (bool, error) {
		active = c.inState(ctx, "streaming", nil)
		return active != nil && c.inState(ctx, "standby", nil) != nil, nil
	})
}

// takenOver waits until another instance streams, wakes the paused one up, and
// waits until it stands by. One of the two goes.
func (c *campaign) takenOver(ctx context.Context, paused *instance, wake func()) error {
	if _, err := c.streaming(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, c.random(0, time.Second)); err != nil {
		return err
	}
	wake()
	err := c.until(ctx, "the instance that was paused to stand by", func(ctx context.Context) (bool, error) {
		return c.inState(ctx, "standby", paused) != nil, nil
	})
	if err != nil {
		return err
	}
	switch c.rng.IntN(3) {
	case 0:
		c.kill(paused)
	case 1:
		i, err := c.streaming(ctx)
		if err != nil {
			return err
		}
		c.forget(i)
		return i.Stop(waitLimit)
	}
	return nil
}

// pauseStreaming stops the active instance past the time-outs, with one standing
// by.
func (c *campaign) pauseStreaming(ctx context.Context) error {
	i, err := c.standby(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, c.random(0, 300*time.Millisecond)); err != nil {
		return err
	}
	if err := c.pause(i); err != nil {
		return err
	}
	return c.takenOver(ctx, i, func() { c.resume(i) })
}

// pauseStarting stops an instance on its way to streaming.
func (c *campaign) pauseStarting(ctx context.Context) error {
	for len(c.instances) > 0 {
		c.kill(c.instances[0])
	}
	if err := c.look(ctx); err != nil {
		return err
	}
	i, err := c.start()
	if err != nil {
		return err
	}
	if err := sleep(ctx, c.random(20*time.Millisecond, 500*time.Millisecond)); err != nil {
		return err
	}
	if err := c.pause(i); err != nil {
		return err
	}
	if _, err := c.start(); err != nil {
		return err
	}
	return c.takenOver(ctx, i, func() { c.resume(i) })
}

// holdAt stops the active instance while a request of its is on the way, which
// arrives when another instance has long taken over.
func holdAt(what string) func(*campaign, context.Context) error {
	return func(c *campaign, ctx context.Context) error {
		i, err := c.standby(ctx)
		if err != nil {
			return err
		}
		var paused error
		sprung, release := make(chan struct{}), make(chan struct{})
		t := c.toKafka.set(what, beforeRequest, 1+c.rng.IntN(4), func() {
			paused = i.Signal(stopSignal)
			close(sprung)
			<-release
		})
		wake := func() {
			close(release)
			<-t.done
			c.resume(i)
		}
		select {
		case <-sprung:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(momentLimit):
			close(release)
			return fmt.Errorf("the moment %s did not come within %s", t, momentLimit)
		}
		if i.paused = true; paused != nil {
			wake()
			return paused
		}
		woken := false
		defer func() {
			if !woken {
				wake()
			}
		}()
		return c.takenOver(ctx, i, func() { woken = true; wake() })
	}
}
