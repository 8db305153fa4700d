package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// transaction writes size rows that are to be published, and some that are not:
// undone by a savepoint, or updates of rows that are there.
type transaction struct {
	*writer
	size, next int
}

// ghost is the index in the payload of a row that must never be published.
const ghost = -1

func (t *transaction) run(ctx context.Context) (committed bool, err error) {
	if err := t.exec(ctx, "BEGIN"); err != nil {
		return false, err
	}
	write := t.writeSmall
	if t.size > 1000 {
		write = t.writeBig
	}
	if err := write(ctx); err != nil {
		return false, err
	}
	if err := t.exec(ctx, `INSERT INTO written VALUES ($1, $2, $3)`, t.n, t.number, t.size); err != nil {
		return false, err
	}
	gid := fmt.Sprintf("'chaos-%d-%d'", t.n, t.number)
	switch t.rng.IntN(20) {
	case 0, 1:
		return false, t.exec(ctx, "ROLLBACK")
	case 2:
		return false, t.prepared(ctx, gid, "ROLLBACK PREPARED ")
	case 3, 4, 5:
		return true, t.prepared(ctx, gid, "COMMIT PREPARED ")
	default:
		return true, t.exec(ctx, "COMMIT")
	}
}

// prepared leaves time for the others' commits in between.
func (t *transaction) prepared(ctx context.Context, gid, end string) error {
	if err := t.exec(ctx, "PREPARE TRANSACTION "+gid); err != nil {
		return err
	}
	time.Sleep(time.Duration(t.rng.IntN(200)) * time.Millisecond)
	return t.exec(ctx, end+gid)
}

func (t *transaction) exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.conn.Exec(ctx, sql, args...)
	return err
}

// ways of PostgreSQL to write up to so many rows and to undo them.
var ways = []func(*transaction, context.Context, int) error{
	(*transaction).insert, (*transaction).insert, (*transaction).copy, (*transaction).copy,
	(*transaction).kept, (*transaction).undone, (*transaction).nested,
	(*transaction).onConflict, (*transaction).deleted, (*transaction).updated,
}

func (t *transaction) writeSmall(ctx context.Context) error {
	for t.next < t.size {
		rows := min(1+t.rng.IntN(40), t.size-t.next)
		if err := ways[t.rng.IntN(len(ways))](t, ctx, rows); err != nil {
			return err
		}
	}
	return nil
}

// row is one with the next index, or a ghost.
func (t *transaction) row(isGhost bool) (key, topic string, payload []byte) {
	index := t.next
	if isGhost {
		index = ghost
	} else {
		t.next++
	}
	length := 10 + t.rng.IntN(200)
	if t.rng.IntN(200) == 0 {
		length = 20_000 // beyond a page: TOAST
	}
	padding := make([]byte, length)
	for i := range padding {
		padding[i] = byte('a' + t.rng.IntN(26))
	}
	return fmt.Sprintf("k-%d-%d", t.n, max(index, 0)%keysOfWriter), topics[max(index, 0)%2],
		fmt.Appendf(nil, "%d/%d/%d/%d/%s", t.n, t.number, index, t.size, padding)
}

func (t *transaction) write(ctx context.Context, rows int, isGhost bool) error {
	var keys, names []string
	var payloads [][]byte
	for range rows {
		key, topic, payload := t.row(isGhost)
		keys, names, payloads = append(keys, key), append(names, topic), append(payloads, payload)
	}
	return t.exec(ctx, `
		INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload)
		SELECT 'chaos', key, 'tested', topic, payload FROM unnest($1::text[], $2::text[], $3::bytea[]) AS rows (key, topic, payload)`,
		keys, names, payloads)
}

func (t *transaction) insert(ctx context.Context, rows int) error { return t.write(ctx, rows, false) }

func (t *transaction) copy(ctx context.Context, rows int) error {
	left := rows
	_, err := t.conn.CopyFrom(ctx, pgx.Identifier{"outbox"}, []string{"aggregate_type", "aggregate_id", "event_type", "topic", "payload"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if left--; left < 0 {
				return nil, nil // pgx's way to say that this is all
			}
			key, topic, payload := t.row(false)
			return []any{"chaos", key, "tested", topic, payload}, nil
		}))
	return err
}

// all runs statements and steps, one after the other.
func (t *transaction) all(ctx context.Context, steps ...any) error {
	for _, step := range steps {
		var err error
		switch step := step.(type) {
		case string:
			err = t.exec(ctx, step)
		case func() error:
			err = step()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *transaction) kept(ctx context.Context, rows int) error {
	return t.all(ctx, "SAVEPOINT a", func() error { return t.write(ctx, rows, false) }, "RELEASE a")
}

func (t *transaction) undone(ctx context.Context, rows int) error {
	return t.all(ctx, "SAVEPOINT a", func() error { return t.write(ctx, rows, true) }, "ROLLBACK TO a")
}

func (t *transaction) nested(ctx context.Context, rows int) error {
	return t.all(ctx, "SAVEPOINT a", func() error { return t.write(ctx, rows, false) },
		"SAVEPOINT b", func() error { return t.write(ctx, rows, true) }, "ROLLBACK TO b", "RELEASE a")
}

// conflicting inserts one row; with an event id that is there it does something
// else, or nothing.
const conflicting = `
	INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
	VALUES (md5($1)::uuid, 'chaos', $2, 'tested', $3, $4) ON CONFLICT (event_id) DO `

func (t *transaction) onConflict(ctx context.Context, _ int) error {
	id := fmt.Sprintf("%d-%d-%d", t.n, t.number, t.next)
	for _, step := range []struct {
		then  string
		ghost bool
	}{{"NOTHING", false}, {"NOTHING", true}, {"UPDATE SET payload = excluded.payload", true}} {
		key, topic, payload := t.row(step.ghost)
		if err := t.exec(ctx, conflicting+step.then, id, key, topic, payload); err != nil {
			return err
		}
	}
	return nil
}

// own are the transaction's last rows, or most of them: others draw ids too. (The
// subquery is what lets the index be used.)
func own(rows int) string {
	return fmt.Sprintf("id > (SELECT currval('outbox_id_seq')) - %d AND xmin = pg_current_xact_id()::xid", rows)
}

// deleted rows were inserted: they are published.
func (t *transaction) deleted(ctx context.Context, rows int) error {
	return t.all(ctx, func() error { return t.write(ctx, rows, false) },
		"DELETE FROM outbox WHERE "+own(rows))
}

// updated rows are published as they were inserted.
func (t *transaction) updated(ctx context.Context, rows int) error {
	return t.all(ctx, func() error { return t.write(ctx, rows, false) },
		fmt.Sprintf("UPDATE outbox SET payload = convert_to('%d/%d/%d/%d/', 'UTF8') WHERE ", t.n, t.number, ghost, t.size)+own(rows))
}

// generated are rows from $3 to below $4, made by the server.
const generated = `
	INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload)
	SELECT 'chaos', format('k-%s-%s', $1::int, i % $6), 'tested', ($7::text[])[1 + i % 2],
		convert_to(format('%s/%s/%s/%s/%s', $1::int, $2::bigint, i, $5::int, md5(i::text) || md5((-i)::text)), 'UTF8')
	FROM generate_series($3::int, $4::int - 1) AS i`

func (t *transaction) generate(ctx context.Context, rows int) error {
	from := t.next
	t.next += rows
	return t.exec(ctx, generated, t.n, t.number, from, t.next, t.size, keysOfWriter, topics)
}

func (t *transaction) writeBig(ctx context.Context) error {
	switch t.rng.IntN(3) {
	case 0:
		return t.generate(ctx, t.size)
	case 1:
		return t.copy(ctx, t.size)
	default:
		part := max(t.size/25, 1)
		for t.next < t.size {
			err := t.all(ctx, "SAVEPOINT a", func() error { return t.generate(ctx, min(part, t.size-t.next)) },
				"SAVEPOINT b", func() error { return t.write(ctx, 50, true) }, "ROLLBACK TO b", "RELEASE a")
			if err != nil {
				return err
			}
		}
		return nil
	}
}
