package cases

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// envUpgrade runs the upgrade itself, which takes programs that few machines have:
// make upgrade-test.
const envUpgrade = "WALSTREAM_TEST_UPGRADE"

// A major upgrade by pg_upgrade, from 17 on, keeps the slot: docs/upgrading-postgres.md,
// step by step. What walstream has not read makes pg_upgrade refuse, noise beside the
// outbox too; after its drain it does not. Nothing is lost or doubled.
func TestPgUpgrade(t *testing.T) {
	if os.Getenv(envUpgrade) == "" {
		t.Skip("make upgrade-test runs it")
	}
	old := testenv.NewPostgres(t, testenv.PGOptions{Major: 17, Params: map[string]string{"autovacuum": "off"}})
	r := newRig(t, old, testenv.SharedKafka(t).Brokers)
	r.delivery = exactlyOnce
	s := r.warm("--slot-failover", "true")
	_, stop := r.writeTo(r.dsn)
	time.Sleep(time.Second)
	r.wal(100)
	stop()
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	r.slotFree(10 * time.Second)

	// Something is written behind the drain.
	r.exec(`INSERT INTO noise (filler) VALUES ('late')`)
	r.check(old.Stop("fast"))
	_, err := old.Upgrade(r.ctx, testenv.PGOptions{})
	var refused *testenv.UpgradeError
	switch {
	case err == nil:
		t.Fatal("pg_upgrade took a slot with unread changes")
	case !errors.As(err, &refused):
		testenv.SkipOrFail(t, err)
	case !strings.Contains(refused.Output, "logical replication slots"):
		t.Fatalf("pg_upgrade refuses for another reason:\n%s", refused.Output)
	}

	r.back(old)
	s = r.stream("--slot-failover", "true")
	r.put(5)
	r.wal(100)
	r.untilConfirmed() // walstream status: lag 0 B
	if st := r.standing(); st.LagBytes == nil || *st.LagBytes != 0 {
		t.Errorf("status says %+v of a stream that has confirmed everything", st)
	}
	r.check(s.Stop(20 * time.Second))
	r.check(old.Stop("fast"))
	upgraded, err := old.Upgrade(r.ctx, testenv.PGOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(upgraded.Close)
	r.dsn = r.hosts(upgraded)
	r.db = r.connect()
	r.put(5) // before anybody streams

	message := r.refused(r.start("--slot-failover", "true"), 4, "the checkpoint was written for server", "--accept-server=")
	s = r.stream(append(r.flags(message), "--slot-failover", "true")...)
	r.goesOn(s)
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	if st := r.standing(); st.Slot == nil || !st.Slot.Failover {
		t.Errorf("the slot did not stay a failover slot: %+v", st.Slot)
	}
}
