package sink

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/history"
)

// published is what a test sent: the truth that history is held against.
type published struct {
	commit, end pglogrepl.LSN
	id          int64
}

// instance starts a sink from the durable checkpoint, as a start does.
func instance(t *testing.T, cfg Config, delivery string) *running {
	t.Helper()
	c := claim(t, open(t, cfg))
	record, found, err := c.Load(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	base := baseRecord(cfg.Pipeline)
	edge := record.Edge()
	if !found {
		edge = checkpoint.Edge{Covered: 1000}
		if err := c.Write(within(t, 20*time.Second), base.With(edge)); err != nil {
			t.Fatal(err)
		}
	}
	var r *running
	if delivery == "exactly-once" {
		s := c.NewTransactional(base, TransactionalOptions{})
		t.Cleanup(s.Close)
		r = drive(t, s)
	} else {
		s := c.NewIdempotent(base)
		t.Cleanup(s.Close)
		r = drive(t, s)
	}
	r.ledger, r.lsn = newLedgerAt(edge, cfg), int(edge.Covered)
	return r
}

func verifyHistory(t *testing.T, cfg Config, rows []published) []history.Bucket {
	t.Helper()
	buckets, err := open(t, cfg).History(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	record, _, err := open(t, cfg).Load(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	from, to := history.Reach(buckets)
	if from != 1000 || to != record.Covered {
		t.Fatalf("history reaches from %s to %s, the checkpoint to %s: %+v", from, to, record.Covered, buckets)
	}
	for x := from; x < to; x += 7 {
		bounds, err := history.Least(buckets, x)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.end <= to && row.commit >= x && (len(bounds) != 1 || !bounds[0].HasIDs || bounds[0].Least > row.id || bounds[0].Greatest < row.id) {
				t.Fatalf("row %d was committed at %s, beyond %s: %+v", row.id, row.commit, x, bounds)
			}
		}
	}
	var counted, covered uint64
	for i := range buckets {
		counted += buckets[i].Rows()
	}
	for _, row := range rows {
		if row.end <= to {
			covered++
		}
	}
	if counted != covered {
		t.Fatalf("history counts %d rows, the checkpoint covers %d", counted, covered)
	}
	return buckets
}

// Instances that end anywhere leave no hole behind, and count no row twice.
func TestHistoryAgreesWithWhatWasPublished(t *testing.T) {
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			_, brokers := testenv.NewKfake(t)
			cfg := testConfig(t, brokers)
			cfg.HistoryRetention = 24 * time.Hour
			topic := createTopic(t, brokers, 3, nil)
			random := rand.New(rand.NewPCG(7, 7))
			var all []published
			for run := range 4 {
				r := instance(t, cfg, delivery)
				for n := range 40 {
					value := "v"
					if run == 2 {
						value = strings.Repeat("v", 900_000) // a bucket ends by its volume
						r.until("there is room", func() bool { return !r.ledger.Full() })
					}
					r.begin()
					for range 1 + random.IntN(3) {
						e := event(topic, "", value, r.lsn)
						e.Table, e.ID, e.Numbered = "public.outbox", int64(run*1000+n-random.IntN(30)), true
						all = append(all, published{pglogrepl.LSN(r.lsn - 8), pglogrepl.LSN(r.lsn), e.ID})
						r.row(e)
					}
					r.end()
					r.drain()
				}
				if run != 1 {
					r.untilConfirmed()
				}
				r.close()
				record, _, err := open(t, cfg).Load(within(t, 20*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(all); i++ { // those behind come again, in this model with other ids
					if all[i].end > record.Covered {
						all = all[:i]
					}
				}
				verifyHistory(t, cfg, all)
			}
			buckets := verifyHistory(t, cfg, all)
			if len(buckets) < 2 || buckets[0].Unfinished || !buckets[len(buckets)-1].Unfinished {
				t.Errorf("%d buckets: %+v", len(buckets), buckets)
			}
		})
	}
}

// What is begun from another place than the checkpoint says has a hole before it.
func TestHistoryHasAHoleWhereRowsWerePassedOver(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	cfg := testConfig(t, brokers)
	cfg.HistoryRetention = 24 * time.Hour
	topic := createTopic(t, brokers, 1, nil)
	r := instance(t, cfg, "exactly-once")
	e := event(topic, "", "v", 1)
	e.Table, e.ID, e.Numbered = "public.outbox", 5, true
	r.transaction(e)
	r.untilConfirmed()
	r.close()
	c := claim(t, open(t, cfg))
	if _, _, err := c.Load(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(within(t, 20*time.Second), baseRecord(cfg.Pipeline).With(checkpoint.Edge{Covered: 5000})); err != nil {
		t.Fatal(err)
	}
	c.Close()
	again := instance(t, cfg, "exactly-once")
	e.ID = 9
	again.transaction(e)
	again.untilConfirmed()
	buckets, err := open(t, cfg).History(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if len(buckets) != 2 || buckets[0].From != 1000 || buckets[0].To != 1016 || buckets[1].From != 5000 || !buckets[1].Unfinished {
		t.Fatalf("%+v", buckets)
	}
	if _, err := history.Least(buckets, 1010); err == nil {
		t.Error("the hole is not seen")
	}
}

func TestHistoryTopicIsMadeAndProved(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	cfg := testConfig(t, brokers)
	claim(t, open(t, cfg)).Close()
	if topics, _, err := open(t, cfg).OwnTopics(within(t, 20*time.Second)); err != nil || len(topics) != 1 {
		t.Fatalf("without history: %v %v", topics, err)
	}
	cfg.HistoryRetention = 36 * time.Hour
	claim(t, open(t, cfg)).Close()
	k := open(t, cfg)
	values, _, err := k.configs(within(t, 20*time.Second), []string{cfg.historyTopic()}, settingCleanup, settingRetention)
	if err != nil || values[cfg.historyTopic()][settingCleanup] != "delete" || values[cfg.historyTopic()][settingRetention] != "129600000" {
		t.Fatalf("%v %v", values, err)
	}
	other := testConfig(t, brokers)
	other.HistoryRetention = time.Hour
	createNamed(t, brokers, other.historyTopic(), 1, map[string]string{settingCleanup: cleanupCompact})
	_, err = claimIn(within(t, 20*time.Second), open(t, other))
	mustContain(t, err, "cleanup.policy=compact", "--history-retention 0s")
	wide := testConfig(t, brokers)
	wide.HistoryRetention = time.Hour
	createNamed(t, brokers, wide.historyTopic(), 2, nil)
	_, err = claimIn(within(t, 20*time.Second), open(t, wide))
	mustContain(t, err, "has 2 partitions", "--history-retention 0s")
}

// What history adds to a row, and in at-least-once to a transaction, allocates nothing.
func TestHistoryAllocatesNothing(t *testing.T) {
	e := event("t", "k", "v", 1)
	e.Table, e.ID, e.Numbered = "public.outbox", 7, true
	lsn := pglogrepl.LSN(1000)
	d := &ended{recorder: history.NewRecorder(history.Identity{}, lsn)}
	transaction := func() {
		lsn += 16
		d.take(e)
		d.take(e)
		d.end(checkpoint.Edge{Covered: lsn, CommitLSN: lsn - 8})
	}
	for range 100 {
		transaction()
	}
	d.covered(checkpoint.Edge{Covered: lsn})
	if n := testing.AllocsPerRun(1000, func() {
		transaction()
		d.covered(checkpoint.Edge{Covered: lsn - 160})
	}); n != 0 {
		t.Errorf("at-least-once: %v allocations a transaction of two rows", n)
	}
	r := &row{table: "public.outbox", id: 7, numbered: true, begun: &checkpoint.Edge{}}
	c := &tally{recorder: history.NewRecorder(history.Identity{}, 1000)}
	c.take(r)
	if n := testing.AllocsPerRun(1000, func() { c.take(r) }); n != 0 {
		t.Errorf("exactly-once: %v allocations a row", n)
	}
}
