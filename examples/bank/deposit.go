package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/outbox"
)

// deposited is the event: what other services are told of a deposit.
type deposited struct {
	Account string `json:"account"`
	Number  int64  `json:"number"` // of the account's deposits: 1, 2, 3, ...
	Cents   int64  `json:"cents"`
	Balance int64  `json:"balance_cents"`
	// At is this process's clock, which is also the reader's: latency is measured
	// with one clock, wherever the servers are.
	At time.Time `json:"at"`
}

// beginner is a *pgx.Conn or a *pgxpool.Pool.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// deposit puts cents on an account and enqueues the event that tells of it.
// Both are in one transaction, so there is never one without the other: no
// second write to Kafka that a crash could lose, or that a rollback could not
// take back.
//
// The account's row is updated first. Its lock makes deposits to one account
// wait for each other, so their events are published in the order of their
// numbers.
func deposit(ctx context.Context, db beginner, topic, account string, cents int64) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		event := deposited{Account: account, Cents: cents}
		err := tx.QueryRow(ctx, `
			UPDATE accounts SET balance_cents = balance_cents + $2, deposits = deposits + 1
			WHERE id = $1 RETURNING balance_cents, deposits`, account, cents).Scan(&event.Balance, &event.Number)
		if err != nil {
			return err
		}
		event.At = time.Now()
		payload, err := json.Marshal(event)
		if err != nil {
			return err
		}
		return outbox.Enqueue(ctx, tx, outbox.Entry{
			AggregateType: "account", AggregateID: account, EventType: "deposited",
			Topic: topic, Payload: payload,
		})
	})
	if err != nil {
		return fmt.Errorf("deposit %d cents to account %q: %w", cents, account, err)
	}
	return nil
}
