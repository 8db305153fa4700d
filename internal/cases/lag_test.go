package cases

import (
	"net/http"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// lagSample is what walstream says of the confirmed stage, and what PostgreSQL says
// just before and just after.
type lagSample struct {
	bytes         *int64
	seconds       *float64
	before, after int64
	healthy       bool
}

func (r *rig) lag(s *service.Service) lagSample {
	r.t.Helper()
	diff := func() (bytes int64) {
		r.check(r.db.QueryRow(r.ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)::int8 FROM pg_replication_slots WHERE slot_name = $1`,
			r.slot).Scan(&bytes))
		return bytes
	}
	sample := lagSample{before: diff()}
	status, err := s.Status(r.ctx)
	r.check(err)
	sample.bytes, sample.seconds, sample.healthy = status.LagBytes["confirmed"], status.LagSeconds["confirmed"], status.Healthy
	sample.after = diff()
	if sample.bytes != nil && *sample.bytes < 0 || sample.seconds != nil && *sample.seconds < 0 {
		r.t.Errorf("negative lag: %+v", sample)
	}
	return sample
}

// known waits until lag can be told and fits.
func (r *rig) lagUntil(s *service.Service, what string, fits func(lagSample) bool) {
	r.t.Helper()
	r.until(what, func() bool {
		sample := r.lag(s)
		return sample.bytes != nil && sample.seconds != nil && fits(sample)
	})
}

// Lag against what PostgreSQL itself says, in every state: 0 when idle, as large as
// it is when held, rising with time, absent when nobody can tell.
func TestC57LagAgainstTheServer(t *testing.T) {
	t.Parallel()
	const stale = 3 * time.Second // a reading of the server is up to 2 s old
	r, kafka := proxiedRig(t, testenv.NewPostgres(t, testenv.PGOptions{}))
	server := testenv.NewProxy(t, addressOf(r))
	s := r.warm("--postgres", r.through(server), "--stall-timeout", "3s", "--status-interval", "1s")

	idle := func() {
		r.lagUntil(s, "no lag when idle", func(l lagSample) bool { return *l.bytes == 0 && *l.seconds == 0 })
	}
	idle()
	r.during(scaled(30*time.Second), func() { // rising while idle was the fault of others
		if l := r.lag(s); l.bytes != nil && (*l.bytes > max(l.before, l.after) || *l.seconds > 1) {
			t.Errorf("idle, and lag is %d bytes, %.1f s; the server says %d and %d", *l.bytes, *l.seconds, l.before, l.after)
		}
	})
	var most int64 // of what the server has said while readings may be of that time
	r.during(scaled(50*time.Second), func() {
		r.put(50)
		l := r.lag(s)
		if most = max(most, l.before, l.after); l.bytes != nil && *l.bytes > most+1<<20 {
			t.Errorf("under load: %d bytes, where the server says %d at most", *l.bytes, most)
		}
	})
	r.untilConfirmed()
	idle()

	kafka.Blackhole()
	r.put(100)
	r.exec(`INSERT INTO noise (filler) SELECT repeat('x', 1000) FROM generate_series(1, 2000)`)
	time.Sleep(stale)
	r.lagUntil(s, "the lag that the server sees, while Kafka holds", func(l lagSample) bool {
		return l.before == l.after && *l.bytes == l.before && *l.bytes > 2<<20
	})
	last := 0.0
	for range 5 {
		l := r.lag(s)
		if l.bytes == nil || *l.bytes == 0 || *l.seconds <= last {
			t.Errorf("held: %+v; seconds were %.1f", l, last)
			break
		}
		last = *l.seconds
		time.Sleep(500 * time.Millisecond)
	}
	kafka.Restore()
	r.untilConfirmed()
	idle() // caught up

	server.Blackhole()
	r.put(5)
	r.healthTurns(s, http.StatusServiceUnavailable)
	for range 10 {
		if l := r.lag(s); l.bytes != nil && *l.bytes == 0 {
			t.Errorf("lag is 0 while the server cannot be reached: %+v", l)
		}
		time.Sleep(200 * time.Millisecond)
	}
	server.Restore()
	r.untilConfirmed()
	idle()
	r.verify()
}

// through is the rig's address by way of a proxy; the rig itself goes around it.
func (r *rig) through(proxy *testenv.Proxy) string {
	return replaceOnce(r.t, r.dsn, addressOf(r), proxy.Addr)
}

// Blackholing either end turns health red within the stall limit, with lag that
// grows or is absent; and green again without a restart of the process.
func TestC16BlackholeTurnsHealthRedAndBack(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second
	for _, end := range []string{"PostgreSQL", "Kafka"} {
		t.Run(end, func(t *testing.T) {
			inBoth(t, func(t *testing.T) {
				r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
				address := r.dsn
				if end == "PostgreSQL" {
					proxy = testenv.NewProxy(t, addressOf(r))
					address = r.through(proxy)
				}
				s := r.warm("--postgres", address, "--stall-timeout", limit.String(), "--status-interval", "1s")
				proxy.Blackhole()
				r.put(5)
				began, last := time.Now(), int64(-1)
				for red := false; !red; time.Sleep(100 * time.Millisecond) {
					l := r.lag(s)
					red = !l.healthy
					if took := time.Since(began); took > max(limit, 5*time.Second)+2*time.Second { // silence below 5 s is none
						t.Fatalf("health is green %s after the end of all answers: %+v", took, l)
					}
				}
				t.Logf("red after %s", time.Since(began).Round(100*time.Millisecond))
				r.during(2*time.Second, func() {
					switch l := r.lag(s); {
					case l.healthy:
						t.Error("health is green, and nothing has come back")
					case l.bytes != nil && (*l.bytes == 0 || *l.bytes < last):
						t.Errorf("lag went from %d to %d bytes", last, *l.bytes)
					case l.bytes != nil:
						last = *l.bytes
					}
				})
				pid := s.PID()
				proxy.Restore()
				r.healthTurns(s, http.StatusOK)
				r.untilConfirmed()
				if ended(s.Done()) || s.PID() != pid {
					t.Error("the process did not live through it")
				}
				r.verify()
			})
		})
	}
}
