package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/bench/internal/tool"
)

// watched is what was seen of a contender's process and of its walsender while
// they ran. Zero where there is no /proc.
type watched struct {
	peak      int64 // bytes, VmHWM
	walsender time.Duration
}

// watcher looks at a process and at the walsender that serves a slot, until end.
// Both may be gone at the end, so it looks again and again: the last picture is
// at most a pause old.
type watcher struct {
	slot string
	conn *pgx.Conn
	stop chan struct{}
	seen chan watched
}

const watchPause = 50 * time.Millisecond

func newWatcher(ctx context.Context, w *world, slot string) (*watcher, error) {
	conn, err := pgx.Connect(ctx, w.pg.DSN(""))
	if err != nil {
		return nil, err
	}
	return &watcher{slot: slot, conn: conn, stop: make(chan struct{}), seen: make(chan watched)}, nil
}

// abandon is for a process that did not start.
func (w *watcher) abandon() error { return w.conn.Close(context.Background()) }

func (w *watcher) begin(pid int) { go w.run(pid) }

func (w *watcher) end() watched {
	close(w.stop)
	return <-w.seen
}

func (w *watcher) run(pid int) {
	var seen watched
	walsender := 0
	for stopped := false; !stopped; {
		select {
		case <-w.stop:
			stopped = true // and one last look
		case <-time.After(watchPause):
		}
		if walsender == 0 {
			walsender = w.walsender()
		}
		if peak, err := peakRSS(pid); err == nil {
			seen.peak = peak
		}
		if cpu, err := cpuTime(walsender); err == nil {
			seen.walsender = cpu
		}
	}
	_ = w.conn.Close(context.Background())
	w.seen <- seen
}

func (w *watcher) walsender() (pid int) {
	_ = w.conn.QueryRow(context.Background(), // not known yet: 0
		`SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1`, w.slot).Scan(&pid)
	return pid
}

func peakRSS(pid int) (int64, error) { return memory(pid, "VmHWM") }

func memory(pid int, name string) (int64, error) { return tool.Memory(pid, name) }

func cpuTime(pid int) (time.Duration, error) { return tool.CPUTime(pid) }
