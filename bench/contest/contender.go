package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// contender drains the WAL. A new one is a file with this interface and a line
// in field; what it prints is up to report.
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

// publisher is a contender that goes on until it is stopped, and publishes to
// Kafka: it can be measured while rows are committed, too.
type publisher interface {
	contender
	slot(w *world, round int) string
	start(ctx context.Context, w *world, round int) (process, error)
}

// process is a publisher at work.
type process interface {
	pid() int
	began() time.Time
	// ready waits until it reads from its slot.
	ready(ctx context.Context) error
	// done says whether all rows are published, of which the ends of the topics
	// tell that they may be, and for how long they have not moved.
	done(ctx context.Context, quiet time.Duration) (bool, error)
	// failed says that it is no longer at work, and why.
	failed(ctx context.Context) error
	// stop ends it in order, and returns the CPU time of its whole life.
	stop() (time.Duration, error)
	kill()
}

const (
	nameWalstream    = "walstream, at-least-once"
	nameExactlyOnce  = "walstream, exactly-once"
	overSocket       = ", Unix socket"
	nameRecvlogical  = "pg_recvlogical, text"
	nameRecvBinary   = "pg_recvlogical, binary"
	nameDebezium     = "Debezium, default"
	nameDebeziumWell = "Debezium, tuned"
	nameDebeziumEO   = "Debezium, tuned, exactly-once"
)

// field is who takes part, and who cannot, and why.
type field struct {
	all    []contender
	absent map[string]string
}

func (f *field) add(all ...contender) { f.all = append(f.all, all...) }

// without notes contenders that are not run.
func (f *field) without(why error, names ...string) {
	if f.absent == nil {
		f.absent = map[string]string{}
	}
	for _, name := range names {
		f.absent[name] = why.Error()
	}
}

// addSockets adds those that read through the server's Unix socket.
func (f *field) addSockets(o options, pg *testenv.Postgres, client string) {
	names := []string{nameWalstream + overSocket, nameExactlyOnce + overSocket}
	if client != "" {
		names = append(names, nameRecvBinary+overSocket)
	}
	if pg.SocketDir == "" {
		f.without(errors.New("the server has no Unix socket here"), names...)
		return
	}
	f.add(walstream{binary: o.binary, delivery: "at-least-once", compression: "none", socket: true},
		walstream{binary: o.binary, delivery: "exactly-once", compression: "none", socket: true})
	if client != "" {
		f.add(recvlogical{program: client, binary: true, socket: true})
	}
}

// sample is one drain.
type sample struct {
	Contender string  `json:"contender"`
	Round     int     `json:"round"`
	Seconds   float64 `json:"seconds"` // from the start of the process to the last row
	Rate      float64 `json:"rows_per_second"`
	// Per million rows; of the contender's process, of the walsender it read from,
	// and of the broker. 0: not known here.
	CPU          float64 `json:"cpu_s_per_million"`
	WalsenderCPU float64 `json:"walsender_cpu_s_per_million,omitempty"`
	BrokerCPU    float64 `json:"broker_cpu_s_per_million,omitempty"`
	// Share of the time for which the walsender was on a CPU.
	WalsenderBusy float64 `json:"walsender_busy,omitempty"`
	PeakRSS       float64 `json:"peak_rss_mb"` // VmHWM
	// Of the last third of the rows, when everything is warm. 0: not known here.
	WarmRate float64 `json:"warm_rows_per_second,omitempty"`
	WarmCPU  float64 `json:"warm_cpu_s_per_million,omitempty"`
	// From the start of the process to the first record.
	First float64 `json:"seconds_to_first,omitempty"`
	// On the broker's disk.
	Stored float64 `json:"stored_bytes_per_row,omitempty"`
}

func newSample(c contender, round int, w *world, took, cpu time.Duration, seen watched) sample {
	million := float64(w.work.Rows) / 1e6
	return sample{
		Contender: c.name(), Round: round, Seconds: took.Seconds(), Rate: float64(w.work.Rows) / took.Seconds(),
		CPU: cpu.Seconds() / million, WalsenderCPU: seen.walsender.Seconds() / million, PeakRSS: float64(seen.peak) / (1 << 20),
		WalsenderBusy: seen.walsender.Seconds() / took.Seconds(),
	}
}

// drained is one work, and what the contenders took for it.
type drained struct {
	Work    work     `json:"work"`
	Samples []sample `json:"samples"`
	Failed  []string `json:"failed,omitempty"` // drains that do not count
}

// drainAll makes the slots, writes the rows, and lets the contenders drain them
// in turn; takesPart leaves some of them out of a round. A drain that fails does
// not count, and does not end the run.
func drainAll(ctx context.Context, w *world, job work, all []contender, rounds int, takesPart func(contender, int) bool) (*drained, error) {
	if err := w.begin(ctx, job); err != nil {
		return nil, err
	}
	for round := 1; round <= rounds; round++ {
		for _, c := range all {
			if !takesPart(c, round) {
				continue
			}
			if err := c.prepare(ctx, w, round); err != nil {
				return nil, fmt.Errorf("%s, prepare round %d: %w", c.name(), round, err)
			}
		}
	}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	d := &drained{Work: job}
	for round := 1; round <= rounds; round++ {
		for i := range all {
			c := all[(i+round-1)%len(all)]
			if !takesPart(c, round) {
				continue
			}
			s, err := c.drain(ctx, w, round)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				w.say("round %d, %s: does not count: %v", round, c.name(), err)
				d.Failed = append(d.Failed, fmt.Sprintf("%s, round %d: %v", c.name(), round, err))
				continue
			}
			w.say("round %d, %s: %.2f s, %.0f rows/s, %.2f CPU s per million, walsender %.2f, broker %.2f, peak %.0f MB; last third %.0f rows/s, %.2f CPU s; first after %.2f s",
				round, c.name(), s.Seconds, s.Rate, s.CPU, s.WalsenderCPU, s.BrokerCPU, s.PeakRSS, s.WarmRate, s.WarmCPU, s.First)
			d.Samples = append(d.Samples, s)
		}
	}
	return d, nil
}

func everyRound(contender, int) bool { return true }

// said is a program's answer to a question about its version.
func said(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}
