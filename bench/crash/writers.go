package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// tableQuery is what the verdict compares with.
const tableQuery = `
SELECT event_id::text, coalesce(key, aggregate_id), (convert_from(payload, 'UTF8')::json ->> 'number')::bigint, payload FROM outbox`

const (
	writerCount   = 4
	keysPerWriter = 12
	maxRows       = 50 // of a transaction
)

// account is a key; its numbers rise in the order of its commits.
type account struct {
	name   string
	number int64
}

// shared is the account that all writers use. A writer holds it until its
// transaction has ended, as an application holds a row's lock.
type shared struct {
	sync.Mutex
	account
}

// writers commit rows at a steady rate until they are stopped.
type writers struct {
	committed atomic.Int64 // rows whose COMMIT was answered
	trigger   atomic.Pointer[trigger]
	failed    chan error
	cancel    context.CancelFunc
	running   sync.WaitGroup
	shared    shared
}

func startWriters(ctx context.Context, dsn string, rate int, seed uint64) (*writers, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{
		failed: make(chan error, writerCount), cancel: cancel,
		shared: shared{account: account{name: "shared"}},
	}
	for i := range writerCount {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			_ = w.stop() // nothing has failed yet
			return nil, err
		}
		one := &writer{writers: w, conn: conn, rng: rand.New(rand.NewPCG(seed, uint64(i+1))), pause: time.Second * writerCount / time.Duration(rate)}
		for k := range keysPerWriter {
			one.accounts = append(one.accounts, &account{name: fmt.Sprintf("account-%d-%d", i, k)})
		}
		w.running.Go(func() {
			if err := one.run(ctx); err != nil {
				w.failed <- err
			}
			_ = conn.Close(context.Background())
		})
	}
	return w, nil
}

// stop lets the transactions under way end.
func (w *writers) stop() error {
	w.cancel()
	w.running.Wait()
	select {
	case err := <-w.failed:
		return err
	default:
		return nil
	}
}

// trigger is something to do right after a commit.
type trigger struct {
	do   func()
	done chan struct{}
}

// afterCommit does something right after the next commit of a transaction of
// full size, on the goroutine that got the answer: waking another one takes as
// long as publishing the rows.
func (w *writers) afterCommit(ctx context.Context, do func()) error {
	t := &trigger{do: do, done: make(chan struct{})}
	w.trigger.Store(t)
	select {
	case <-t.done:
		return nil
	case err := <-w.failed:
		return fmt.Errorf("a writer failed: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

type writer struct {
	*writers
	conn     *pgx.Conn
	rng      *rand.Rand
	pause    time.Duration // for each row
	accounts []*account
}

// run keeps to a schedule, and does not try to make up for more than a second.
func (w *writer) run(ctx context.Context) error {
	due := time.Now()
	for {
		rows := 1 + w.rng.IntN(maxRows)
		t := w.trigger.Load()
		if t != nil {
			rows = maxRows
		}
		// Not to be cancelled: what became of its COMMIT would be open.
		committed, err := w.transaction(context.WithoutCancel(ctx), rows)
		if err != nil {
			return err
		}
		w.committed.Add(int64(committed))
		if t != nil && committed > 0 && w.trigger.CompareAndSwap(t, nil) {
			t.do()
			close(t.done)
		}
		if due = due.Add(time.Duration(rows) * w.pause); time.Since(due) > time.Second {
			due = time.Now()
		}
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil
		}
	}
}

// transaction writes rows in up to three statements, and returns how many it has
// committed.
func (w *writer) transaction(ctx context.Context, rows int) (committed int, err error) {
	accounts := w.accounts
	if w.rng.IntN(5) == 0 {
		w.shared.Lock()
		defer w.shared.Unlock()
		accounts = append(accounts[:len(accounts):len(accounts)], &w.shared.account)
	}
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	for left := rows; left > 0; {
		part := left
		if w.rng.IntN(3) == 0 {
			part = 1 + w.rng.IntN(left)
		}
		left -= part
		kept, err := w.part(ctx, tx, accounts, part)
		if err != nil {
			return 0, err
		}
		committed += kept
	}
	if w.rng.IntN(16) == 0 {
		return 0, tx.Rollback(ctx)
	}
	return committed, tx.Commit(ctx)
}

// part inserts rows, in one of five under a savepoint that is rolled back in
// every second case.
func (w *writer) part(ctx context.Context, tx pgx.Tx, accounts []*account, rows int) (kept int, err error) {
	if w.rng.IntN(5) > 0 {
		return rows, w.insert(ctx, tx, accounts, rows)
	}
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.insert(ctx, savepoint, accounts, rows); err != nil {
		return 0, err
	}
	if w.rng.IntN(2) == 0 {
		return 0, savepoint.Rollback(ctx)
	}
	return rows, savepoint.Commit(ctx)
}

// insert writes rows by one INSERT. Numbers of rows that are rolled back are not
// used again.
func (w *writer) insert(ctx context.Context, tx pgx.Tx, accounts []*account, rows int) error {
	var names []string
	var payloads [][]byte
	for range rows {
		a := accounts[w.rng.IntN(len(accounts))]
		a.number++
		padding := make([]byte, 20+w.rng.IntN(200))
		for i := range padding {
			padding[i] = byte(w.rng.Uint32())
		}
		names = append(names, a.name)
		payloads = append(payloads, fmt.Appendf(nil, `{"account":%q,"number":%d,"note":"%s"}`, a.name, a.number, hex.EncodeToString(padding)))
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload, headers)
		SELECT 'account', name, 'deposited', '`+topic+`', payload, '{"source":"crash"}'
		FROM unnest($1::text[], $2::bytea[]) AS rows (name, payload)`, names, payloads)
	return err
}
