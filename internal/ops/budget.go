package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

// budget is --max-retained-wal against what the server keeps for the slot.
type budget struct {
	LimitBytes int64   `json:"limit_bytes"`
	Used       float64 `json:"used"` // 1 is all of it
	Level      string  `json:"level"`
	PinnedBy   string  `json:"pinned_by,omitempty"` // from half of it on
	Remedy     string  `json:"-"`

	kept int64
}

// Levels of a budget. Beyond spent nothing is given up: that is the server's to
// decide, by max_slot_wal_keep_size. It is red so that a person comes before.
const (
	budgetOK    = "ok"
	budgetHalf  = "half"
	budgetHigh  = "high"
	budgetSpent = "spent"
)

var budgetLevels = []struct {
	from float64
	name string
}{{0, budgetOK}, {0.5, budgetHalf}, {0.8, budgetHigh}, {1, budgetSpent}}

// budgetOf is nil without a limit, or while what is kept is not known.
func budgetOf(cfg *Config, p *pipeline.Progress, now time.Time) *budget {
	kept := retained(p, now)
	if cfg.MaxRetainedWAL <= 0 || kept == nil {
		return nil
	}
	b := &budget{LimitBytes: cfg.MaxRetainedWAL, Used: float64(*kept) / float64(cfg.MaxRetainedWAL), kept: *kept}
	for _, level := range budgetLevels {
		if b.Used >= level.from {
			b.Level = level.name
		}
	}
	if b.Level != budgetOK {
		h, _ := p.SlotHealth(now)
		b.PinnedBy, b.Remedy = pinned(p, &h, now)
	}
	return b
}

func (b *budget) text() string {
	text := fmt.Sprintf("the server keeps %s of WAL for the slot, %.0f %% of --max-retained-wal", humanize.IBytes(uint64(b.kept)), 100*b.Used)
	if b.PinnedBy != "" {
		text += ": " + b.PinnedBy
	}
	return text
}

// old is how long a transaction must have been open to be called a pin: shorter
// ones come and go.
const old = time.Second

// pinned names what keeps the WAL, and what a person does about it. What is not
// confirmed is ours, or a standby server's; what is kept behind the confirmed
// position is an old transaction's.
func pinned(p *pipeline.Progress, h *replication.Health, now time.Time) (by, remedy string) {
	behind := distance(h.Confirmed, h.WALEnd)
	if unconfirmed := behind > distance(h.Restart, h.Confirmed); unconfirmed {
		why, what := cause(p)
		size := humanize.IBytes(uint64(behind))
		switch d := h.Detail; {
		case p.Snapshot != nil:
			return "the snapshot under way: the slot keeps all WAL from its begin", "It is let go of when the snapshot is done; snapshot in /status says how far it is."
		case d.WaitsForStandby():
			return fmt.Sprintf("%s are not sent to us: the server waits for the standby servers of synchronized_standby_slots (%s)", size, d.StandbySlots),
				"See that those standby servers run and keep up, or take one that is gone out of synchronized_standby_slots (ALTER SYSTEM, then SELECT pg_reload_conf())."
		case p.State == pipeline.Streaming && p.Stalled(now) < time.Second:
			return size + " are not published yet, and it is catching up", "It goes on by itself. Where it does not keep up: docs/runbooks/WalstreamFallingBehind.md."
		}
		return fmt.Sprintf("%s are not confirmed: %s", size, why), what
	}
	if d := h.Detail; d != nil && d.Oldest != nil {
		age := d.At.Sub(d.Oldest.Since)
		switch {
		case d.Oldest.Prepared != "":
			return d.Oldest.String() + prepared(d), fmt.Sprintf("Somebody prepared it and went away: COMMIT PREPARED '%s', or ROLLBACK PREPARED.", d.Oldest.Prepared)
		case d.Oldest.Since.IsZero():
			return "an open transaction: " + d.Oldest.String() + " (GRANT pg_read_all_stats to our role to see whose)",
				fmt.Sprintf("Look at it in pg_stat_activity; SELECT pg_terminate_backend(%d) ends it.", d.Oldest.PID)
		case age >= old:
			return fmt.Sprintf("an open transaction, %s old: %s", age.Round(time.Second), d.Oldest),
				fmt.Sprintf("End it: by its application, or by SELECT pg_terminate_backend(%d).", d.Oldest.PID)
		}
	}
	return "nothing that is open any more; the server lets go of it at its next running-xacts record, within 15 s of writing", ""
}

func prepared(d *replication.SlotDetail) string {
	if d.Oldest.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf(", %s old", d.At.Sub(d.Oldest.Since).Round(time.Second))
}

// WatchBudget tells whenever the WAL kept for the slot passes a mark of
// --max-retained-wal, until ctx ends; falling, when it is below all of them.
func WatchBudget(ctx context.Context, cfg Config, tell func(within bool, text string)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var marks budgetMarks
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if b := budgetOf(&cfg, cfg.Progress(), now); b != nil && marks.passed(b) {
				tell(b.Level == budgetOK, b.text())
			}
		}
	}
}

// budgetMarks remembers the level that was told, so that a value that hovers about
// a mark is told once.
type budgetMarks struct{ told int }

// slack is how far below a mark it is left again.
const slack = 0.9

func (m *budgetMarks) passed(b *budget) bool {
	level := 0
	for i, l := range budgetLevels {
		if b.Used >= l.from || i <= m.told && b.Used >= slack*l.from {
			level = i
		}
	}
	if level == m.told {
		return false
	}
	higher := level > m.told
	m.told = level
	return higher || level == 0
}
