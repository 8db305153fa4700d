package cases

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/internal/testenv"
)

// A quiet outbox on a busy server keeps no WAL: keepalives move the slot.
func TestC08QuietOutboxOnABusyServer(t *testing.T) { inBothAtOnce(t, quietOutboxOnABusyServer) }

func quietOutboxOnABusyServer(t *testing.T) {
	pg := testenv.NewPostgres(t, testenv.PGOptions{}) // what is open here would hold up the slots of others
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	r.warm()
	other := pg.CreateDatabase(t)
	writer := r.connect() // an open transaction of the application pins restart_lsn, not the confirmed position
	_, err := writer.Exec(r.ctx, "BEGIN; SELECT txid_current()")
	r.check(err)
	const limit = 64 << 20
	megabytes, pace := 200, 50*time.Millisecond
	if full() {
		megabytes = 1024
	}
	var behindSince time.Time
	look := func() {
		confirmed, _ := r.confirmed()
		switch end := r.walEnd(); {
		case end-min(confirmed, end) <= limit:
			behindSince = time.Time{}
		case behindSince.IsZero():
			behindSince = time.Now()
		case time.Since(behindSince) > 15*time.Second:
			t.Fatalf("confirmed %s has been more than 64 MB behind %s for 15 s", confirmed, end)
		}
	}
	for i := range megabytes {
		if i == megabytes/2 {
			_, err := writer.Exec(r.ctx, "COMMIT")
			r.check(err)
		}
		if i%4 == 3 {
			r.check(execOn(r, other, `CREATE TABLE IF NOT EXISTS noise (filler text); INSERT INTO noise SELECT repeat('y', 1000) FROM generate_series(1, 1000)`))
		} else {
			r.exec(`INSERT INTO noise (filler) SELECT repeat('x', 1000) FROM generate_series(1, 1000)`)
		}
		look()
		time.Sleep(pace)
	}
	r.untilConfirmed()
	if !full() {
		return
	}
	r.until("restart_lsn within 64 MB", func() bool {
		_, restart := r.confirmed()
		return r.walEnd()-restart <= pglogrepl.LSN(limit)
	})
}

func execOn(r *rig, dsn, sql string) error {
	conn, err := pgxConnect(r.ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(r.ctx) }()
	_, err = conn.Exec(r.ctx, sql)
	return err
}
