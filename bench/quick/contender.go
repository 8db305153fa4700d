package main

import (
	"context"
	"fmt"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// contender drains the WAL. A new one is a file with this interface and a line
// in contenders; what it prints is up to report.
type contender interface {
	name() string
	// version is shown with the results.
	version(ctx context.Context) string
	// prepare makes the slot of a round, before the rows are written.
	prepare(ctx context.Context, w *world, round int) error
	// drain reads all rows once, by a process started for it, and returns what
	// it took. An error is one of the measurement, or rows that did not arrive.
	drain(ctx context.Context, w *world, round int) (sample, error)
}

const (
	nameWalstream   = "walstream, at-least-once"
	nameExactlyOnce = "walstream, exactly-once"
	nameRecvlogical = "pg_recvlogical, text"
)

func contenders(ctx context.Context, o options, pg *testenv.Postgres) ([]contender, error) {
	recvlogical, err := findRecvlogical(ctx, o.recvlogical, pg.BinDir)
	if err != nil {
		return nil, err
	}
	all := []contender{walstream{binary: o.binary, delivery: "at-least-once"}, recvlogical}
	if o.both {
		all = append(all, walstream{binary: o.binary, delivery: "exactly-once"})
	}
	others, err := debeziums(ctx, o)
	return append(all, others...), err
}

// sample is one drain.
type sample struct {
	Contender string  `json:"contender"`
	Round     int     `json:"round"`
	Seconds   float64 `json:"seconds"` // from the start of the process to the last row
	Rate      float64 `json:"rows_per_second"`
	// Per million rows; of the contender's process, and of the walsender it read
	// from. 0: not known here.
	CPU          float64 `json:"cpu_s_per_million"`
	WalsenderCPU float64 `json:"walsender_cpu_s_per_million,omitempty"`
	PeakRSS      float64 `json:"peak_rss_mb"` // VmHWM
	// Of the last third of the rows, when everything is warm. 0: not known here.
	WarmRate float64 `json:"warm_rows_per_second,omitempty"`
	WarmCPU  float64 `json:"warm_cpu_s_per_million,omitempty"`
	// From the start of the process to the first record.
	First float64 `json:"seconds_to_first,omitempty"`
}

func newSample(c contender, round, rows int, took, cpu time.Duration, w watched) sample {
	million := float64(rows) / 1e6
	return sample{
		Contender: c.name(), Round: round, Seconds: took.Seconds(), Rate: float64(rows) / took.Seconds(),
		CPU: cpu.Seconds() / million, WalsenderCPU: w.walsender.Seconds() / million, PeakRSS: float64(w.peak) / (1 << 20),
	}
}

// run makes the slots, writes the rows, and lets the contenders drain them in
// turn.
func run(ctx context.Context, o options, pg *testenv.Postgres, kafka *testenv.Kafka) (*report, error) {
	all, err := contenders(ctx, o, pg)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, o, pg, kafka)
	if err != nil {
		return nil, err
	}
	defer w.close()
	r := newReport(ctx, w, all)
	for round := 1; round <= o.rounds; round++ {
		for _, c := range all {
			if err := c.prepare(ctx, w, round); err != nil {
				return nil, fmt.Errorf("%s, prepare round %d: %w", c.name(), round, err)
			}
		}
	}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	for round := 1; round <= o.rounds; round++ {
		for i := range all {
			c := all[(i+round-1)%len(all)]
			s, err := c.drain(ctx, w, round)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", c.name(), round, err)
			}
			o.say("round %d, %s: %.2f s, %.0f rows/s, %.2f CPU s per million, walsender %.2f, peak %.0f MB; last third %.0f rows/s, %.2f CPU s; first after %.2f s",
				round, c.name(), s.Seconds, s.Rate, s.CPU, s.WalsenderCPU, s.PeakRSS, s.WarmRate, s.WarmCPU, s.First)
			r.Samples = append(r.Samples, s)
		}
	}
	r.conclude()
	return r, nil
}
