package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
)

// retained is what /status says of retention.
type retained struct {
	Deleted int64  `json:"rows_deleted"`
	Stamped int64  `json:"rows_stamped"`
	Dropped int64  `json:"partitions_dropped"`
	Oldest  string `json:"oldest_row"`
	Passed  string `json:"passed_at"`
	Waits   string
	Error   string
}

func (r *rig) retained(s *service.Service) (found retained) {
	r.t.Helper()
	_, body, err := s.Get(r.ctx, "/status")
	if err != nil {
		return found
	}
	var status struct{ Retention *retained }
	r.check(json.Unmarshal(body, &status))
	if status.Retention == nil {
		r.t.Fatalf("no retention in %s", body)
	}
	return *status.Retention
}

// Retention deletes, and stamps, no row that is not published, beside the stream of
// the very process that is killed again and again: while rows are written that look
// old the moment they are, in transactions that stay open for a while.
func TestRetentionRaces(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"delete": {"--retention", "24h", "--retention-interval", "1s"},
		"stamp":  {"--stamp", "published_at", "--retention-interval", "1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBoth(t, func(t *testing.T) {
				r := sharedRig(t)
				r.exec(`ALTER TABLE bank_outbox ADD published_at timestamptz`)
				r.noteGone()
				rnd := r.seeded()
				s := r.warm(args...)
				stop := r.writeOldRows(rnd.Uint64())
				worked, kills := 0, 0
				for end := time.Now().Add(scaled(100 * time.Second)); time.Now().Before(end); kills++ {
					time.Sleep(time.Duration(1500+rnd.IntN(2500)) * time.Millisecond)
					if found := r.retained(s); found.Deleted+found.Stamped > 0 {
						worked++
					}
					s.Kill()
					s = r.stream(args...)
				}
				stop()
				r.put(1) // of today
				r.untilConfirmed()
				left := func() (old, unstamped int) {
					r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FILTER (WHERE created_at < now() - interval '1 day'), count(*) FILTER (WHERE published_at IS NULL) FROM bank_outbox`).Scan(&old, &unstamped))
					return old, unstamped
				}
				r.until("the last rows", func() bool {
					old, unstamped := left()
					return name == "delete" && old == 0 || name == "stamp" && unstamped == 0
				})
				r.verifyAgainst(`SELECT id::text FROM ever UNION SELECT id::text FROM bank_outbox`)
				r.verifyGone()
				if t.Logf("%d kills, after %d of them something had been done", kills, worked); worked == 0 {
					t.Error("retention did nothing meanwhile: the case proves nothing")
				}
				if found := r.retained(s); found.Error != "" {
					t.Errorf("%+v", found)
				}
			})
		})
	}
}

// Retention never touches the stream: what it may not do is named by check, in
// /status, in metrics and the log, and rows go on being published. A standby instance
// does nothing.
func TestRetentionWithoutRights(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox ADD published_at timestamptz`)
	r.exec(putSQL, 100)
	r.exec(`UPDATE bank_outbox SET created_at = now() - interval '10 days'`)
	role := "keeper_" + r.slot[max(0, len(r.slot)-20):]
	r.exec(fmt.Sprintf(`CREATE ROLE %[1]s LOGIN REPLICATION PASSWORD 'x'; GRANT pg_read_all_stats TO %[1]s`, role))
	t.Cleanup(func() {
		_, _ = r.db.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role))
	})
	r.exec(`CREATE PUBLICATION ` + r.slotsPublication() + ` FOR TABLE bank_outbox WITH (publish = 'insert')`)
	args := []string{"--postgres", r.loginAs(role, "x", nil), "--retention", "7d", "--stamp", "published_at", "--retention-interval", "1s"}
	out, code := r.command([]string{"check"}, args...)
	grant := fmt.Sprintf(`GRANT SELECT, DELETE, UPDATE ("published_at") ON "public"."bank_outbox" TO "%s";`, role)
	if code != 8 || !strings.Contains(out, grant) {
		t.Errorf("exit code %d, want 8 and %s\n%s", code, grant, out)
	}
	s := r.warm(args...)
	r.until("the missing right in /status", func() bool { return strings.Contains(r.retained(s).Error, "SELECT, DELETE") })
	r.put(10)
	r.untilConfirmed()
	if _, body, err := s.Get(r.ctx, "/metrics"); err != nil || !strings.Contains(string(body), "walstream_retention_failing{pipeline=\""+r.pipeline+"\"} 1") {
		t.Errorf("metrics say nothing of it (%v)", err)
	}
	standby := r.start(args...)
	_, err := standby.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.exec(grant)
	r.exec(`CREATE INDEX ON bank_outbox (created_at)`)
	r.until("retention to work", func() bool {
		found := r.retained(s)
		return found.Deleted == 100 && found.Stamped >= 100 && found.Error == "" && found.Oldest != ""
	})
	if found := r.retained(standby); found.Deleted != 0 || !strings.Contains(found.Waits, "standby") {
		t.Errorf("the standby instance: %+v", found)
	}
	if out, code := r.command([]string{"check"}, args...); code != 0 || !strings.Contains(out, "ok    retention") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	r.verifyAgainst(`SELECT id::text FROM bank_outbox`)
}

// Partitions of what is old and published are detached and dropped, by time and by
// id, beside the stream, which goes on: while a writer writes to all of them, also in
// transactions that stay open, and the process is killed. The default partition and
// those that new rows come to stay; rows of the default partition are deleted.
func TestRetentionDropsPartitions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ column, left string }{ // by time the bound must be old, by id every row
		"by time": {"created_at", "part3 part4 part5 rest"},
		"by id":   {"seq", "part4 part5 rest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBoth(t, func(t *testing.T) { retentionDropsPartitions(t, c.column, c.left) })
		})
	}
}

func retentionDropsPartitions(t *testing.T, column, left string) {
	r := sharedRig(t)
	r.exec(`CREATE TABLE ever (id uuid PRIMARY KEY); ALTER TABLE bank_outbox RENAME TO plain`)
	r.exec(`CREATE TABLE bank_outbox (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (id, ` + column + `)) PARTITION BY RANGE (` + column + `);
		CREATE TABLE rest PARTITION OF bank_outbox DEFAULT`)
	const partitions = 6
	for n := range partitions { // the last one takes what is new
		from, to := fmt.Sprint(n*100), fmt.Sprint((n+1)*100)
		if column == "created_at" {
			from, to = r.day(n-partitions+1), r.day(n-partitions+2)
		}
		r.exec(fmt.Sprintf(`CREATE TABLE part%d PARTITION OF bank_outbox FOR VALUES FROM ('%s') TO ('%s')`, n, from, to))
	}
	args := []string{"--retention", "48h", "--retention-interval", "1s", "--drop-partitions", "true"}
	s := r.stream()
	insert := func(ctx context.Context, conn *pgx.Conn, seq int, at string) error {
		_, err := conn.Exec(ctx, `WITH i AS (INSERT INTO bank_outbox (seq, aggregate_type, aggregate_id, event_type, payload, created_at)
			VALUES ($1::int, 'account', 'acc-' || $1::int % 7, 'x', '{}', $2::text::timestamptz) RETURNING id) INSERT INTO ever SELECT id FROM i`, seq, at)
		return err
	}
	for n := range partitions {
		for i := range 20 {
			r.check(insert(r.ctx, r.db, n*100+i, r.day(n-partitions+1)))
		}
	}
	r.check(insert(r.ctx, r.db, 9999, r.day(-40))) // into the default partition, by time and by id
	r.untilConfirmed()
	s.Kill()
	// A transaction stays open that has written to an old partition: it is neither
	// dropped nor does it hold up others.
	open := r.connect()
	_, err := open.Exec(r.ctx, "BEGIN")
	r.check(err)
	r.check(insert(r.ctx, open, 50, r.day(-partitions+1)))
	s = r.stream(args...)
	today := r.day(0)
	stop := r.repeating(func(ctx context.Context, conn *pgx.Conn, n int) error {
		return insert(ctx, conn, 500+n%100, today) // and the last one by id
	})
	time.Sleep(scaled(30 * time.Second))
	r.partitionsAre("part0 part1 part2 part3 part4 part5 rest")
	s.Kill()
	_, err = open.Exec(r.ctx, "COMMIT")
	r.check(err)
	for gone := 0; gone < 3; { // killed on the way
		s = r.stream(args...)
		r.until("something to be dropped", func() bool {
			gone = partitions - r.number(`SELECT count(*) FROM pg_class WHERE relname ~ '^part[0-9]$'`)
			return gone >= 3 || r.retained(s).Dropped > 0
		})
		s.Kill()
	}
	s = r.stream(args...)
	r.until("all that is old to be gone", func() bool {
		return r.number(`SELECT count(*) FROM pg_class WHERE relname ~ '^part[0-9]$'`) == len(strings.Fields(left))-1 && r.number(`SELECT count(*) FROM rest`) == 0
	})
	stop()
	r.partitionsAre(left)
	r.untilConfirmed()
	if duplicates := r.verifyAgainst(`SELECT id::text FROM ever`); r.delivery == exactlyOnce && duplicates > 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v)", status.Restarts, err)
	}
	if found := r.retained(s); found.Error != "" {
		t.Errorf("%+v", found)
	}
}

// number is what a query of one comes to.
func (r *rig) number(sql string) (n int) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, sql).Scan(&n))
	return n
}

// day is the begin of a day, by the server's clock, from today on.
func (r *rig) day(n int) (text string) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, `SELECT (date_trunc('day', now()) + $1::int * interval '1 day')::text`, n).Scan(&text))
	return text
}

func (r *rig) partitionsAre(want string) {
	r.t.Helper()
	var got string
	r.check(r.db.QueryRow(r.ctx, `SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'bank_outbox'::regclass`).Scan(&got))
	if got != want {
		r.t.Errorf("partitions are %s, want %s", got, want)
	}
}
