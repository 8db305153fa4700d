package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	// writers are connections that make deposits at the same time, so that
	// transactions commit in another order than they began in.
	writers  = 8
	accounts = 1000
	// catchUp bounds how far behind its schedule a writer tries to make up for.
	catchUp = time.Second
)

// load makes deposits at a steady rate.
type load struct {
	postgres string // of the bank's database
	topic    string
	rate     int   // deposits per second
	most     int64 // deposits in all, 0 for no end

	taken     atomic.Int64
	committed atomic.Int64
}

// first makes one deposit.
func (l *load) first(ctx context.Context) error {
	db, err := pgx.Connect(ctx, l.postgres)
	if err != nil {
		return fmt.Errorf("connect to the bank's database: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	l.taken.Add(1)
	return l.deposit(ctx, db)
}

// run makes deposits until there are enough or stop is closed. A transaction
// under way then is finished.
func (l *load) run(ctx context.Context, stop <-chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error { return l.write(ctx, stop) })
	}
	return group.Wait()
}

// write is one connection's share of the deposits.
func (l *load) write(ctx context.Context, stop <-chan struct{}) error {
	db, err := pgx.Connect(ctx, l.postgres)
	if err != nil {
		return fmt.Errorf("connect to the bank's database: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	interval := time.Second * writers / time.Duration(l.rate)
	due := time.Now().Add(rand.N(interval)) // not all at the same moment
	for {
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(due)):
		}
		if taken := l.taken.Add(1); l.most > 0 && taken > l.most {
			return nil
		}
		if err := l.deposit(ctx, db); err != nil {
			return err
		}
		due = due.Add(interval)
		if limit := time.Now().Add(-catchUp); due.Before(limit) {
			due = limit
		}
	}
}

func (l *load) deposit(ctx context.Context, db *pgx.Conn) error {
	account := fmt.Sprintf("acc-%d", 1+rand.IntN(accounts))
	if err := deposit(ctx, db, l.topic, account, 1+rand.Int64N(100_00)); err != nil {
		return err
	}
	l.committed.Add(1)
	return nil
}
