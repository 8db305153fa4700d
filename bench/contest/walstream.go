package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/walstream/walstream/internal/service"
)

// walstream in one of its deliveries, default settings but for the compression,
// which is named.
type walstream struct {
	binary, delivery, compression string
	socket                        bool
}

func (c walstream) name() string {
	name := "walstream, " + c.delivery
	if c.compression != "none" {
		name += ", " + c.compression
	}
	if c.socket {
		name += overSocket
	}
	return name
}

func (c walstream) version(ctx context.Context) string { return said(ctx, c.binary, "version") }

func (c walstream) slot(w *world, round int) string {
	words := []string{"bench", strconv.Itoa(w.number), strings.ReplaceAll(c.delivery, "-", "_"), c.compression, strconv.Itoa(round), "slot"}
	if c.socket {
		words[0] = "socket"
	}
	return strings.Join(words, "_")
}

func (c walstream) postgres(w *world) string {
	if !c.socket {
		return w.pg.DSN("")
	}
	at := url.URL{Scheme: "postgres", Path: "/postgres", RawQuery: url.Values{
		"host": {w.pg.SocketDir}, "port": {strconv.Itoa(w.pg.Port)}, "user": {w.pg.User}, "password": {w.pg.Password},
	}.Encode()}
	return at.String()
}

// streaming is walstream at work.
type streaming struct {
	*service.Service
	w     *world
	c     walstream
	slot  string
	from  time.Time
	close func()
}

func (c walstream) start(_ context.Context, w *world, round int) (process, error) {
	p := &streaming{w: w, c: c, slot: c.slot(w, round), close: func() {}}
	o := service.Options{
		Binary: c.binary,
		Args: []string{
			"--slot", p.slot, "--publication", publication, "--kafka-brokers", strings.Join(w.kafka.Brokers, ","),
			"--delivery", c.delivery, "--kafka-compression", c.compression, "--log-format", "json",
		},
		Env: []string{"WALSTREAM_POSTGRES=" + c.postgres(w)},
	}
	if w.log != "" {
		file, err := os.Create(filepath.Join(w.log, p.slot+".log"))
		if err != nil {
			return nil, err
		}
		o.Log, p.close = file, func() { _ = file.Close() }
	}
	p.from = time.Now()
	var err error
	if p.Service, err = service.Start(o); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *streaming) pid() int                        { return p.PID() }
func (p *streaming) began() time.Time                { return p.from }
func (p *streaming) ready(ctx context.Context) error { return p.WaitStreaming(ctx) }

// done: in exactly-once the ends count the markers of the transactions too, so
// there it is the slot that says so, which is confirmed right after the last commit.
func (p *streaming) done(ctx context.Context, _ time.Duration) (bool, error) {
	if p.c.delivery != "exactly-once" {
		return true, nil
	}
	return p.w.confirmed(ctx, p.slot)
}

func (p *streaming) failed(context.Context) error {
	select {
	case <-p.Done():
		return fmt.Errorf("walstream ended (exit code %d)\n%s", p.ExitCode(), p.Log())
	default:
		return nil
	}
}

func (p *streaming) stop() (time.Duration, error) {
	if err := p.Stop(time.Minute); err != nil {
		return 0, err
	}
	return p.Usage().UserTime() + p.Usage().SystemTime(), nil
}

func (p *streaming) kill() {
	p.Kill()
	p.close()
}

// prepare lets walstream make its slot and checkpoint (and the publication, the
// first time) by its own first start.
func (c walstream) prepare(ctx context.Context, w *world, round int) error {
	p, err := c.start(ctx, w, round)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := p.ready(ctx); err != nil {
		return err
	}
	_, err = p.stop()
	return err
}

func (c walstream) drain(ctx context.Context, w *world, round int) (sample, error) {
	return drainInto(ctx, w, c, round)
}
