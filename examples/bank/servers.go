package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/walstream/walstream/internal/testenv"
)

// servers are what the demo runs on.
type servers struct {
	postgres string // URL or DSN of a database that is there already
	brokers  []string
	dir      string // temporary, for the programs and data of this run

	ownPostgres *testenv.Postgres // nil when given
	ownKafka    *kfake.Cluster    // nil when given
}

// startServers starts those that were not given.
func startServers(ctx context.Context, o options, out *screen) (*servers, error) {
	dir, err := os.MkdirTemp("", "walstream-bank-")
	if err != nil {
		return nil, err
	}
	s := &servers{postgres: o.postgres, brokers: o.brokers, dir: dir}
	if err := s.start(ctx, out); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *servers) start(ctx context.Context, out *screen) (err error) {
	if s.postgres == "" {
		out.line("starting PostgreSQL (its programs, 15 MB, are fetched once)")
		// Durable: with fsync on, as in life.
		if s.ownPostgres, err = testenv.StartPostgres(ctx, testenv.PGOptions{Durable: true}); err != nil {
			return err
		}
		s.postgres = s.ownPostgres.DSN("")
		out.line("PostgreSQL %d listens on %s:%d", s.ownPostgres.Major, s.ownPostgres.Host, s.ownPostgres.Port)
	}
	if len(s.brokers) == 0 {
		s.ownKafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(filepath.Join(s.dir, "kafka")))
		if err != nil {
			return fmt.Errorf("start an in-process Kafka: %w", err)
		}
		s.brokers = s.ownKafka.ListenAddrs()
		out.line("Kafka listens on %s (in this process: franz-go's kfake, not the real broker)", strings.Join(s.brokers, ","))
	}
	return nil
}

// connect opens a session with the server that was given or made.
func (s *servers) connect(ctx context.Context) (*pgx.Conn, error) {
	db, err := pgx.Connect(ctx, s.postgres)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return db, nil
}

// close ends what was started and removes its data.
func (s *servers) close() {
	if s.ownKafka != nil {
		s.ownKafka.Close()
	}
	if s.ownPostgres != nil {
		s.ownPostgres.Close()
	}
	_ = os.RemoveAll(s.dir)
}
