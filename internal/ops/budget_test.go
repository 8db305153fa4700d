package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

const limit = 1000 // bytes of WAL

func budgeted(p *pipeline.Progress) Config {
	cfg := testConfig(p)
	cfg.MaxRetainedWAL = limit
	return cfg
}

// keeping is a pipeline that has published everything, and a slot that keeps so
// much behind what is confirmed.
func keeping(bytes int64) *pipeline.Progress {
	p := streaming()
	p.Health.WALEnd, p.Health.Confirmed, p.Received, p.Published, p.Confirmed = 50000, 50000, 50000, 50000, 50000
	p.Health.Restart = 50000 - pglogrepl.LSN(bytes)
	p.Health.Detail = &replication.SlotDetail{At: p.At}
	return p
}

// TestBudget: each mark, and that what pins the WAL is named with what a person
// does about it.
func TestBudget(t *testing.T) {
	in := func(bytes int64, change func(p *pipeline.Progress)) *pipeline.Progress {
		p := keeping(bytes)
		if change != nil {
			change(p)
		}
		return p
	}
	open := func(age time.Duration, b replication.Blocker) func(p *pipeline.Progress) {
		return func(p *pipeline.Progress) {
			if age > 0 {
				b.Since = p.At.Add(-age)
			}
			p.Health.Detail.Oldest = &b
		}
	}
	unconfirmed := func(p *pipeline.Progress) {
		p.Published, p.Confirmed, p.Health.Confirmed, p.Health.Restart = 49000, 48800, 48800, 48800
		p.InFlightEvents, p.Counters.ProgressAt = 7, p.At.Add(-30*time.Second)
	}
	for _, c := range []struct {
		name     string
		progress *pipeline.Progress
		level    string
		healthy  bool
		pinnedBy string
		remedy   string
	}{
		{"little", in(499, nil), budgetOK, true, "", ""},
		{"half", in(500, nil), budgetHalf, true, "running-xacts", ""},
		{"four fifths", in(800, nil), budgetHigh, true, "running-xacts", ""},
		{"spent", in(1000, nil), budgetSpent, false, "running-xacts", ""},
		{
			"an open transaction", in(1500, open(time.Hour, replication.Blocker{PID: 4711, User: "app", State: "idle in transaction"})),
			budgetSpent, false, "1h0m0s old: PID 4711 (app", "pg_terminate_backend(4711)",
		},
		{"one that is young", in(1500, open(time.Millisecond, replication.Blocker{PID: 4711})), budgetSpent, false, "running-xacts", ""},
		{"one that may not be looked at", in(1500, open(0, replication.Blocker{PID: 4711})), budgetSpent, false, "pg_read_all_stats", "pg_terminate_backend(4711)"},
		{
			"a prepared one", in(900, open(time.Minute, replication.Blocker{Prepared: "transfer 7"})),
			budgetHigh, true, `prepared transaction "transfer 7", 1m0s old`, "ROLLBACK PREPARED",
		},
		{"Kafka is down", in(1200, unconfirmed), budgetSpent, false, "7 rows wait for Kafka", "brokers"},
		{"catching up", in(1200, func(p *pipeline.Progress) { unconfirmed(p); p.Counters.ProgressAt = p.At }), budgetSpent, false, "catching up", "WalstreamFallingBehind"},
		{"a standby server's hold", in(1200, func(p *pipeline.Progress) {
			unconfirmed(p)
			p.Health.Detail.WaitEvent, p.Health.Detail.StandbySlots = "WaitForStandbyConfirmation", "standby_1"
		}), budgetSpent, false, "standby_1", "synchronized_standby_slots"},
		{"not streaming", in(1200, func(p *pipeline.Progress) {
			unconfirmed(p)
			p.Slot, p.Health = p.Health, replication.Health{}
			p.State, p.Reason, p.DownSince = pipeline.Waiting, "no broker answers", p.At.Add(-10*time.Second)
		}), budgetSpent, false, "no broker answers", "starts again by itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, now := budgeted(c.progress), time.Now()
			s := newStatus(cfg, c.progress, now)
			b := s.SlotHealth.Budget
			if b == nil || b.Level != c.level {
				t.Fatalf("%+v, want level %s", b, c.level)
			}
			if s.Healthy != c.healthy || !c.healthy && !strings.Contains(s.Reason, "--max-retained-wal") {
				t.Errorf("healthy %v: %s", s.Healthy, s.Reason)
			}
			if !strings.Contains(b.PinnedBy, c.pinnedBy) || (c.pinnedBy == "") != (b.PinnedBy == "") {
				t.Errorf("pinned by %q, want %q", b.PinnedBy, c.pinnedBy)
			}
			if !strings.Contains(s.SlotHealth.Remedy, c.remedy) {
				t.Errorf("remedy %q, want %q", s.SlotHealth.Remedy, c.remedy)
			}
			if !c.healthy && !strings.Contains(s.Remedy, c.remedy) {
				t.Errorf("what it is red for is the budget, its remedy %q, want %q", s.Remedy, c.remedy)
			}
		})
	}
}

// Without a limit, or while nothing is known, there is no budget and no red by it.
func TestNoBudget(t *testing.T) {
	unknown := keeping(5000)
	unknown.Health.At = unknown.At.Add(-time.Minute)
	lost := keeping(5000)
	lost.Health.Restart = 0
	for name, c := range map[string]struct {
		cfg Config
		p   *pipeline.Progress
	}{
		"no limit": {testConfig(keeping(5000)), keeping(5000)},
		"unknown":  {budgeted(unknown), unknown},
		"lost":     {budgeted(lost), lost},
	} {
		if s := newStatus(c.cfg, c.p, time.Now()); s.SlotHealth.Budget != nil || !s.Healthy {
			t.Errorf("%s: %+v, healthy %v", name, s.SlotHealth.Budget, s.Healthy)
		}
	}
}

// Each mark is told once on the way up, and the end of it once.
func TestBudgetMarks(t *testing.T) {
	var marks budgetMarks
	told := ""
	for _, kept := range []int64{100, 490, 500, 499, 501, 460, 505, 810, 799, 801, 1100, 990, 1001, 700, 450, 449, 100, 500} {
		p := keeping(kept)
		cfg := budgeted(p)
		if b := budgetOf(&cfg, p, time.Now()); marks.passed(b) {
			told += " " + b.Level
		}
	}
	if want := " half high spent ok half"; told != want {
		t.Errorf("told%s, want%s", told, want)
	}
}

// What the slot costs is told with the newest reading, streaming or not, and never
// by an old one.
func TestSlotHealthInEveryState(t *testing.T) {
	reading := func(p *pipeline.Progress) replication.Health {
		h := keeping(700).Health
		h.At = p.At
		h.Detail = &replication.SlotDetail{
			At: p.At, CatalogXminAge: 12, WalsenderState: "catchup", InactiveSince: p.At.Add(-time.Minute),
			Decoding: replication.DecodingStats{SpillTxns: 1, SpillCount: 2, SpillBytes: 3, TotalTxns: 4, TotalBytes: 5},
		}
		return h
	}
	for name, c := range map[string]struct {
		change func(p *pipeline.Progress)
		known  bool
	}{
		"streaming":                {func(p *pipeline.Progress) { p.Health = reading(p) }, true},
		"waiting":                  {func(p *pipeline.Progress) { p.State, p.Slot = pipeline.Waiting, reading(p) }, true},
		"waiting, nobody has read": {func(p *pipeline.Progress) { p.State = pipeline.Waiting }, false},
		"waiting, an old reading": {func(p *pipeline.Progress) {
			p.State, p.Slot = pipeline.Waiting, reading(p)
			p.Slot.At = p.At.Add(-time.Minute)
		}, false},
		"streaming, blind": {func(p *pipeline.Progress) { p.Slot = reading(p); p.Health.At = p.At.Add(-time.Minute) }, false},
	} {
		p := streaming()
		c.change(p)
		h, families := newStatus(testConfig(p), p, time.Now()).SlotHealth, gather(t, p)
		if (h.RetainedBytes != nil) != c.known || (families["walstream_slot_retained_bytes"] != nil) != c.known {
			t.Errorf("%s: retained %v, want it known: %v", name, h.RetainedBytes, c.known)
		}
		if !c.known {
			continue
		}
		if h.Decoding == nil || h.Decoding.SpilledBytes != 3 || *h.CatalogXminAge != 12 || h.WalsenderState != "catchup" || h.InactiveSince.IsZero() {
			t.Errorf("%s: %+v", name, h)
		}
		for metric, want := range map[string]float64{
			"walstream_slot_catalog_xmin_age_transactions": 12, "walstream_slot_inactive_seconds": 60,
			"walstream_slot_spilled_transactions_total": 1, "walstream_slot_spills_total": 2, "walstream_slot_spilled_bytes_total": 3,
			"walstream_slot_decoded_transactions_total": 4, "walstream_slot_decoded_bytes_total": 5,
		} {
			m := families[metric]
			if m == nil {
				t.Errorf("%s: no %s", name, metric)
				continue
			}
			if got := m.GetMetric()[0].GetGauge().GetValue() + m.GetMetric()[0].GetCounter().GetValue(); got != want {
				t.Errorf("%s: %s %v, want %v", name, metric, got, want)
			}
		}
	}
}
