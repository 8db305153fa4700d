package cases

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// standbyRig is a rig on a pair of servers, whose walstream streams from the standby.
func standbyRig(t *testing.T, o testenv.StandbyOptions) (r *rig, pg, standby *testenv.Postgres, from []string) {
	t.Helper()
	r, pg = ownServer(t, testenv.PGOptions{})
	standby = testenv.NewStandby(t, pg, o)
	return r, pg, standby, []string{"--postgres", r.hosts(standby), "--from-standby", "true"}
}

// runsOn has the primary log what runs there, which a standby server needs to make a
// slot, until the service streams.
func (r *rig) runsOn(s *service.Service) {
	r.t.Helper()
	r.until("the slot to be made on the standby server", func() bool {
		r.exec(`SELECT pg_log_standby_snapshot()`)
		st, err := s.Status(r.ctx)
		select {
		case <-s.Done():
			r.t.Fatalf("walstream ended\n%s", s.Log())
		default:
		}
		return err == nil && st.State == "streaming"
	})
}

// arrived waits until every row of the table is in Kafka.
func (r *rig) arrived() {
	r.t.Helper()
	rows := r.count()
	r.until("all rows to be in Kafka", func() bool { return len(r.published()) >= rows })
}

// Rows are streamed from a standby server (16+): the publication is the primary's, whose
// SQL the refusal has. The standby server is promoted under the stream, which goes on,
// and so does what starts behind a kill right after that.
func TestFromStandby(t *testing.T) {
	t.Parallel()
	r, pg, standby, from := standbyRig(t, testenv.StandbyOptions{})
	r.refused(r.start("--postgres", r.hosts(standby)), 3, "the server is a standby, in recovery", "--from-standby")
	message := r.refused(r.start(from...), 3, "a server in recovery cannot make it", "on the primary: CREATE PUBLICATION")
	create := regexp.MustCompile(`CREATE PUBLICATION [^;]*;`).FindString(message)
	r.exec(create)
	r.received(pg, standby)
	s := r.start(from...)
	r.runsOn(s)
	r.put(5)
	r.arrived()
	r.check(s.Stop(20 * time.Second))
	r.put(5) // while nobody streams
	s = r.stream(from...)
	r.put(5)
	r.arrived()
	if st := r.standing(from...); st.State != "active" || len(st.Problems) > 0 {
		t.Errorf("status: %+v", st)
	}

	r.received(pg, standby)
	r.check(pg.Kill())
	r.promote(standby, r.hosts(standby))
	r.put(5)
	r.arrived()
	s.Kill() // perhaps before it has heard of the promotion
	s = r.stream(from...)
	r.put(5)
	r.arrived()
	r.check(s.Stop(20 * time.Second))
	s = r.stream() // it is a primary now
	r.put(5)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.check(s.Stop(20 * time.Second))
}

// The stream hears of a promotion by itself, and begins anew on the new timeline.
func TestFromStandbyPromotedUnderTheStream(t *testing.T) {
	t.Parallel()
	r, pg, standby, from := standbyRig(t, testenv.StandbyOptions{})
	r.exec(`CREATE PUBLICATION ` + r.publication() + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
	r.received(pg, standby)
	s := r.start(from...)
	r.runsOn(s)
	r.put(5)
	r.received(pg, standby)
	r.check(pg.Kill())
	r.promote(standby, r.hosts(standby))
	_, err := s.WaitFor(r.ctx, "streaming from the new primary", func(st service.Status) bool { return st.State == "streaming" && st.Restarts["promoted"] == 1 })
	r.check(err)
	r.put(5)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	for _, rec := range r.published()[5:] {
		if position := header(rec, "walstream-position"); !strings.HasPrefix(position, "0000000") {
			t.Errorf("position %s", position)
		}
	}
	r.check(s.Stop(20 * time.Second))
}

// What the slot on a standby server needs was removed by the primary: the slot is lost,
// and it is said by what.
func TestFromStandbySlotLost(t *testing.T) {
	t.Parallel()
	r, pg, standby, from := standbyRig(t, testenv.StandbyOptions{Params: map[string]string{"hot_standby_feedback": "off"}})
	r.exec(`CREATE PUBLICATION ` + r.publication() + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
	r.received(pg, standby)
	s := r.start(from...)
	r.runsOn(s)
	r.put(2)
	r.arrived()
	if out, _ := r.command([]string{"check"}, from...); !strings.Contains(out, "hot_standby_feedback is off") {
		t.Errorf("check does not name what endangers the slot:\n%s", out)
	}
	r.check(s.Stop(20 * time.Second))
	r.exec(`CREATE TABLE gone (i int)`)
	r.exec(`DROP TABLE gone`)
	r.exec(`VACUUM FULL pg_class`)
	r.put(2)
	r.received(pg, standby)
	r.refused(r.start(from...), 5, "is invalidated", "rows_removed", "hot_standby_feedback")
}
