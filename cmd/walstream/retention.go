package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/internal/ops"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/prune"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// tooFarBehind is how late a stream may be with rows for retention to go on beside it:
// what it deletes goes through the same WAL.
const tooFarBehind = 10 * time.Second

// retains reports that the service looks after the table's rows.
func (c *Config) retains() bool { return c.Retention > 0 || c.Stamp != "" }

// retain looks after them beside the stream, where that is asked for. The returned
// function ends it.
func (c *Config) retain(ctx context.Context, watched *ops.Config, log zerolog.Logger) (stop func(), run func()) {
	if !c.retains() {
		return func() {}, func() {}
	}
	keeper := prune.NewKeeper(c.pruneConfig(sink.Config{}), c.RetentionInterval, streamOf(watched.Progress), log)
	watched.Retention = keeper.Report
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	return func() { cancel(); done.Wait() }, func() { done.Go(func() { keeper.Run(ctx) }) }
}

// streamOf says how far this very process has come: only the instance at work does
// anything, and not during a snapshot.
func streamOf(progress func() *pipeline.Progress) prune.Stream {
	return func() (pglogrepl.LSN, string) {
		p, now := progress(), time.Now()
		switch {
		case p.State != pipeline.Streaming:
			return 0, fmt.Sprintf("this instance does not stream: %s", p.State)
		case !p.Known(now):
			return 0, "the slot cannot be read"
		case p.OldestAge > tooFarBehind, !p.BehindSince.IsZero() && now.Sub(p.BehindSince) > tooFarBehind:
			return 0, "the stream is behind"
		}
		return p.Confirmed, ""
	}
}

// checkRetention is what walstream check says of it.
func (c *Config) checkRetention(ctx context.Context) []replication.Finding {
	if !c.retains() {
		return nil
	}
	return []replication.Finding{prune.Check(ctx, c.pruneConfig(sink.Config{}))}
}
