package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

const accountsTable = `
CREATE TABLE accounts (
	id text PRIMARY KEY,
	balance_cents bigint NOT NULL DEFAULT 0,
	deposits bigint NOT NULL DEFAULT 0
)`

// makeTables makes the bank's tables, the outbox among them.
func (b *bank) makeTables(ctx context.Context) error {
	db, err := pgx.Connect(ctx, b.postgres)
	if err != nil {
		return fmt.Errorf("connect to database %q: %w", b.database, err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if err := b.makeOutbox(ctx, db); err != nil {
		return fmt.Errorf("make the outbox: %w", err)
	}
	if _, err := db.Exec(ctx, accountsTable); err != nil {
		return fmt.Errorf("make the accounts: %w", err)
	}
	_, err = db.Exec(ctx, `INSERT INTO accounts (id) SELECT 'acc-' || n FROM generate_series(1, $1::int) n`, accounts)
	if err != nil {
		return fmt.Errorf("open the accounts: %w", err)
	}
	return nil
}

// makeOutbox applies sql/publication.sql as people are told to: table, role and
// publication, and walstream runs as that role, which may do no more than it
// must. A role is known to the whole server, so on one that was given only the
// table is made; walstream is the given user, and makes the publication itself.
func (b *bank) makeOutbox(ctx context.Context, db *pgx.Conn) error {
	script, err := publicationSQL(ctx)
	if err != nil {
		return err
	}
	if b.servers.ownPostgres == nil {
		if script, err = tableOf(script); err != nil {
			return err
		}
		_, err = db.Exec(ctx, script)
		return err
	}
	password := rand.Text() // letters and digits
	if _, err := db.Exec(ctx, script+"\nALTER ROLE walstream PASSWORD '"+password+"'"); err != nil {
		return err
	}
	relay, err := url.Parse(b.postgres)
	if err != nil {
		return err
	}
	relay.User = url.UserPassword("walstream", password)
	b.relay = relay.String()
	return nil
}

// publicationSQL is sql/publication.sql, found by the module's root.
func publicationSQL(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find walstream's sources: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "sql", "publication.sql"))
	return string(text), err
}

var createTable = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS public\.outbox \(.*?\n\);`)

func tableOf(script string) (string, error) {
	table := createTable.FindString(script)
	if table == "" {
		return "", errors.New("sql/publication.sql holds no CREATE TABLE IF NOT EXISTS public.outbox")
	}
	return table, nil
}
