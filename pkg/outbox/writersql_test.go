package outbox

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
)

// plainDriver is database/sql's least: it knows the values that database/sql
// gives every driver, and no more. (pgx's own would bring a pool into go.mod.)
type plainDriver struct{ dsn string }

func (d plainDriver) Driver() driver.Driver { return nil }

func (d plainDriver) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := pgx.Connect(ctx, d.dsn)
	return &plainConn{Conn: conn}, err
}

type plainConn struct {
	*pgx.Conn
	tx pgx.Tx
}

var errNotNeeded = errors.New("not needed here")

func (c *plainConn) Prepare(string) (driver.Stmt, error) { return nil, errNotNeeded }
func (c *plainConn) Close() error                        { return c.Conn.Close(context.Background()) }
func (c *plainConn) Begin() (driver.Tx, error)           { return nil, errNotNeeded }

func (c *plainConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	var err error
	c.tx, err = c.Conn.Begin(ctx)
	return c, err
}

func (c *plainConn) Commit() error   { return c.tx.Commit(context.Background()) }
func (c *plainConn) Rollback() error { return c.tx.Rollback(context.Background()) }

func (c *plainConn) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	var args []any
	for _, v := range named {
		args = append(args, v.Value)
	}
	_, err := c.Exec(ctx, query, args...)
	return driver.RowsAffected(1), err
}
