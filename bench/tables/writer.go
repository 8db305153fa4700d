package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// writer is the life of one table.
type writer struct {
	conn   *pgx.Conn
	rand   *rand.Rand
	table  *table
	listed bool      // the publication lists columns
	log    io.Writer // of every statement

	rows    int            // inserted, rolled back or not
	changes map[string]int // done, by kind
	refused map[string]int // by the server, by kind
}

// exec runs statements. Results are read to their end.
func (w *writer) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		fmt.Fprintf(w.log, "%s;\n", sql)
		if _, err := w.conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			fmt.Fprintf(w.log, "-- %v\n", err)
			return fmt.Errorf("%.2000s: %w", sql, err)
		}
	}
	return nil
}

// transaction is one of the table's life, or something that is done outside of any.
func (w *writer) transaction(ctx context.Context) error {
	if w.rand.IntN(4) == 0 {
		if c := w.table.change(w.rand, w.listed); c.outside {
			return w.alone(ctx, c)
		}
	}
	before := w.table.clone()
	if err := w.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	for range 1 + w.rand.IntN(4) {
		if err := w.step(ctx, 0); err != nil {
			return err
		}
	}
	if w.rand.IntN(8) == 0 {
		w.table = before
		return w.exec(ctx, "ROLLBACK")
	}
	return w.exec(ctx, "COMMIT")
}

// alone does a change that no transaction can have around it.
func (w *writer) alone(ctx context.Context, c change) error {
	if err := w.exec(ctx, c.sql...); err != nil {
		return w.refuse(c, err)
	}
	w.done(c)
	return nil
}

func (w *writer) done(c change) {
	if c.apply != nil {
		c.apply(w.table)
	}
	w.changes[c.kind]++
}

// refuse counts what the server does not allow, which is no fault.
func (w *writer) refuse(c change, err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && !strings.HasPrefix(refused.Code, "57") {
		w.refused[c.kind]++
		return nil
	}
	return err
}

// step of a transaction: rows, a change between rows, or a savepoint with more of
// both.
func (w *writer) step(ctx context.Context, depth int) error {
	switch n := w.rand.IntN(10); {
	case n < 5:
		return w.insert(ctx)
	case n < 6:
		return w.copy(ctx)
	case n < 8:
		return w.changeInside(ctx)
	case depth < 3:
		return w.savepoint(ctx, depth)
	}
	return nil
}

func (w *writer) insert(ctx context.Context) error {
	sql, rows := w.table.insert(w.rand)
	w.rows += rows
	return w.exec(ctx, sql)
}

func (w *writer) copy(ctx context.Context) error {
	before, out, in, after, rows := w.table.copying(w.rand)
	w.rows += rows
	if err := w.exec(ctx, before...); err != nil {
		return err
	}
	fmt.Fprintf(w.log, "%s;\n%s;\n", out, in)
	var text bytes.Buffer
	if _, err := w.conn.PgConn().CopyTo(ctx, &text, out); err != nil {
		return fmt.Errorf("%.2000s: %w", out, err)
	}
	if _, err := w.conn.PgConn().CopyFrom(ctx, &text, in); err != nil {
		return fmt.Errorf("%.2000s: %w", in, err)
	}
	return w.exec(ctx, after)
}

func (w *writer) changeInside(ctx context.Context) error {
	c := w.table.change(w.rand, w.listed)
	if c.outside {
		return nil
	}
	if err := w.exec(ctx, "SAVEPOINT change"); err != nil {
		return err
	}
	err := w.exec(ctx, c.sql...)
	if err != nil {
		if err := w.refuse(c, err); err != nil {
			return err
		}
		return w.exec(ctx, "ROLLBACK TO change", "RELEASE change")
	}
	w.done(c)
	return w.exec(ctx, "RELEASE change")
}

func (w *writer) savepoint(ctx context.Context, depth int) error {
	name := fmt.Sprintf("s%d", depth)
	before := w.table.clone()
	if err := w.exec(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	for range 1 + w.rand.IntN(3) {
		if err := w.step(ctx, depth+1); err != nil {
			return err
		}
	}
	if w.rand.IntN(2) == 0 {
		w.table = before
		return w.exec(ctx, "ROLLBACK TO "+name)
	}
	return w.exec(ctx, "RELEASE "+name)
}
