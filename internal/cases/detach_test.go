package cases

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Why walstream never detaches a partition CONCURRENTLY: between the two transactions
// of that, an older one can still write to it by the root's name, and the server
// decodes its row as that of a table of its own, which the publication does not carry.
// If a PostgreSQL no longer does so, docs/decisions/0010 may be thought over.
func TestDetachConcurrentlyLosesRows(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox RENAME TO plain; CREATE TABLE bank_outbox (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (id, seq)) PARTITION BY RANGE (seq);
		CREATE TABLE low PARTITION OF bank_outbox FOR VALUES FROM (0) TO (50); CREATE TABLE high PARTITION OF bank_outbox FOR VALUES FROM (50) TO (100)`)
	r.warm()
	older := r.connect()
	tx, err := older.BeginTx(r.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	r.check(err)
	const insert = `INSERT INTO bank_outbox (seq, aggregate_type, aggregate_id, event_type) VALUES ($1, 'account', 'a', 'x')`
	_, err = tx.Exec(r.ctx, insert, 10)
	r.check(err)
	detached, other := make(chan error, 1), r.connect()
	go func() {
		_, err := other.Exec(context.WithoutCancel(r.ctx), `ALTER TABLE bank_outbox DETACH PARTITION low CONCURRENTLY`)
		detached <- err
	}()
	r.until("the first of the two transactions", func() bool { return r.number(`SELECT count(*) FROM pg_inherits WHERE inhdetachpending`) > 0 })
	_, err = tx.Exec(r.ctx, insert, 11)
	r.check(err)
	r.check(tx.Commit(r.ctx))
	r.check(<-detached)
	r.untilConfirmed()
	if rows, records := r.number(`SELECT count(*) FROM low`), len(r.published()); rows != 3 || records != 2 {
		t.Errorf("%d rows were written by the root's name, %d records came; 3 and 2 are what the decision rests on", rows, records)
	}
}
