package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walstream/walstream/internal/testenv"
)

// A failover slot (17+) is on the standby already: the promotion of a standby that the
// slot waits for loses nothing, doubles nothing and asks nothing.
func TestC14SyncedFailoverSlot(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	if pg.Major < 17 {
		t.Skip("PostgreSQL 17 is the first with failover slots")
	}
	standby := r.standbyOf(pg) // before there is a slot, which it would have as its own
	r.exec(`SELECT pg_create_physical_replication_slot('standby_1', true)`)
	database := r.db.Config().Database
	r.check(standby.Exec(r.ctx, "",
		fmt.Sprintf(`ALTER SYSTEM SET primary_conninfo = 'host=%s port=%d user=%s password=%s dbname=%s'`, pg.Host, pg.Port, pg.User, pg.Password, database),
		`ALTER SYSTEM SET primary_slot_name = 'standby_1'`, `ALTER SYSTEM SET hot_standby_feedback = on`, `ALTER SYSTEM SET sync_replication_slots = on`))
	r.check(standby.Stop("fast"))
	r.check(standby.Start(r.ctx))
	both := r.hosts(standby, pg)
	r.check(r.warm("--postgres", both).Stop(20 * time.Second))
	r.slotFree(10 * time.Second)
	walsender, err := pgconn.Connect(r.ctx, r.dsn+"&replication=database")
	r.check(err)
	_, err = walsender.Exec(r.ctx, `ALTER_REPLICATION_SLOT "`+r.slot+`" (FAILOVER true)`).ReadAll()
	r.check(err)
	r.check(walsender.Close(r.ctx))
	r.exec(`ALTER SYSTEM SET synchronized_standby_slots = 'standby_1'`)
	r.exec(`SELECT pg_reload_conf()`)

	s := r.stream("--postgres", both)
	there := r.connectTo(r.hosts(standby))
	r.put(5)
	r.untilConfirmed()
	r.until("the slot to be synced", func() bool {
		var synced bool
		r.check(there.QueryRow(r.ctx, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary AND invalidation_reason IS NULL)`, r.slot).Scan(&synced))
		return synced
	})
	r.put(5) // some of them unconfirmed, perhaps
	r.check(pg.Kill())
	r.promote(standby, both)
	r.put(5)
	r.until("the slot to be made this server's", func() bool {
		var active bool
		r.check(r.db.QueryRow(r.ctx, `SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&active))
		return active
	})
	r.check(s.WaitStreaming(r.ctx))
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.check(s.Stop(20 * time.Second))
}
