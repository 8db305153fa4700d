package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/verdict"
)

// drainLimit ends a drain that does not come to its end.
const drainLimit = 5 * time.Minute

// walstream in one of its deliveries, default settings but for the compression,
// which is named.
type walstream struct{ binary, delivery string }

func (c walstream) name() string { return "walstream, " + c.delivery }

func (c walstream) version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, c.binary, "version").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func (c walstream) slot(round int) string {
	return fmt.Sprintf("bench_%s_%d_slot", strings.ReplaceAll(c.delivery, "-", "_"), round)
}

func (c walstream) start(w *world, round int, log io.Writer) (*service.Service, error) {
	return service.Start(service.Options{
		Binary: c.binary, Log: log,
		Args: []string{
			"--slot", c.slot(round), "--publication", publication, "--kafka-brokers", strings.Join(w.kafka.Brokers, ","),
			"--delivery", c.delivery, "--kafka-compression", "none", "--log-format", "json",
		},
		Env: []string{"WALSTREAM_POSTGRES=" + w.pg.DSN("")},
	})
}

// prepare lets walstream make its slot and checkpoint (and the publication, the
// first time) by its own first start.
func (c walstream) prepare(ctx context.Context, w *world, round int) error {
	s, err := c.start(w, round, nil)
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := s.WaitStreaming(ctx); err != nil {
		return err
	}
	return s.Stop(drainLimit)
}

func (c walstream) drain(ctx context.Context, w *world, round int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	log, done, err := c.openLog(w, round)
	if err != nil {
		return sample{}, err
	}
	defer done()
	before, base, err := w.ends(ctx)
	if err != nil {
		return sample{}, err
	}
	watch, err := newWatcher(ctx, w, c.slot(round))
	if err != nil {
		return sample{}, err
	}
	from := time.Now()
	s, err := c.start(w, round, log)
	if err != nil {
		return sample{}, errors.Join(err, watch.abandon())
	}
	defer s.Kill()
	watch.begin(s.PID())
	course := newCourse(w.rows, s.PID(), from)
	err = c.arrive(ctx, w, s, round, base, course)
	took := time.Since(from)
	seen := watch.end()
	if err == nil {
		err = s.Stop(drainLimit)
	}
	if err != nil {
		return sample{}, err
	}
	if err := verify(ctx, w, before); err != nil {
		return sample{}, err
	}
	cpu := s.Usage().UserTime() + s.Usage().SystemTime()
	result := newSample(c, round, w.rows, took, cpu, seen)
	course.fill(&result)
	return result, nil
}

// arrive waits until readers have all rows. In exactly-once the ends count the
// markers of the transactions too, so there it is the slot that says so, which is
// confirmed right after the last commit.
func (c walstream) arrive(ctx context.Context, w *world, s *service.Service, round int, base int64, course *course) error {
	for {
		_, total, err := w.ends(ctx)
		course.note(total - base)
		arrived := total-base >= int64(w.rows)
		if arrived && c.delivery == "exactly-once" && err == nil {
			arrived, err = w.confirmed(ctx, c.slot(round))
		}
		if err != nil || arrived {
			return err
		}
		select {
		case <-s.Done():
			return fmt.Errorf("walstream ended (exit code %d) with %d of %d rows published\n%s", s.ExitCode(), total-base, w.rows, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("%d of %d rows published: %w\n%s", total-base, w.rows, ctx.Err(), s.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// verify reads what arrived: each row once.
func verify(ctx context.Context, w *world, from map[verdict.Place]int64) error {
	numbers := verdict.NewNumbers(w.rows)
	err := verdict.EachRecord(ctx, w.kafka.Brokers, from, []string{topic}, func(r *kgo.Record) error {
		numbers.Take(numberOf(r.Value))
		return nil
	})
	return errors.Join(err, numbers.Err())
}

func (c walstream) openLog(w *world, round int) (io.Writer, func(), error) {
	if w.log == "" {
		return nil, func() {}, nil
	}
	file, err := os.Create(filepath.Join(w.log, fmt.Sprintf("walstream-%s-%d.log", c.delivery, round)))
	return file, func() { _ = file.Close() }, err
}
