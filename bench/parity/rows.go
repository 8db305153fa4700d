package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// sample is one case: a row of a group, once it is written.
type sample struct {
	name  string // group/row
	group *group
	row   *row
	xid   uint64
	// The commit lies between these, on the server's clock and in its WAL.
	when      written
	from, end pglogrepl.LSN
}

// publication is what Debezium's connectors read; walstream makes its own.
const publication = "parity_debezium"

// createTables makes the schema and what the connectors need before they start.
func createTables(ctx context.Context, db *pgx.Conn, groups []*group) error {
	statements := []string{
		"CREATE EXTENSION hstore", // to be had in columns
		"CREATE SCHEMA parity",
		"CREATE TYPE public.mood AS ENUM ('happy', 'sad')",
		"CREATE DOMAIN public.code AS text CHECK (value <> 'never')",
		"CREATE TABLE parity.probe (n bigserial PRIMARY KEY)",
	}
	for _, g := range groups {
		statements = append(statements, g.create())
	}
	statements = append(statements, "CREATE PUBLICATION "+publication+" FOR TABLES IN SCHEMA parity")
	for _, statement := range statements {
		if _, err := db.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// insertRows writes the corpus, each row in a transaction of its own.
func insertRows(ctx context.Context, db *pgx.Conn, groups []*group) ([]*sample, error) {
	var samples []*sample
	for _, g := range groups {
		for i := range g.Rows {
			r := &g.Rows[i]
			s := &sample{name: g.Name + "/" + r.Name, group: g, row: r}
			err := s.write(ctx, db, g.insert(r))
			if err == nil && r.Then != "" {
				err = s.write(ctx, db, g.then(r))
			}
			if err != nil {
				return nil, fmt.Errorf("row %s: %w", s.name, err)
			}
			samples = append(samples, s)
		}
	}
	return samples, nil
}

// write runs the statement in a transaction and notes where that was. On the
// second call the first change is forgotten.
func (s *sample) write(ctx context.Context, db *pgx.Conn, statement string) error {
	var err error
	if s.when.from, s.from, err = now(ctx, db); err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing to do after a commit
	if _, err := tx.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	var xid string
	if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&xid); err != nil {
		return err
	}
	if s.xid, err = strconv.ParseUint(xid, 10, 64); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	s.when.to, s.end, err = now(ctx, db)
	return err
}

// now on the server.
func now(ctx context.Context, db *pgx.Conn) (at time.Time, lsn pglogrepl.LSN, err error) {
	var text string
	if err = db.QueryRow(ctx, "SELECT clock_timestamp(), pg_current_wal_insert_lsn()::text").Scan(&at, &text); err == nil {
		lsn, err = pglogrepl.ParseLSN(text)
	}
	return at, lsn, err
}
