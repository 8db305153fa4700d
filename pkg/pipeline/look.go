package pipeline

import (
	"context"
	"io"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Look prints the events of rows committed from now on, one JSON line each,
// until ctx ends. It is for looking: a temporary slot, no checkpoint, Kafka is
// not asked, and the pipeline's own slot stays as it is.
func Look(ctx context.Context, cfg Config, out io.Writer) error {
	r := &run{Supervisor: NewSupervisor(cfg)}
	defer r.close()
	if err := r.connectPostgres(ctx); err != nil {
		return err
	}
	start, err := r.conn.CreateTemporarySlot(ctx, r.cfg.Slot+"_look")
	if err != nil {
		return err
	}
	r.held = checkpoint.Slot{Exists: true, Confirmed: start}
	if err := r.receive(ctx, r.cfg.Slot+"_look"); err != nil {
		return err
	}
	printer := sink.NewStdout(out)
	if len(r.mapping.SchemaNeeds()) > 0 {
		r.log.Info().Msg("values are shown as they are before the prefix of their schema: looking asks no schema registry, and checks no value")
	}
	core := NewCore(CoreConfig{
		Start: checkpoint.Edge{Covered: start}, SlotConfirmed: start, Limits: cfg.Limits,
		Mapper: r.mapping, Sink: printer, Source: r.conn, Pacer: r.loop.pacer,
	})
	r.loop.publish = func(*Core, replication.Health, time.Time) {}
	r.log.Info().Str("publication", cfg.Publication).Stringer("from", start).Msg("looking: nothing is confirmed or kept")
	return r.loop.run(ctx, core, cfg.ShutdownGrace)
}
