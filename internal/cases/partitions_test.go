package cases

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
)

// wrote keeps the ids of all committed rows, which partitions and deletes take
// out of the table.
const (
	wroteTable = `CREATE TABLE wrote (id uuid)`
	wroteIDs   = `SELECT id::text FROM wrote`
	wroteSQL   = `INSERT INTO wrote SELECT id FROM i`
)

// Partitions come and go under load; the rows of all of them arrive under the
// root's name. Those of a table that is attached already filled do not.
func TestC28PartitionsUnderLoad(t *testing.T) { inBothAtOnce(t, partitionsUnderLoad) }

func partitionsUnderLoad(t *testing.T) {
	r := sharedRig(t)
	r.exec(wroteTable)
	r.exec(`ALTER TABLE bank_outbox RENAME TO plain`)
	r.exec(`CREATE TABLE bank_outbox (LIKE plain INCLUDING DEFAULTS, part int NOT NULL) PARTITION BY RANGE (part)`)
	r.exec(`CREATE TABLE p0 PARTITION OF bank_outbox FOR VALUES FROM (0) TO (100);
		CREATE TABLE p1 PARTITION OF bank_outbox FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (part);
		CREATE TABLE p1a PARTITION OF p1 FOR VALUES FROM (100) TO (150);
		CREATE TABLE p1b PARTITION OF p1 FOR VALUES FROM (150) TO (200);
		CREATE TABLE p_rest PARTITION OF bank_outbox DEFAULT`)
	s := r.warmParts()
	stop := r.repeating(func(ctx context.Context, conn *pgx.Conn, n int) error {
		// Over all partitions, in one transaction, and past the root.
		_, err := conn.Exec(ctx, fmt.Sprintf(`BEGIN;
			WITH i AS (INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, part)
			SELECT 'account', 'acc-' || i %% 7, 'deposited', to_jsonb(i), i %% 300 FROM generate_series(%[1]d, %[1]d + 40, 20) i RETURNING id) %[2]s;
			WITH i AS (INSERT INTO p1a (aggregate_type, aggregate_id, event_type, payload, part)
			VALUES ('account', 'acc-1', 'deposited', '{}', 120) RETURNING id) %[2]s; COMMIT`, n*20, wroteSQL))
		return err
	})
	for n := range 6 {
		from := 1000 + n*100
		r.exec(fmt.Sprintf(`CREATE TABLE filled%[1]d (part int NOT NULL, gone text, LIKE plain INCLUDING DEFAULTS); ALTER TABLE filled%[1]d DROP gone;
			INSERT INTO filled%[1]d (aggregate_type, aggregate_id, event_type, part) VALUES ('account', 'acc-1', 'before', %[1]d);
			ALTER TABLE bank_outbox ATTACH PARTITION filled%[1]d FOR VALUES FROM (%[1]d) TO (%[2]d);
			WITH i AS (INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, part) VALUES ('account', 'acc-1', 'after', %[1]d) RETURNING id) %[3]s`,
			from, from+100, wroteSQL))
		if n%2 == 0 {
			r.exec(fmt.Sprintf(`ALTER TABLE bank_outbox DETACH PARTITION filled%d`, from))
		}
		r.exec(fmt.Sprintf(`DROP TABLE filled%d`, from))
	}
	r.exec(`ALTER TABLE bank_outbox DETACH PARTITION p_rest`)
	r.exec(`CREATE TABLE p_new PARTITION OF bank_outbox DEFAULT; DROP TABLE p_rest`)
	r.exec(`ALTER TABLE p1 DETACH PARTITION p1b; INSERT INTO p1b (aggregate_type, event_type, part) VALUES ('none', 'of ours', 170);
		ALTER TABLE p1 ATTACH PARTITION p1b FOR VALUES FROM (150) TO (200)`)
	stop()
	r.untilConfirmed()
	if duplicates := r.verifyAgainst(wroteIDs); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v)", status.Restarts, err)
	}
}

// warmParts starts walstream on the partitioned table.
func (r *rig) warmParts() *service.Service {
	r.t.Helper()
	s := r.stream()
	r.exec(`WITH i AS (INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, part) VALUES ('account', 'acc-1', 'first', 0) RETURNING id) ` + wroteSQL)
	r.untilConfirmed()
	return s
}

// repeating runs write again and again on a session of its own until it is stopped. A
// partition that is just gone fails it for the moment.
func (r *rig) repeating(write func(ctx context.Context, conn *pgx.Conn, n int) error) (stop func()) {
	conn := r.connect()
	ctx, cancel := context.WithCancel(r.ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := write(r.ctx, conn, n); err != nil {
				_, _ = conn.Exec(r.ctx, "ROLLBACK")
			}
			time.Sleep(5 * time.Millisecond) // a rate, not a wait
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	r.t.Cleanup(stop)
	return stop
}
