package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// NewPostgres starts a server of the test's own, which it may stop and kill; it
// ends with the test.
func NewPostgres(t testing.TB, o PGOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		SkipOrFail(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PostgreSQL %d on port %d: %s", p.Major, p.Port, p.Log())
		}
		p.Close()
	})
	return p
}

// shared are the servers of the test process, one for each key.
var shared struct {
	sync.Mutex
	postgres map[int]*once[*Postgres]
	kafka    once[*Kafka]
}

// once remembers how a start ended, the failure too: it would fail again.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

func (o *once[T]) get(start func() (T, error)) (T, error) {
	o.Do(func() { o.value, o.err = start() })
	return o.value, o.err
}

// SharedPostgres returns the test process's server of a major, started by the
// first caller. 0 is the given server of whatever major, else the newest that
// can be had. It must not be stopped.
func SharedPostgres(t testing.TB, major int) *Postgres {
	t.Helper()
	p, err := sharedPostgres(major)
	if err != nil {
		SkipOrFail(t, err)
	}
	return p
}

func sharedPostgres(major int) (*Postgres, error) {
	shared.Lock()
	if shared.postgres == nil {
		shared.postgres = make(map[int]*once[*Postgres])
	}
	server := shared.postgres[major]
	if server == nil {
		server = &once[*Postgres]{}
		shared.postgres[major] = server
	}
	shared.Unlock()
	return server.get(func() (*Postgres, error) {
		if major == 0 && os.Getenv(EnvPostgresURL) == "" {
			if p, err := sharedPostgres(NewestMajor); err == nil {
				return p, nil
			}
		}
		// Not a test's context: the server outlives it.
		return startPostgres(context.Background(), PGOptions{Major: major}, true)
	})
}

// CreateDatabase makes a database of the test's own and returns its URL. It is
// dropped at the end of the test, with the replication slots in it and whoever
// is still connected.
func (p *Postgres) CreateDatabase(t testing.TB) (dsn string) {
	t.Helper()
	name := databaseName(t.Name())
	if err := p.Exec(t.Context(), "", `CREATE DATABASE `+name+` TEMPLATE template0`); err != nil {
		t.Fatalf("testenv: create a database: %v", err)
	}
	t.Cleanup(func() {
		if p.server != nil && !p.server.running() {
			return // the test stopped it
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.dropDatabase(ctx, name); err != nil {
			t.Errorf("testenv: drop the database %s: %v", name, err)
		}
	})
	return p.DSN(name)
}

// dropDatabase drops the slots first: a database with a slot cannot go. A
// walsender that was told to end holds its slot for a moment yet.
func (p *Postgres) dropDatabase(ctx context.Context, name string) error {
	for {
		err := p.Exec(ctx, "",
			`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '`+name+`' AND active`,
			`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '`+name+`'`,
			`DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// databaseName is the test's name as far as an identifier of 63 bytes holds it,
// and something random.
func databaseName(test string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("t_%.40s_%s", plain, strings.ToLower(rand.Text()[:10]))
}
