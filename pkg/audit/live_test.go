package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
)

// want compares the numbers that a test says something about.
func want(t *testing.T, got *Result, numbers map[string]int64, v Verdict) {
	t.Helper()
	all := map[string]int64{
		"rows": got.Rows, "found": got.Found, "missing": got.Missing, "duplicates": got.Duplicates, "allowed": got.DuplicatesAllowed,
		"reordered": got.Reordered, "torn": got.Torn, "altered": got.Altered, "not due": got.NotDue, "without row": got.WithoutRow,
		"forgotten": got.Forgotten, "hidden": got.Hidden, "foreign": got.Foreign, "older": got.Older,
		"put aside": got.PutAside, "retried": got.Retried,
	}
	for name, n := range all {
		if n != numbers[name] {
			t.Errorf("%s: %d, want %d", name, n, numbers[name])
		}
	}
	if got.Verdict != v {
		t.Errorf("verdict %s, want %s", got.Verdict, v)
	}
	if t.Failed() {
		t.Fatalf("\n%s", got.Table())
	}
}

func TestEveryTable(t *testing.T) {
	for _, kind := range []string{"ours", "bank_outbox", "no event id"} {
		t.Run(kind, func(t *testing.T) { everyTable(newRig(t, kind)) })
	}
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("partitioned on %d", major), func(t *testing.T) { everyTable(newRigOn(t, "partitioned", major)) })
	}
}

func everyTable(r *rig) {
	t := r.t
	s := r.stream()
	for _, n := range []int{1, 30, 1, 200, 1} {
		r.put(n)
	}
	result := r.audit(nil)
	want(t, result, map[string]int64{"rows": 233, "found": 233}, Clean)
	t.Logf("\n%s", result.Table())

	// Retention deletes: nothing is wrong with that.
	table := kinds[r.kind].mapping.Table
	r.exec("DELETE FROM " + table + " WHERE ctid IN (SELECT ctid FROM ONLY " + table + " LIMIT 10)")
	deleted := 233 - r.count()
	want(t, r.audit(nil), map[string]int64{"rows": 233 - deleted, "found": 233 - deleted, "without row": deleted}, Clean)

	// Stopped: what is written now is not due, and nobody waits for it.
	r.check(s.Stop(20 * time.Second))
	r.put(3)
	began := time.Now()
	result = r.audit(func(cfg *Config) {
		if cfg.Wait = time.Second; r.kind == "ours" {
			cfg.Wait = time.Minute
		}
	})
	want(t, result, map[string]int64{"rows": 236 - deleted, "found": 233 - deleted, "without row": deleted, "not due": 3}, Undecided)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("waited %s for a checkpoint that nobody moves", took)
	}
}

// TestLive: audits while rows are written and streamed find nothing missing.
func TestLive(t *testing.T) {
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			r := newRig(t, "bank_outbox") // one topic: ordinals without a gap are proved too
			r.stream("--delivery=" + delivery)
			ctx, stop := context.WithCancel(r.ctx)
			written := make(chan int, 2)
			for range cap(written) {
				conn, err := pgx.Connect(ctx, r.dsn)
				r.check(err)
				defer func() { _ = conn.Close(context.Background()) }()
				go func() {
					n := 0
					for i := 0; ctx.Err() == nil; i++ {
						size := 1 + i%17*(i%3)
						if _, err := conn.Exec(ctx, kinds[r.kind].insert, size, r.topic); err == nil {
							n += size
						}
					}
					written <- n
				}()
			}
			last := int64(-1)
			for range 5 {
				result := r.audit(nil)
				if result.Verdict != Clean || result.Found != result.Rows || result.Rows <= last || result.Holes != 0 {
					t.Errorf("verdict %s with %d rows, before it %d\n%s", result.Verdict, result.Rows, last, result.Table())
				}
				last = result.Rows
			}
			stop()
			t.Logf("%d rows written", <-written+<-written)
		})
	}
}

// TestKilled: what a kill makes it send again is allowed in at-least-once, and is
// not there in exactly-once.
func TestKilled(t *testing.T) {
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			r := newRig(t, "bank_outbox")
			for range 4 {
				s := r.stream("--delivery=" + delivery)
				for range 30 {
					r.put(50)
				}
				s.Kill()
			}
			r.stream("--delivery=" + delivery)
			result := r.audit(nil)
			if n := r.count(); result.Verdict != Clean || result.Found != n || result.Unexplained() != 0 || result.Holes != 0 {
				t.Errorf("%d rows\n%s", n, result.Table())
			}
			t.Logf("%d duplicates", result.Duplicates)
			if delivery == "exactly-once" && result.Duplicates != 0 {
				t.Errorf("%d duplicates", result.Duplicates)
			}
		})
	}
}

// TestPlanted: each fault, planted into a copy of what walstream published, is
// found and named.
func TestPlanted(t *testing.T) {
	r := newRig(t, "bank_outbox")
	r.stream()
	for _, n := range []int{1, 21, 1, 1, 42} {
		r.put(n)
	}
	r.published()
	records := r.records()
	rows := r.count()
	// The longest partition has several of each key and of the large transactions.
	slices.SortFunc(records, func(a, b []*kgo.Record) int { return len(b) - len(a) })
	for _, c := range []struct {
		name    string
		plant   func(all []*kgo.Record) []*kgo.Record
		numbers map[string]int64
		says    string
	}{
		{"nothing", func(all []*kgo.Record) []*kgo.Record { return all }, map[string]int64{"found": rows}, ""},
		{
			"one of many is missing", func(all []*kgo.Record) []*kgo.Record { return slices.Delete(all, 5, 6) },
			map[string]int64{"found": rows - 1, "missing": 1, "torn": 1},
			"missing: public.bank_outbox, row " + eventID(records[0][5]),
		},
		{
			"twice", func(all []*kgo.Record) []*kgo.Record { return append(all, all[3]) },
			map[string]int64{"found": rows, "duplicates": 1},
			"duplicate",
		},
		{"swapped", func(all []*kgo.Record) []*kgo.Record {
			i, j := sameKey(all)
			all[i], all[j] = all[j], all[i]
			return all
		}, map[string]int64{"found": rows, "reordered": 1}, "reordered"},
		{"altered", func(all []*kgo.Record) []*kgo.Record {
			other := *all[4]
			other.Value = []byte("{}")
			all[4] = &other
			return all
		}, map[string]int64{"found": rows, "altered": 1}, "altered: public.bank_outbox, row " + eventID(records[0][4])},
		{
			"somebody else's", func(all []*kgo.Record) []*kgo.Record { return append(all, &kgo.Record{Value: []byte("x")}) },
			map[string]int64{"found": rows, "foreign": 1},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			topic := r.topic + "-" + strings.ReplaceAll(c.name, " ", "-")
			topic = strings.ReplaceAll(topic, "'", "")
			r.createTopic(topic)
			r.write(topic, c.plant(slices.Clone(records[0]))...)
			r.write(topic, records[1]...)
			r.write(topic, records[2]...)
			result := r.audit(func(cfg *Config) { cfg.Mapping[0].Topic = topic })
			v := Difference
			if c.says == "" {
				v = Clean
			}
			c.numbers["rows"] = rows
			want(t, result, c.numbers, v)
			if said := strings.Join(result.Examples, "\n"); !strings.Contains(said, c.says) {
				t.Errorf("said %q, want %q", said, c.says)
			}
		})
	}
}

func eventID(rec *kgo.Record) string { return headerOf(rec, outbox.HeaderEventID) }

func headerOf(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// sameKey finds two neighbours of one key.
func sameKey(all []*kgo.Record) (i, j int) {
	last := map[string]int{}
	for j, rec := range all {
		if i, ok := last[string(rec.Key)]; ok {
			return i, j
		}
		last[string(rec.Key)] = j
	}
	return 0, 0
}
