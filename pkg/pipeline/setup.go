package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

// Wanted is the publication that a first start would make: the columns that are
// mapped and that the tables have. A server that cannot be asked, or has not got
// the tables, is an error; the publication is then what the settings alone say.
func Wanted(ctx context.Context, cfg Config) (replication.PublicationSpec, error) {
	r := &run{Supervisor: NewSupervisor(cfg)}
	defer r.close()
	var err error
	if r.mapping, err = outbox.NewMapping(cfg.Mapping); err != nil {
		return replication.PublicationSpec{}, err
	}
	if r.session, err = replication.OpenSession(ctx, cfg.Postgres); err != nil {
		return r.publication(), err
	}
	layouts, err := replication.Layouts(ctx, r.session.Conn(), cfg.Publication, r.publication().Tables)
	if err == nil {
		err = r.mapping.Resolve(layouts...)
	}
	return r.publication(), err
}

// SetUp makes what a first start makes, checkpoint, publication and slot, and does
// not stream: an instance that starts later begins at the slot's position. made is
// false when all of it was there before. The slot keeps WAL from then on.
func SetUp(ctx context.Context, cfg Config) (made bool, at pglogrepl.LSN, err error) {
	r := &run{Supervisor: NewSupervisor(cfg)}
	defer r.close()
	if err := r.openKafka(); err != nil {
		return false, 0, err
	}
	pause, err := r.kafka.ReadPause(ctx)
	if err == nil && pause.InForce(r.Progress().At) {
		return false, 0, fmt.Errorf("%w: %s; walstream resume %s first", ErrPaused, pause, cfg.Named())
	}
	if err := r.connect(ctx); err != nil {
		return false, 0, err
	}
	before, err := r.slot(ctx)
	if err != nil {
		return false, 0, err
	}
	if !before.Exists {
		if err := r.prepare(ctx); err != nil {
			return false, 0, err
		}
		if err := r.look(ctx); err != nil {
			return false, 0, err
		}
	}
	decision, err := r.weigh(ctx)
	switch {
	case err != nil:
		return false, 0, err
	case decision.Verdict == checkpoint.Fresh:
		return false, 0, errors.New("the slot was dropped while it was being made")
	}
	after, err := r.slot(ctx)
	return !before.Exists, after.Confirmed, err
}
