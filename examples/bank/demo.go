package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/walstream/walstream/internal/service"
)

const (
	// startWait bounds the wait for walstream, and for the first deposit.
	startWait = time.Minute
	// settleWait bounds the wait for the last deposit.
	settleWait = 30 * time.Second
	// stopWait is walstream's own limit of 20 s and some.
	stopWait = 30 * time.Second
)

// demo is one run.
type demo struct {
	options
	out       *screen
	servers   *servers
	bank      *bank
	walstream *service.Service
	load      *load
	reader    *reader
	shown     int64 // events, when the last line was shown
	shownAt   time.Time
}

// run is the demo from its start to its end. While it starts, and for the
// deposits, until counts; for the rest ctx. A verdict comes with an error when it
// is bad.
func run(ctx, until context.Context, o options, out *screen) (verdict *Verdict, err error) {
	d := &demo{options: o, out: out}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.start(until); err != nil {
		if until.Err() != nil {
			err = context.Cause(until) // what was cut short is of no interest
		}
		return nil, err
	}
	if err := d.stream(ctx, until); err != nil {
		return nil, err
	}
	stopped := d.walstream.Stop(stopWait)
	v, err := audit(ctx, d.bank.postgres, d.servers.brokers, d.topic)
	if err != nil {
		return nil, errors.Join(stopped, err)
	}
	v.P50, v.P99 = d.reader.percentile(50), d.reader.percentile(99)
	d.out.line("committed %s   published %s   missing %d   duplicates %d   p50 %s   p99 %s",
		humanize.Comma(v.Committed), humanize.Comma(v.Published), v.Missing, v.Duplicates, milliseconds(v.P50), milliseconds(v.P99))
	return &v, errors.Join(stopped, v.fault())
}

// start brings up the servers, the bank and walstream.
func (d *demo) start(ctx context.Context) (err error) {
	if d.servers, err = startServers(ctx, d.options, d.out); err != nil {
		return err
	}
	if d.bank, err = openBank(ctx, d.servers, d.options); err != nil {
		return err
	}
	if os.Getenv(service.EnvBinary) == "" {
		d.out.line("building walstream")
	}
	binary, err := service.Build(ctx, d.servers.dir)
	if err != nil {
		return err
	}
	d.walstream, err = service.Start(service.Options{
		Binary: binary,
		Args:   d.bank.walstreamArgs(),
		Env:    []string{"WALSTREAM_POSTGRES=" + d.bank.relay},
		Log:    &childLog{out: d.out},
	})
	if err != nil {
		return err
	}
	d.out.line("$ WALSTREAM_POSTGRES=%s %s", withoutPassword(d.bank.relay), d.walstream.CommandLine())
	d.out.line("  meanwhile: curl -s http://%s/status", d.walstream.Addr)
	if d.servers.ownPostgres != nil {
		d.out.line("             psql %s", d.bank.postgres)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, fmt.Errorf("waited %s", startWait))
	defer cancel()
	if d.walstream.WaitStreaming(ctx) == nil {
		return nil
	}
	if closed(d.walstream.Done()) {
		return d.died()
	}
	return fmt.Errorf("walstream does not stream (%w); its last lines:\n%s", context.Cause(ctx), lastLines(d.walstream.Log()))
}

// stream makes deposits and returns when the last of them came out.
func (d *demo) stream(ctx, until context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		cancel()
		_ = group.Wait() // its error is the cause of what ended ctx
	}()
	group.Go(func() error { return d.guard(ctx) })
	d.load = &load{postgres: d.bank.postgres, topic: d.topic, rate: d.rate, most: d.events}
	if err := d.first(ctx, until, group); err != nil {
		return fmt.Errorf("wait for the first deposit to come out: %w", err)
	}
	d.shown, d.shownAt = d.reader.seen.Load(), time.Now()
	var fault error
	finished := make(chan struct{})
	group.Go(func() error {
		defer close(finished)
		fault = d.load.run(ctx, until.Done())
		return fault
	})
	if err := d.watch(ctx, func() bool { return closed(finished) }); err != nil {
		return err
	}
	if fault != nil {
		return fault
	}
	return d.settle(ctx)
}

// first makes the first deposit and waits for it: it shows that all parts work
// together. It also makes the topic, so its latency is not counted.
func (d *demo) first(ctx, until context.Context, group *errgroup.Group) (err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, startWait, fmt.Errorf("it did not within %s", startWait))
	defer cancel()
	waiting, interrupt := context.WithCancelCause(waiting)
	defer context.AfterFunc(until, func() { interrupt(context.Cause(until)) })()
	if err := d.load.first(waiting); err != nil {
		return err
	}
	if d.reader, err = newReader(waiting, d.servers.brokers, d.topic); err != nil {
		return err
	}
	group.Go(func() error { return d.reader.run(ctx) })
	err = d.watch(waiting, func() bool { return d.reader.seen.Load() > 0 })
	if d.events != 1 {
		d.reader.forget()
	}
	return err
}

// settle waits until the reader has seen as many events as were committed, which
// is nearly always all of them; the verdict counts properly.
func (d *demo) settle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	err := d.watch(waiting, func() bool { return d.reader.seen.Load() >= d.load.committed.Load() })
	if ctx.Err() == nil && waiting.Err() != nil {
		d.out.line("not everything came out within %s", settleWait)
		return nil
	}
	return err
}

// guard is the end of walstream, when it ends by itself.
func (d *demo) guard(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.walstream.Done():
		return d.died()
	}
}

func (d *demo) died() error {
	return fmt.Errorf("walstream ended by itself (%s); its last lines:\n%s", d.walstream.Usage(), lastLines(d.walstream.Log()))
}

// watch shows a line every second until done, or until ctx ends.
func (d *demo) watch(ctx context.Context, done func() bool) error {
	second, poll := time.NewTicker(time.Second), time.NewTicker(20*time.Millisecond)
	defer second.Stop()
	defer poll.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-second.C:
			d.show(ctx)
		case <-poll.C:
		}
	}
	return context.Cause(ctx)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// show writes the line of the moment.
func (d *demo) show(ctx context.Context) {
	seen, now := d.reader.seen.Load(), time.Now()
	rate := float64(seen-d.shown) / now.Sub(d.shownAt).Seconds()
	d.shown, d.shownAt = seen, now
	state, lag := "no answer", "unknown"
	status, err := d.walstream.Status(ctx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		state, lag = status.State, lagOf(status)
	}
	d.out.moment(fmt.Sprintf("%s  %s.public.outbox -> %s   %s events   %s events/s   lag %s   [Ctrl-C ends it]",
		state, d.database, d.topic, humanize.Comma(seen), humanize.Comma(int64(rate)), lag))
}

// lagOf is how far Kafka is behind the database. Unknown is not nothing.
func lagOf(status service.Status) string {
	size, seconds := status.LagBytes["published"], status.LagSeconds["published"]
	if size == nil || seconds == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s, %s", humanize.IBytes(uint64(max(*size, 0))), duration(*seconds*1000))
}

func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.1f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// milliseconds with as many digits as are worth reading.
func milliseconds(ms float64) string {
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// close ends walstream if it runs yet, and removes what the demo made.
func (d *demo) close() error {
	if d.walstream != nil {
		d.walstream.Kill()
	}
	var err error
	if d.bank != nil {
		err = d.bank.remove()
	}
	if d.servers != nil {
		d.servers.close()
	}
	return err
}
