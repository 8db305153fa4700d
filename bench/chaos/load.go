package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walstream/walstream/bench/internal/tool"
)

// schema is our own outbox table, and what was written into it: one row for each
// transaction, committed with it.
const schema = tool.OutboxTable + `
CREATE TABLE written (writer int, number bigint, size int, PRIMARY KEY (writer, number))`

const (
	smallWriters = 3
	keysOfWriter = 8
)

// topics in turn, by index: a transaction spans both.
var topics = []string{"chaos.even", "chaos.odd"}

// load is writers at work. A server that goes away is waited for; what became of
// a COMMIT that was not answered is for the server to know.
type load struct {
	dsn       string
	committed atomic.Int64 // rows of transactions whose end was answered
	finished  atomic.Int64 // such transactions
	failed    chan error
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// startLoad has small writers of one row or a hundred, and one of bigRows now and
// then.
func startLoad(ctx context.Context, dsn string, o options) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{dsn: dsn, failed: make(chan error, smallWriters+1), cancel: cancel}
	for n := range smallWriters + 1 {
		w := &writer{load: l, n: n, rng: rand.New(rand.NewPCG(o.seed, uint64(n+1)))}
		next := func() (int, time.Duration) {
			size := 1
			if w.rng.IntN(10) < 4 {
				size = 100
			}
			return size, time.Duration(size) * time.Second * smallWriters / time.Duration(o.rate)
		}
		if n == smallWriters {
			next = func() (int, time.Duration) { return o.bigRows, o.bigEvery }
		}
		l.running.Go(func() {
			if err := w.run(ctx, next); err != nil {
				l.failed <- fmt.Errorf("writer %d: %w", n, err)
			}
		})
	}
	return l
}

// stop lets the transactions under way end.
func (l *load) stop() error {
	l.cancel()
	l.running.Wait()
	select {
	case err := <-l.failed:
		return err
	default:
		return nil
	}
}

// writer writes one transaction after the other. Its keys are its own, so their
// order is that of its transactions.
type writer struct {
	*load
	n      int
	number int64 // of the last transaction; one that failed is not used again
	rng    *rand.Rand
	conn   *pgx.Conn
}

func (w *writer) run(ctx context.Context, next func() (size int, pause time.Duration)) error {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close(context.Background())
		}
	}()
	for {
		size, pause := next()
		// Not to be cancelled: a transaction under way ends.
		if err := w.one(context.WithoutCancel(ctx), size); err != nil {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return w.settle(context.WithoutCancel(ctx))
		}
	}
}

// one writes a transaction. When the server goes away it is not tried again.
func (w *writer) one(ctx context.Context, size int) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.number++
	t := &transaction{writer: w, size: size}
	committed, err := t.run(ctx)
	if gone(err) {
		_ = w.conn.Close(ctx)
		w.conn = nil
		return nil
	}
	if err == nil && committed {
		w.committed.Add(int64(size))
	}
	w.finished.Add(1)
	return err
}

// settle waits for a session, and decides what became of a prepared transaction
// that was left behind.
func (w *writer) settle(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err := w.connect(ctx)
		if err == nil || !gone(err) || time.Since(began) > waitLimit {
			return err
		}
	}
}

func (w *writer) connect(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.dsn)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE gid LIKE $1`, fmt.Sprintf("chaos-%d-%%", w.n))
	if err != nil {
		return err
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, gid := range left {
		how := "COMMIT"
		if w.rng.IntN(2) == 0 {
			how = "ROLLBACK"
		}
		if err == nil {
			_, err = conn.Exec(ctx, fmt.Sprintf("%s PREPARED '%s'", how, gid))
		}
	}
	if err != nil {
		_ = conn.Close(ctx)
		return err
	}
	w.conn = conn
	return nil
}

// gone: the server has gone away, or is not back.
func gone(err error) bool {
	if err == nil {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(pg.Code, "57") || strings.HasPrefix(pg.Code, "08")
	}
	return true
}
