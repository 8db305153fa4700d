package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/verdict"
)

// drainInto is the drain of every publisher: fresh topics, the process, all rows
// behind the high watermarks, an orderly end, and each row read back once.
func drainInto(ctx context.Context, w *world, c publisher, round int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, w.drainLimit())
	defer cancel()
	if err := w.fresh(ctx); err != nil {
		return sample{}, err
	}
	watch, err := newWatcher(ctx, w, c.slot(w, round))
	if err != nil {
		return sample{}, err
	}
	broker := w.brokerCPU()
	p, err := c.start(ctx, w, round)
	if err != nil {
		return sample{}, errors.Join(err, watch.abandon())
	}
	defer p.kill()
	watch.begin(p.pid())
	course := newCourse(w.work.Rows, p.pid(), p.began())
	last, err := arrive(ctx, w, p, course)
	broker = w.brokerCPU() - broker
	seen := watch.end()
	var cpu time.Duration
	if err == nil {
		cpu, err = p.stop()
	}
	if err == nil {
		err = verify(ctx, w)
	}
	var stored int64
	if err == nil {
		stored, err = w.stored(ctx)
	}
	if err != nil {
		return sample{}, err
	}
	result := newSample(c, round, w, last.Sub(p.began()), cpu, seen)
	result.BrokerCPU = broker.Seconds() / (float64(w.work.Rows) / 1e6)
	result.Stored = float64(stored) / float64(w.work.Rows)
	course.fill(&result)
	return result, nil
}

// arrive waits until readers have all rows; last is when the last of them came.
func arrive(ctx context.Context, w *world, p process, course *course) (last time.Time, err error) {
	asked, previous := time.Now(), int64(-1)
	for {
		total, err := w.ends(ctx)
		if err != nil {
			return last, fmt.Errorf("%d of %d rows published: %w", previous, w.work.Rows, errors.Join(err, p.failed(context.WithoutCancel(ctx))))
		}
		now := time.Now()
		course.note(total)
		if total != previous {
			previous, last = total, now
		}
		if total >= int64(w.work.Rows) {
			if done, err := p.done(ctx, now.Sub(last)); err != nil || done {
				return last, err
			}
		}
		if now.Sub(asked) > time.Second {
			asked = now
			if err := p.failed(ctx); err != nil {
				return last, fmt.Errorf("%d of %d rows published: %w", total, w.work.Rows, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// verify reads what arrived: each row once.
func verify(ctx context.Context, w *world) error {
	numbers := verdict.NewNumbers(w.work.Rows)
	err := verdict.EachRecord(ctx, w.kafka.Brokers, nil, w.topics, func(r *kgo.Record) error {
		numbers.Take(numberOf(r.Value, w.work.Bytes))
		return nil
	})
	return errors.Join(err, numbers.Err())
}
