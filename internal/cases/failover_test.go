package cases

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// follows makes a standby server that copies failover slots, under whatever is
// written to pg, and has the stream wait for it.
func (r *rig) follows(pg *testenv.Postgres, slot string, port int) *testenv.Postgres {
	r.t.Helper()
	if pg.Major < 17 {
		r.t.Skip("PostgreSQL 17 is the first with failover slots")
	}
	standby := testenv.NewStandby(r.t, pg, testenv.StandbyOptions{Slot: slot, SyncSlots: true, Database: r.db.Config().Database, Port: port})
	r.check(pg.Exec(r.ctx, "", `ALTER SYSTEM SET synchronized_standby_slots = '`+slot+`'`, `SELECT pg_reload_conf()`))
	return standby
}

// synced waits until a standby server has the slot, so that it would outlive a
// promotion.
func (r *rig) synced(standby *testenv.Postgres) {
	r.t.Helper()
	there := r.connectTo(r.hosts(standby))
	defer func() {
		if r.t.Failed() {
			r.t.Logf("the standby server said:\n%s", standby.Log())
		}
	}()
	r.until("the slot to be synced", func() bool {
		var synced bool
		r.check(there.QueryRow(r.ctx, `SELECT EXISTS (SELECT FROM pg_replication_slots
			WHERE slot_name = $1 AND synced AND NOT temporary AND invalidation_reason IS NULL)`, r.slot).Scan(&synced))
		if !synced { // the slot's horizon moves on with what the primary logs of running transactions
			r.exec(`SELECT pg_log_standby_snapshot()`)
			time.Sleep(200 * time.Millisecond)
		}
		return synced
	})
	r.check(there.Close(r.ctx))
}

// writeTo commits rows all the time, on whichever server takes writes. wrote waits
// until so many more are committed.
func (r *rig) writeTo(address string) (wrote func(more int64), stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	var rows atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conn *pgx.Conn
		for ctx.Err() == nil {
			if conn == nil || conn.IsClosed() {
				var err error
				if conn, err = pgx.Connect(ctx, address+"&target_session_attrs=read-write&connect_timeout=2"); err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
			}
			writing, ended := context.WithTimeout(ctx, 2*time.Second)
			if _, err := conn.Exec(writing, putSQL, 1+rows.Load()%5); err == nil {
				rows.Add(1)
			}
			ended()
			time.Sleep(time.Millisecond)
		}
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	wrote = func(more int64) {
		r.t.Helper()
		until := rows.Load() + more
		r.until("more rows", func() bool { return rows.Load() >= until })
	}
	return wrote, func() { cancel(); <-done }
}

// Two promotions in a row under load, each of a server that has the failover slot and
// that the stream waits for; the second is made of the new primary, in the place of the
// old one. The address has the server in recovery first. Nothing is lost or doubled,
// and nobody is asked.
func TestC14TwoPromotionsUnderLoad(t *testing.T) {
	t.Parallel()
	r, first := ownServer(t, testenv.PGOptions{})
	second := r.follows(first, "standby_1", 0)
	both := r.hosts(second, first)
	s := r.stream("--postgres", both, "--slot-failover", "true")
	if st := r.standing("--postgres", both); !st.Slot.Failover || st.Slot.Synced {
		t.Errorf("status says %+v of the slot", st.Slot)
	}
	wrote, stop := r.writeTo(both)
	defer stop()
	wrote(100)
	r.synced(second)
	wrote(100)
	r.check(first.Kill())
	r.promote(second, both)
	wrote(100)
	r.check(s.WaitStreaming(r.ctx))

	third := r.follows(second, "standby_2", first.Port)
	r.synced(third)
	wrote(100)
	r.check(second.Kill())
	r.promote(third, both)
	wrote(100)
	stop()
	r.check(s.WaitStreaming(r.ctx))
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.check(s.Stop(20 * time.Second))
}

// The old primary comes back under its old address, the first of the list, with our
// slot, and takes writes. Neither the instance at work nor one that stands by nor a
// new one follows it, and none disturbs the others.
func TestC14OldPrimaryIsNotFollowed(t *testing.T) {
	t.Parallel()
	r, old := ownServer(t, testenv.PGOptions{})
	primary := r.follows(old, "standby_1", 0)
	both := []string{"--postgres", r.hosts(old, primary), "--slot-failover", "true"}
	s := r.stream(both...)
	r.put(5)
	r.untilConfirmed()
	r.synced(primary)
	r.check(old.Kill())
	r.promote(primary, r.hosts(old, primary))
	r.check(s.WaitStreaming(r.ctx))
	r.put(5)
	r.untilConfirmed()

	r.check(old.Start(r.ctx))
	// It waits for a standby server that follows it no more.
	r.check(old.Exec(r.ctx, "", `ALTER SYSTEM RESET synchronized_standby_slots`, `SELECT pg_reload_conf()`))
	zombie := r.connectTo(r.hosts(old))
	r.putOn(zombie, 7)
	restarts := r.restartsOf(s)
	second := r.start(both...)
	_, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.put(5)
	r.untilConfirmed()
	if again := r.restartsOf(s); again != restarts {
		t.Errorf("the instance at work began anew %d times", again-restarts)
	}
	r.refused(r.start("--postgres", r.hosts(old)), 4, "a primary of before a failover", "stop it, or take it out of the address")

	r.cut() // whoever is faster takes the slot
	r.put(5)
	r.untilConfirmed()
	s.Kill()
	r.check(second.WaitStreaming(r.ctx))
	r.put(5)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	var used bool
	r.check(zombie.QueryRow(r.ctx, `SELECT active OR confirmed_flush_lsn >= pg_current_wal_flush_lsn() FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&used))
	if used {
		t.Error("the old primary's slot was read from")
	}
	r.check(second.Stop(20 * time.Second))
}

// Rows that the standby server has not got are not in Kafka either, where
// synchronized_standby_slots names it: what a failover loses was never published.
func TestC14RowsWaitForTheStandby(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	standby := r.follows(pg, "standby_1", 0)
	both := r.hosts(standby, pg)
	s := r.stream("--postgres", both, "--slot-failover", "true")
	r.put(5)
	r.untilConfirmed()
	r.synced(standby)
	r.partsFrom(standby)
	r.put(5) // on the primary alone
	r.until("the walsender to wait for the standby server", func() bool {
		var waits bool
		r.check(r.db.QueryRow(r.ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation')`).Scan(&waits))
		return waits
	})
	if out, _ := r.command([]string{"check"}, "--slot-failover", "true"); !strings.Contains(out, "synchronized_standby_slots names standby_1, by which no standby server follows") {
		t.Errorf("check does not name what the rows wait for:\n%s", out)
	}
	r.check(pg.Kill())
	r.promote(standby, both)
	r.put(3)
	r.check(s.WaitStreaming(r.ctx))
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 || r.count() != 8 {
		t.Errorf("%d duplicates, %d rows", duplicates, r.count())
	}
	r.check(s.Stop(20 * time.Second))
}

// After a switchover the old primary is a standby server with the slot of before, which
// keeps it from copying any, until it is dropped.
func TestC14SlotLeftOverOnTheOldPrimary(t *testing.T) {
	t.Parallel()
	r, first := ownServer(t, testenv.PGOptions{})
	second := r.follows(first, "standby_1", 0)
	both := r.hosts(first, second)
	s := r.stream("--postgres", both, "--slot-failover", "true")
	r.put(5)
	r.untilConfirmed()
	r.synced(second)
	database := r.db.Config().Database
	// Before it is followed: a worker that fails is started again after a minute.
	r.check(second.Exec(r.ctx, "", `SELECT pg_create_physical_replication_slot('standby_2', true)`))
	r.switchover(first, second,
		"primary_conninfo = '"+fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s", second.Host, second.Port, second.User, second.Password, database)+"'",
		"primary_slot_name = 'standby_2'", "hot_standby_feedback = on", "sync_replication_slots = on", "synchronized_standby_slots = ''")
	r.dsn = both
	r.db = r.connectTo(r.hosts(second))
	r.check(s.WaitStreaming(r.ctx))
	r.put(5)
	r.untilConfirmed()
	r.until("the old primary to say what keeps it", func() bool {
		return strings.Contains(first.Log(), "same name slot \""+r.slot+"\" already exists on the standby")
	})
	r.check(first.Exec(r.ctx, "", `SELECT pg_drop_replication_slot('`+r.slot+`')`))
	r.synced(first)
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.check(s.Stop(20 * time.Second))
	r.check(first.Kill()) // it lets nobody drop the database
}

// A failover that lost WAL of other tables only: idle positions reach beyond it, what
// was published does not. Nobody is asked.
func TestC14FailoverThatLostOtherTables(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	r.check(r.warm().Stop(20 * time.Second))
	standby := r.standbyOf(pg)
	both := r.hosts(standby, pg)
	s := r.stream("--postgres", both)
	r.put(5)
	r.untilConfirmed()
	r.received(pg, standby)
	r.partsFrom(standby)
	r.wal(100)
	r.untilConfirmed()
	r.check(pg.Kill())
	r.promote(standby, both)
	r.check(s.WaitStreaming(r.ctx))
	r.put(5)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.check(s.Stop(20 * time.Second))
}

// A failover without a failover slot: a stop with the gap named.
func TestC14FailoverWithoutTheSlot(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	standby := testenv.NewStandby(t, pg, testenv.StandbyOptions{})
	both := r.hosts(standby, pg)
	s := r.warm("--postgres", both)
	r.received(pg, standby)
	r.check(pg.Kill())
	r.promote(standby, both)
	r.put(3)
	r.anew(s, "does not exist on this server", 3)
}

// An existing slot becomes a failover slot at the next start with the setting; below
// 17 the setting is refused, and says so before anything is made.
func TestC14SlotBecomesFailoverSlot(t *testing.T) {
	r := sharedRig(t)
	r.check(r.warm().Stop(20 * time.Second))
	r.slotFree(10 * time.Second)
	if out, code := r.command([]string{"check"}, "--slot-failover", "true"); code != 0 {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	s := r.stream("--slot-failover", "true")
	var failover bool
	r.check(r.db.QueryRow(r.ctx, `SELECT failover FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&failover))
	if !failover {
		t.Error("it is no failover slot")
	}
	r.put(2)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	r.verify()

	old := newRig(t, testenv.SharedPostgres(t, testenv.OldestMajor), testenv.SharedKafka(t).Brokers)
	old.refused(old.start("--slot-failover", "true"), 3, "failover slots need PostgreSQL 17 or newer, this server is 15", "start without --slot-failover")
}

// partsFrom ends a standby server's streaming from its primary.
func (r *rig) partsFrom(standby *testenv.Postgres) {
	r.t.Helper()
	r.check(standby.Exec(r.ctx, "", `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`))
	r.until("the standby to be cut off", func() bool {
		var senders int
		r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_stat_replication WHERE application_name <> $1`, r.pipeline).Scan(&senders))
		return senders == 0
	})
}
