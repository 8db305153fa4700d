package main

import (
	"context"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
)

// rewinds has a rewind slot whose name is taken, and one that keeps too much WAL.
func (s *stage) rewinds(ctx context.Context) error {
	dsn, db, err := s.database(ctx, "rewound")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(ctx) }()
	if _, err := db.Exec(ctx, "SELECT pg_create_physical_replication_slot('rewound_slot_rewind')"); err != nil {
		return err
	}
	process, err := s.stream(ctx, s.args("rewound", dsn, s.kafka.Brokers, "--rewind-window=1h", "--rewind-max=4MiB"))
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, putRow, "deposits", []byte("x")); err != nil {
		return err
	}
	with := func(more values) values {
		all := idle("rewound")
		maps.Copy(all, more)
		return all
	}
	failing, err := shows(ctx, process, with(values{"walstream_rewind_failing{": is(1)}))
	if err != nil {
		return err
	}
	s.fires("somebody else's slot has the name of the rewind slot", "WalstreamRewindFailing", step{17, map[string]string{"a": failing}})
	if _, err := db.Exec(ctx, "SELECT pg_drop_replication_slot('rewound_slot_rewind')"); err != nil {
		return err
	}
	well, err := shows(ctx, process, with(values{"walstream_rewind_failing{": is(0), "walstream_rewind_retained_bytes{": atLeast(0)}))
	if err != nil {
		return err
	}
	writing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- keepWriting(writing, db) }()
	_, err = shows(ctx, process, values{"walstream_rewind_given_up{": is(1)})
	stop()
	if failed := <-ended; err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	givenUp, err := shows(ctx, process, with(values{"walstream_rewind_given_up{": is(1)}))
	if err == nil {
		s.fires("the rewind slot is given up", "WalstreamRewindGivenUp", step{5, map[string]string{"a": well}}, step{2, map[string]string{"a": givenUp}})
	}
	return err
}

// keepWriting has the slot let go of the WAL that the one behind it may not pass yet:
// much of it, then the record that a slot's restart_lsn moves by, until ctx ends.
func keepWriting(ctx context.Context, db *pgx.Conn) error {
	if _, err := db.Exec(ctx, "CREATE TABLE noise (filler text)"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		for _, sql := range []string{
			"INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 12000)",
			"SELECT pg_log_standby_snapshot()",
			"INSERT INTO outbox (aggregate_type, aggregate_id, event_type, topic, payload) VALUES ('account', '1', 'deposited', 'deposits', 'x')",
		} {
			if _, err := db.Exec(context.WithoutCancel(ctx), sql); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
	return nil
}
