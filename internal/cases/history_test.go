package cases

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// Refusals that have to do with which server, and which history of it, is there.
// Each case has a server of its own, which it copies, restores or promotes.

// ownServer is a rig on a server of its own with data that can be copied.
func ownServer(t *testing.T, o testenv.PGOptions) (*rig, *testenv.Postgres) {
	t.Helper()
	pg := testenv.NewPostgres(t, o)
	if pg.DataDir == "" {
		t.Skip("the server's data cannot be reached here")
	}
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	r.delivery = exactlyOnce
	return r, pg
}

// copied stops the server, copies its data, and starts it again.
func (r *rig) copied(pg *testenv.Postgres) (dir string) {
	r.t.Helper()
	r.check(pg.Stop("fast"))
	parent, err := os.MkdirTemp("", "walstream-copy-")
	r.check(err)
	r.t.Cleanup(func() { _ = os.RemoveAll(parent) })
	r.check(os.Chmod(parent, 0o755)) // the server is another user
	dir = filepath.Join(parent, "data")
	if out, err := exec.Command("cp", "-a", pg.DataDir, dir).CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	r.back(pg)
	return dir
}

// back starts a stopped server and connects to it again.
func (r *rig) back(pg *testenv.Postgres) {
	r.t.Helper()
	r.check(pg.Start(r.ctx))
	r.db = r.connect()
}

// restoredFrom puts a copy of the data in the server's place.
func (r *rig) restoredFrom(pg *testenv.Postgres, dir string) {
	r.t.Helper()
	r.check(pg.Stop("fast"))
	r.check(os.RemoveAll(pg.DataDir))
	r.check(os.Rename(dir, pg.DataDir))
	r.back(pg)
}

// The slot was invalidated: rows can no longer be had from it. No loop, nothing is
// dropped or made by itself.
func TestC10SlotLost(t *testing.T) {
	t.Parallel()
	limits := map[string]string{"max_slot_wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "48MB"}
	flood := func(r *rig) {
		r.until("the slot to be lost", func() bool {
			r.wal(20_000)
			r.exec(`CHECKPOINT`)
			var status string
			r.check(r.db.QueryRow(r.ctx, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&status))
			return status == "lost"
		})
	}
	for _, major := range []int{testenv.OldestMajor, testenv.NewestMajor} {
		t.Run(fmt.Sprintf("while down on %d", major), func(t *testing.T) {
			r, _ := ownServer(t, testenv.PGOptions{Major: major, Params: limits})
			r.check(r.warm().Stop(20 * time.Second))
			r.put(5)
			flood(r)
			s := r.start()
			message := r.refused(s, 5, "is invalidated", "wal_status lost", "last confirmed")
			var slots int
			r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'`).Scan(&slots))
			if slots != 1 {
				t.Errorf("the lost slot was touched: %s", message)
			}
			r.anew(r.start(), "is invalidated", 5)
		})
	}
	t.Run("while running", func(t *testing.T) {
		pg := testenv.NewPostgres(t, testenv.PGOptions{Params: limits})
		r, proxy := proxiedRig(t, pg)
		r.delivery = exactlyOnce
		s := r.warm()
		proxy.Blackhole()
		r.put(5)
		flood(r)
		proxy.Restore()
		r.anew(s, "is invalidated", 5)
	})
	t.Run("idle for too long", func(t *testing.T) { // 18
		r, pg := ownServer(t, testenv.PGOptions{})
		if pg.Major < 18 {
			t.Skip("PostgreSQL 18 is the first that gives idle slots up")
		}
		r.check(r.warm().Stop(20 * time.Second))
		r.put(5)
		r.exec(`ALTER SYSTEM SET idle_replication_slot_timeout = '1s'`)
		r.exec(`SELECT pg_reload_conf()`)
		r.until("the slot to be given up", func() bool {
			r.exec(`CHECKPOINT`)
			var status string
			r.check(r.db.QueryRow(r.ctx, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&status))
			return status == "lost"
		})
		r.exec(`ALTER SYSTEM RESET idle_replication_slot_timeout`)
		r.exec(`SELECT pg_reload_conf()`)
		r.anew(r.start(), "idle_timeout", 5)
	})
}

// Another cluster under the same address: nobody is disturbed, and after pg_upgrade
// the answer goes on from the slot that came with the data.
func TestRefusalOtherServer(t *testing.T) {
	t.Parallel()
	// Servers of one major have one identifier here: they begin as copies.
	old := testenv.NewPostgres(t, testenv.PGOptions{Major: testenv.NewestMajor - 1})
	r := newRig(t, old, testenv.SharedKafka(t).Brokers)
	r.delivery = exactlyOnce
	s := r.warm()
	r.put(4)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))

	upgraded := testenv.NewPostgres(t, testenv.PGOptions{Major: testenv.NewestMajor})
	database := r.dsn[strings.LastIndex(r.dsn, "/")+1 : strings.LastIndex(r.dsn, "?")]
	r.check(upgraded.Exec(r.ctx, "", `CREATE DATABASE `+database))
	rows, err := r.db.Query(r.ctx, `SELECT id::text FROM bank_outbox`)
	r.check(err)
	var ids []string
	for rows.Next() {
		var id string
		r.check(rows.Scan(&id))
		ids = append(ids, id)
	}
	r.dsn = upgraded.DSN(database)
	r.db = r.connect()
	r.exec(rigSchema)
	r.exec(`INSERT INTO bank_outbox (id, aggregate_type, event_type) SELECT i::uuid, 'a', 'copied' FROM unnest($1::text[]) i`, ids)
	r.exec(`CREATE PUBLICATION ` + r.publication() + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
	r.exec(createSlot, r.slot)
	r.put(5)

	message := r.refused(r.start(), 4, "the checkpoint was written for server", "--accept-server=", "cannot be compared")
	if !gapLSN.MatchString(message) || !gapTime.MatchString(message) {
		t.Errorf("the refusal does not say where both stand:\n%s", message)
	}
	r.goesOn(r.stream(r.flags(message)...))
	r.onceEach()
}

// The server was restored from a backup: what it has lost is in Kafka, and what it
// writes anew has LSNs that were used before.
func TestRefusalRestored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wal  int
		says string
	}{
		"its WAL ends before the checkpoint": {0, "the server was restored from an older state"},
		"its WAL is beyond it again":         {2000, "the server's history is not the one that was published"},
	} {
		t.Run(name, func(t *testing.T) {
			r, pg := ownServer(t, testenv.PGOptions{})
			r.check(r.warm().Stop(20 * time.Second))
			backup := r.copied(pg)
			s := r.stream()
			r.put(5)
			r.untilConfirmed()
			r.check(s.Stop(20 * time.Second))
			r.restoredFrom(pg, backup)
			r.put(3) // of the new history, before anybody has looked
			if c.wal > 0 {
				r.wal(c.wal)
				r.put(2)
			}
			rows := r.count() - 1 // but for the one of both histories
			message := r.refused(r.start(), 4, c.says, "--pipeline="+r.pipeline+"-2")
			r.namesGap(message)
			r.slotFree(10 * time.Second)
			r.takeSQL(message)
			s = r.stream(r.flags(message)...)
			if sent := r.sendAgain(message); sent != rows {
				t.Errorf("%d rows were sent again, want %d", sent, rows)
			}
			r.goesOn(s)
			r.onceEach()
		})
	}
}

func (r *rig) count() (rows int) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM bank_outbox`).Scan(&rows))
	return rows
}

// standbyOf is a standby server of pg, made from a copy, that streams from it.
func (r *rig) standbyOf(pg *testenv.Postgres) *testenv.Postgres {
	r.t.Helper()
	dir := r.copied(pg)
	r.check(os.WriteFile(filepath.Join(dir, "standby.signal"), nil, 0o600))
	standby := testenv.NewPostgres(r.t, testenv.PGOptions{Major: pg.Major, DataDir: dir, Params: map[string]string{
		"primary_conninfo": fmt.Sprintf("host=%s port=%d user=%s password=%s", pg.Host, pg.Port, pg.User, pg.Password),
	}})
	return standby
}

// hosts is the rig's address with several servers, in this order.
func (r *rig) hosts(servers ...*testenv.Postgres) string {
	at := strings.Index(r.dsn, "@")
	path := strings.Index(r.dsn[at:], "/") + at
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, fmt.Sprintf("%s:%d", s.Host, s.Port))
	}
	return r.dsn[:at+1] + strings.Join(hosts, ",") + r.dsn[path:]
}

// promote makes the standby take writes, and connects to it.
func (r *rig) promote(standby *testenv.Postgres, address string) {
	r.t.Helper()
	r.check(standby.Exec(r.ctx, "", `SELECT pg_promote()`))
	r.dsn = address
	r.db = r.connectTo(r.hosts(standby))
}

// A standby that had not received everything was promoted, under a stream that is
// led there by its address.
func TestRefusalLostTail(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	r.check(r.warm().Stop(20 * time.Second))
	standby := r.standbyOf(pg)
	both := r.hosts(standby, pg)
	s := r.stream("--postgres", both)
	r.put(2)
	r.untilConfirmed()
	r.received(pg, standby)
	r.partsFrom(standby)
	r.put(5) // in Kafka, and on no server soon
	r.wal(100)
	r.untilConfirmed()
	r.check(pg.Kill())
	r.promote(standby, both)
	message := r.refused(s, 4, "the server left timeline 1", "--accept-lost-tail=", "tell the consumers")
	r.namesGap(message)
	r.put(3)
	r.goesOn(r.stream(r.flags(message)...))
	r.onceEach()
}

// received waits until the standby has everything.
func (r *rig) received(pg, standby *testenv.Postgres) {
	r.t.Helper()
	end := r.walEnd()
	conn := r.connectTo(r.hosts(standby))
	r.until("the standby to have everything", func() bool {
		var there bool
		r.check(conn.QueryRow(r.ctx, `SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn`, end.String()).Scan(&there))
		return there
	})
	r.check(conn.Close(r.ctx))
}

// A failover to a standby that has everything: the address leads there, a server
// in recovery is passed over, and nothing is asked; back again, too.
func TestC14FailoverByAddress(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	r.check(r.warm().Stop(20 * time.Second))
	standby := r.standbyOf(pg)
	both := r.hosts(standby, pg) // the one in recovery first
	if strings.Contains(both, "target_session_attrs") {
		t.Fatal("the address must not say which of the two it wants")
	}
	s := r.stream("--postgres", both)
	r.put(5)
	r.untilConfirmed()
	r.received(pg, standby)
	r.check(pg.Kill())
	r.promote(standby, both)
	r.check(s.WaitStreaming(r.ctx))
	r.put(5)
	r.untilConfirmed()
	if status, err := s.Status(r.ctx); err != nil || status.State != "streaming" {
		t.Errorf("%+v (%v)", status, err)
	}
	r.verify()

	// The demoted one comes back read-only, and is passed over.
	r.check(s.Stop(20 * time.Second))
	r.check(os.WriteFile(filepath.Join(pg.DataDir, "standby.signal"), nil, 0o600))
	r.check(pg.Start(r.ctx))
	s = r.stream("--postgres", r.hosts(pg, standby))
	r.put(2)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	r.verify()

	// Alone it is refused by name: nothing else is there to wait for.
	r.refused(r.start("--postgres", r.hosts(pg)), 3, "the server is a standby, in recovery", "connect to the primary")
	r.check(pg.Kill()) // it lets nobody drop the database
}
