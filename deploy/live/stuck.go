package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// stuck is an instance whose broker swallows everything, and one beside it with a
// WAL budget of its own.
type stuck struct {
	*stage
	proxy          *testenv.Proxy
	db             *pgx.Conn
	plain, budget  *service.Service
	since          time.Time
	well, stalled  string // scrapes of plain
	withinTheLimit string // of budget
}

const budgetLimit = 200 << 20

func (s *stage) stuck(ctx context.Context) (*stuck, error) {
	proxy, err := s.kafka.StartProxy()
	if err != nil {
		return nil, err
	}
	k := &stuck{stage: s, proxy: proxy}
	dsn, db, err := s.database(ctx, "stuck")
	if err != nil {
		return nil, err
	}
	k.db = db
	if k.plain, err = s.stream(ctx, s.args("stuck", dsn, proxy.Addrs, "--stall-timeout=2s", "--status-interval=1s")); err != nil {
		return nil, err
	}
	// Its health is to turn for its budget only.
	k.budget, err = s.stream(ctx, s.args("budget", dsn, proxy.Addrs, "--stall-timeout=1h", fmt.Sprintf("--max-retained-wal=%dB", budgetLimit)))
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(ctx, putRow, "deposits", []byte("x")); err != nil {
		return nil, err
	}
	if k.well, err = shows(ctx, k.plain, idle("stuck")); err != nil {
		return nil, err
	}
	if k.withinTheLimit, err = shows(ctx, k.budget, idle("budget")); err != nil {
		return nil, err
	}
	proxy.Blackhole()
	if _, err := db.Exec(ctx, putRow, "deposits", []byte("x")); err != nil {
		return nil, err
	}
	k.since = time.Now()
	k.stalled, err = shows(ctx, k.plain, values{`walstream_healthy{`: is(0), `walstream_stalled_seconds{`: atLeast(1)})
	s.fires("Kafka does not answer", "WalstreamStalled", k.seen(10, k.well), k.seen(5, k.stalled))
	return k, err
}

func (k *stuck) seen(minutes int, scrape string) step {
	return step{minutes, map[string]string{"a": scrape}}
}

// write moves the WAL on until a metric of the process fits.
func (k *stuck) write(ctx context.Context, process *service.Service, wanted values, segments int) (string, error) {
	for range segments {
		for _, sql := range []string{`SELECT pg_logical_emit_message(false, 'live', 'x')`, `SELECT pg_switch_wal()`} {
			if _, err := k.db.Exec(ctx, sql); err != nil {
				return "", err
			}
		}
	}
	return shows(ctx, process, wanted)
}

const lagOfPublished = `walstream_lag_bytes{pipeline="stuck",stage="published"}`

// behind has the server write more and more meanwhile. A segment has 16 MB.
func (k *stuck) behind(ctx context.Context) error {
	half, err := k.write(ctx, k.budget, values{`walstream_slot_retained_bytes{`: atLeast(0.6 * budgetLimit)}, 8)
	if err != nil {
		return err
	}
	k.fires("more than half of --max-retained-wal", "WalstreamWALBudget", k.seen(10, k.withinTheLimit), k.seen(5, half))
	all, err := k.write(ctx, k.budget, values{`walstream_slot_retained_bytes{`: atLeast(1.1 * budgetLimit), `walstream_healthy{`: is(0)}, 7)
	if err != nil {
		return err
	}
	k.fires("more than --max-retained-wal", "WalstreamWALBudget WalstreamWALBudgetSpent WalstreamStalled", k.seen(10, half), k.seen(5, all))

	var growing []step
	least, last := float64(270<<20), float64(0)
	for range 4 {
		far, err := k.write(ctx, k.plain, values{lagOfPublished: func(v float64) bool { last = v; return v >= least }}, 2)
		least = last + 20<<20 // two segments more than this reading, and no reading twice
		if err != nil {
			return err
		}
		growing = append(growing, k.seen(5, far))
	}
	k.fires("the distance grows", "WalstreamFallingBehind WalstreamStalled", growing...)

	retained := float64(0)
	if _, err := shows(ctx, k.plain, values{`walstream_slot_retained_bytes{`: func(v float64) bool { retained = v; return true }}); err != nil {
		return err
	}
	limit := func(mb int, wanted values) (string, error) {
		for _, sql := range []string{fmt.Sprintf(`ALTER SYSTEM SET max_slot_wal_keep_size = %d`, mb), `SELECT pg_reload_conf()`} {
			if _, err := k.db.Exec(ctx, sql); err != nil {
				return "", err
			}
		}
		return shows(ctx, k.plain, wanted)
	}
	const safe = `walstream_slot_safe_wal_bytes{`
	if half, err = limit(int(retained*1.6)>>20, values{safe: below(0.8 * retained)}); err != nil {
		return err
	}
	k.fires("less than half of the slot's budget is left", "WalstreamSlotBudget WalstreamStalled", k.seen(10, half))
	little, err := limit(int(retained*1.1)>>20, values{safe: below(0.16 * retained)})
	if err != nil {
		return err
	}
	k.fires("little of it is left", "WalstreamSlotBudget WalstreamSlotAtRisk WalstreamStalled", k.seen(10, little))
	endless, err := limit(-1, values{`walstream_slot_retained_bytes{`: atLeast(retained)})
	for err == nil && hasSeries(endless, safe) {
		endless, err = shows(ctx, k.plain, values{`walstream_slot_retained_bytes{`: atLeast(retained)})
	}
	if err != nil {
		return err
	}
	k.fires("much WAL, and no limit", "WalstreamSlotRetainsMuch WalstreamStalled", k.seen(15, endless))
	if _, err := limit(1<<12, values{safe: atLeast(1)}); err != nil {
		return err
	}
	late, err := shows(ctx, k.plain, values{`walstream_lag_seconds{pipeline="stuck",stage="published"}`: atLeast(61), safe: atLeast(1)})
	k.fires("a row waits for a minute", "WalstreamLate WalstreamStalled", k.seen(10, late))
	return err
}

// lost has the server give the slots up.
func (k *stuck) lost(ctx context.Context) error {
	for _, sql := range []string{`ALTER SYSTEM SET max_slot_wal_keep_size = 64`, `SELECT pg_reload_conf()`} {
		if _, err := k.db.Exec(ctx, sql); err != nil {
			return err
		}
	}
	risk, err := shows(ctx, k.plain, values{`walstream_slot_wal_status{pipeline="stuck",wal_status="unreserved"}`: is(1)})
	if err != nil {
		return err
	}
	k.fires("the slot is lost at the next checkpoint", "WalstreamSlotAtRisk WalstreamSlotBudget WalstreamStalled WalstreamLate", k.seen(10, risk))
	if _, err := k.db.Exec(ctx, `CHECKPOINT`); err != nil {
		return err
	}
	k.proxy.Restore()
	if err := silent(ctx, k.plain); err != nil {
		return err
	}
	if code := k.plain.ExitCode(); code != 5 {
		return fmt.Errorf("with its slot lost it ended with %d\n%s", code, k.plain.Log())
	}
	k.fires("the slot is lost, and it refused", "WalstreamAbsent WalstreamInstanceDown WalstreamNotStreaming", k.seen(10, k.well), k.seen(15, ""))
	return nil
}
