package cases

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The first start: with --snapshot never rows committed after the slot exists are
// published, with initial all rows, each once, while others are inserted and
// deleted and the process is killed again and again; the switch to the stream needs
// no restart.
func TestC37FirstStart(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		r.exec(putSQL, 250_000)
		if full() {
			r.exec(putSQL, 1_850_000)
		}
		stop := r.churn()
		s := r.start("--snapshot", "initial")
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		t.Logf("seed %d", seed)
		kills, resumed := 0, 0
		for range 8 {
			r.until("the snapshot", func() bool {
				return strings.Contains(s.Log(), "snapshot: publishing") || strings.Contains(s.Log(), `"streaming"`)
			})
			time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
			s.Kill()
			if !strings.Contains(s.Log(), "snapshot: complete") && !strings.Contains(s.Log(), `"streaming"`) {
				kills++
			}
			if !strings.Contains(s.Log(), `"rows_published":0,`) && strings.Contains(s.Log(), "snapshot: publishing") {
				resumed++
			}
			s = r.start("--snapshot", "initial")
		}
		r.check(s.WaitStreaming(r.ctx))
		stop()
		r.put(10)
		r.untilConfirmed()
		duplicates, records := r.verifyChurned()
		t.Logf("killed %d times inside the snapshot, resumed it %d times, %d records, %d duplicates", kills, resumed, records, duplicates)
		if kills == 0 || resumed == 0 {
			t.Error("so few kills prove nothing")
		}
	})
}

// verifyChurned: every row that is left was published, and in exactly-once none
// twice. Per key, first appearances stand in the order of positions; in
// at-least-once those of the snapshot in that of the primary key, since a crash may
// give rows other positions.
func (r *rig) verifyChurned() (duplicates, records int) {
	r.t.Helper()
	rows, err := r.db.Query(r.ctx, `SELECT id::text FROM bank_outbox`)
	r.check(err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	r.check(err)
	seen, last := map[string]bool{}, map[string]string{}
	r.markersWritten(r.topic)
	for _, rec := range r.published() {
		records++
		id, position, key := header(rec, "walstream-event-id"), header(rec, "walstream-position"), string(rec.Key)
		if seen[id] {
			duplicates++
			continue
		}
		place := position
		if r.delivery == atLeastOnce && strings.HasPrefix(position, "00000001-0000000000") { // a page
			place = "00000001-0000000000" + id
		}
		if seen[id] = true; place <= last[key] {
			r.t.Errorf("key %s: position %s first appears after %s", key, place, last[key])
		}
		last[key] = place
	}
	missing := 0
	for _, id := range left {
		if !seen[id] {
			missing++
		}
	}
	if missing > 0 || duplicates > 0 && r.delivery == exactlyOnce {
		r.t.Errorf("of %d rows %d are missing; %d of %d records are duplicates", len(left), missing, duplicates, records)
	}
	return duplicates, records
}

// churn inserts, and deletes rows old and new, until it is stopped.
func (r *rig) churn() (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	conn, err := pgx.Connect(r.ctx, r.dsn)
	r.check(err)
	var done sync.WaitGroup
	done.Go(func() {
		defer func() { _ = conn.Close(context.Background()) }()
		for n := 0; ctx.Err() == nil; n++ {
			if _, err := conn.Exec(ctx, putSQL, 1+n%5); err != nil && ctx.Err() == nil {
				r.t.Error(err)
				return
			}
			if _, err := conn.Exec(ctx, `DELETE FROM bank_outbox WHERE id IN (SELECT id FROM bank_outbox WHERE id > gen_random_uuid() ORDER BY id LIMIT 1)`); err != nil && ctx.Err() == nil {
				r.t.Error(err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() { cancel(); done.Wait() }
}

// Any key a table may have, in the order that PostgreSQL gives it; by the root of a
// partitioned table; only the rows that were asked for; and what cannot be read is
// named before anything is made.
func TestSnapshotOfAnyTable(t *testing.T) {
	t.Parallel()
	const rest = `, aggregate_id text, payload jsonb, headers jsonb`
	for name, c := range map[string]struct {
		table string // SQL that makes bank_outbox
		fill  string // of column id and what else the key has
		args  []string
		want  int
	}{
		"bigint":    {`id bigint PRIMARY KEY` + rest + `)`, `SELECT i FROM generate_series(-500, 499) i`, nil, 1000},
		"text":      {`id text PRIMARY KEY` + rest + `)`, `SELECT 'É' || chr(33 + i % 90) || '''"\' || i FROM generate_series(1, 1000) i`, nil, 1000},
		"numeric":   {`id numeric PRIMARY KEY` + rest + `)`, `SELECT i / 7.0 FROM generate_series(1, 1000) i`, nil, 1000},
		"timestamp": {`id timestamptz PRIMARY KEY` + rest + `)`, `SELECT '0044-03-15 BC'::timestamptz + i * interval '1000 years' FROM generate_series(1, 100) i`, nil, 100},
		"bytea":     {`id bytea PRIMARY KEY` + rest + `)`, `SELECT decode(lpad(to_hex(i), 8, '0'), 'hex') FROM generate_series(1, 1000) i`, nil, 1000},
		"composite": {
			`id text COLLATE "C", "Part 2" int, aggregate_id text, payload jsonb, headers jsonb, PRIMARY KEY ("Part 2", id))`,
			`SELECT 'k' || i % 10, i / 10 FROM generate_series(0, 999) i`, nil, 1000,
		},
		"partitioned": {
			`id int PRIMARY KEY` + rest + `) PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF bank_outbox FOR VALUES FROM (0) TO (500);
			 CREATE TABLE high PARTITION OF bank_outbox FOR VALUES FROM (500) TO (1000)`, `SELECT i FROM generate_series(0, 999) i`, nil, 1000,
		},
		"where":       {`id int PRIMARY KEY` + rest + `)`, `SELECT i FROM generate_series(1, 1000) i`, []string{"--snapshot-where", "id % 10 = 0 -- tenths"}, 100},
		"no key":      {`id int` + rest + `)`, `SELECT 1`, nil, -1},
		"no event id": {`id int PRIMARY KEY` + rest + `)`, `SELECT 1`, []string{"--id-column", unset}, -1},
		"bad where": {
			`id int PRIMARY KEY` + rest + `)`, `SELECT 1`, []string{"--snapshot-where", "published_at IS NULL"}, -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sharedRig(t)
			r.exec(`DROP TABLE bank_outbox`)
			r.exec(`CREATE TABLE bank_outbox (` + c.table)
			columns := "id"
			if name == "composite" {
				columns = `id, "Part 2"`
			}
			r.exec(`INSERT INTO bank_outbox (` + columns + `) ` + c.fill)
			r.exec(`UPDATE bank_outbox SET payload = '{}', aggregate_id = 'a'`)
			s := r.start(append([]string{"--snapshot", "only"}, c.args...)...)
			code := r.ends(s, time.Minute)
			if c.want < 0 {
				var made int
				r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&made))
				if code != 3 || made != 0 || !strings.Contains(s.Log(), "--snapshot") {
					t.Errorf("exit code %d, %d slots\n%s", code, made, s.Log())
				}
				return
			}
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, s.Log())
			}
			r.markersWritten(r.topic)
			ids := map[string]bool{}
			for _, rec := range r.published() {
				ids[header(rec, "walstream-event-id")+string(rec.Key)+header(rec, "walstream-position")] = true
			}
			if len(ids) != c.want {
				t.Errorf("%d records, want %d\n%s", len(ids), c.want, s.Log())
			}
			s = r.stream() // from the slot on
			r.exec(`INSERT INTO bank_outbox SELECT (jsonb_populate_record(b, '{"aggregate_id": "b"}')).* FROM bank_outbox b WHERE false`)
			r.untilConfirmed()
			if got := len(r.published()); got != c.want {
				t.Errorf("%d records behind the start, want %d", got, c.want)
			}
			s.Kill()
		})
	}
}

// A bad row of a snapshot is decided as any other, and walstream skip lets it pass
// by the position that the message names.
func TestSnapshotWithBadRows(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		r.put(600)
		r.exec(`UPDATE bank_outbox SET headers = '[1]' WHERE seq = 300`)
		s := r.start("--snapshot", "initial")
		if code := r.ends(s, time.Minute); code != 6 {
			t.Fatalf("exit code %d, want 6\n%s", code, s.Log())
		}
		if out, code := r.command([]string{"skip", "--yes", "--position", positionIn(t, s.Log())}); code != 0 {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		s = r.stream("--snapshot", "initial")
		r.put(5)
		r.untilConfirmed()
		r.markersWritten(r.topic)
		if got := len(r.published()); got < 604 || r.delivery == exactlyOnce && got != 604 {
			t.Errorf("%d records, want 604\n%s", got, s.Log())
		}
	})
}
