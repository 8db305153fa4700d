package cases

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// rewound runs the pipeline in this process, where five minutes can be half a second.
type rewound struct {
	*rig
	log        strings.Builder
	supervisor *pipeline.Supervisor
	stop       func()
}

func (r *rig) rewound(rule pipeline.Rewind) *rewound {
	r.t.Helper()
	w := &rewound{rig: r}
	limits := checkpoint.Limits{Events: 10_000, Bytes: 8 << 20}
	log := zerolog.New(zerolog.SyncWriter(&w.log)).Level(zerolog.InfoLevel)
	rule.Every = 300 * time.Millisecond
	w.supervisor = pipeline.NewSupervisor(pipeline.Config{
		Pipeline: r.pipeline, Slot: r.slot, Publication: strings.TrimSuffix(r.slot, "_slot") + "_pub", Version: "test",
		Postgres: replication.Options{Postgres: r.dsn, ApplicationName: r.pipeline},
		Kafka: sink.Config{
			Brokers: r.brokers, Pipeline: r.pipeline, MaxInFlight: limits, CreateTopics: true, Logger: log, HistoryRetention: time.Hour,
		},
		Mapping: []outbox.MappingConfig{{
			Schema: "public", Table: "bank_outbox", Topic: r.topic, KeyColumn: "aggregate_id", ValueColumn: "payload", HeadersColumn: "headers", IDColumn: "id",
		}},
		Limits: limits, Delivery: pipeline.ExactlyOnce, Snapshot: pipeline.SnapshotNever, Rewind: rule,
		StatusInterval: time.Second, ShutdownGrace: 5 * time.Second, Logger: log,
	})
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.supervisor.Run(ctx) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the pipeline ended with %v", err)
		}
	}
	r.t.Cleanup(w.stop)
	r.until("the pipeline to stream", func() bool { return w.supervisor.Progress().State == pipeline.Streaming })
	return w
}

// trailing is the rewind slot as the server has it; exists is false when it is gone.
func (r *rig) trailing() (confirmed, restart pglogrepl.LSN, exists bool) {
	r.t.Helper()
	state, err := replication.ReadRewind(r.ctx, r.db, r.slot)
	r.check(err)
	return state.Slot.ConfirmedFlush, state.Slot.Restart, state.Slot.Exists
}

func (r *rig) hasTrailing(exists bool) func() bool {
	return func() bool { _, _, there := r.trailing(); return there == exists }
}

// The rewind slot stays behind the slot by the window, and follows it; without the
// setting the next start drops it.
func TestRewindSlotTrailsByTheWindow(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	w := r.rewound(pipeline.Rewind{Window: 4 * time.Second})
	r.until("the rewind slot", r.hasTrailing(true))
	first, _, _ := r.trailing()
	r.put(3)
	r.untilConfirmed()
	began, _ := r.confirmed()
	if at, _, _ := r.trailing(); at >= began {
		t.Fatalf("it stands at %s, and rows of before %s were committed within the window", at, began)
	}
	var last pglogrepl.LSN
	r.until("the rewind slot to follow", func() bool {
		r.put(1)
		at, _, _ := r.trailing()
		confirmed, _ := r.confirmed()
		if at > confirmed || at < last {
			t.Fatalf("it stands at %s after %s, the slot at %s", at, last, confirmed)
		}
		last = at
		return at >= began
	})
	if p := w.supervisor.Progress().Rewind; first >= began || p == nil || !p.Kept || p.Moves == 0 || p.MovesLasted == 0 || p.Since.IsZero() {
		t.Errorf("from %s, by way of %s: %+v", first, began, p)
	}
	out, code := r.command([]string{"status", "--json"})
	var view struct {
		Rewind *struct {
			Slot string `json:"slot"`
			From string `json:"from"`
		} `json:"rewind"`
		Instances []any `json:"instances"`
	}
	if err := json.Unmarshal([]byte(out), &view); err != nil || view.Rewind == nil || view.Rewind.Slot != r.slot+"_rewind" || len(view.Instances) != 1 {
		t.Errorf("status: code %d, %v: %s", code, err, out)
	}
	w.stop()

	again := r.rewound(pipeline.Rewind{})
	r.until("the rewind slot to be dropped", r.hasTrailing(false))
	again.stop()
	if !strings.Contains(again.log.String(), "dropped the rewind slot") {
		t.Errorf("nobody said so:\n%s", again.log.String())
	}
}

// Near --rewind-max the slot is moved on at once, whatever the window says; what an
// open transaction keeps does not go by that, and the slot is given up.
func TestRewindSlotIsMovedOnAndGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, testenv.NewPostgres(t, testenv.PGOptions{}), testenv.SharedKafka(t).Brokers) // what is open here would hold up the slots of others
	w := r.rewound(pipeline.Rewind{Window: time.Hour, MaxBytes: 24 << 20})
	r.until("the rewind slot", r.hasTrailing(true))
	first, _, _ := r.trailing()
	r.until("the rewind slot to be moved on, or given up", func() bool {
		r.exec(`INSERT INTO noise (filler) SELECT repeat('x', 1000) FROM generate_series(1, 2000)`)
		r.exec(`SELECT pg_log_standby_snapshot() WHERE current_setting('server_version_num')::int >= 160000`)
		at, _, exists := r.trailing()
		return !exists || at > first
	})
	if at, _, exists := r.trailing(); exists && at <= first {
		t.Errorf("it stands at %s, and stood at %s", at, first)
	}

	// Whoever holds a transaction open keeps the WAL from before it.
	blocker := r.connect()
	_, err := blocker.Exec(r.ctx, `BEGIN; INSERT INTO noise (filler) VALUES ('open')`)
	r.check(err)
	r.until("the rewind slot to be given up", func() bool {
		r.exec(`INSERT INTO noise (filler) SELECT repeat('x', 1000) FROM generate_series(1, 4000)`)
		p := w.supervisor.Progress().Rewind
		return p != nil && p.GivenUp != ""
	})
	r.until("the rewind slot to be dropped", r.hasTrailing(false))
	if p := w.supervisor.Progress(); !strings.Contains(p.Rewind.GivenUp, "--rewind-max") || p.State != pipeline.Streaming {
		t.Errorf("%s: %+v", p.State, p.Rewind)
	}
	_, err = blocker.Exec(r.ctx, `COMMIT`)
	r.check(err)
	r.put(3)
	r.untilConfirmed()
	time.Sleep(time.Second)
	if !r.hasTrailing(false)() {
		t.Error("what was given up was made again by the same process")
	}
	w.stop()
	r.verify()

	// The next process makes it again, and drop drops it.
	again := r.rewound(pipeline.Rewind{Window: time.Hour, MaxBytes: 1 << 30})
	r.until("the rewind slot", r.hasTrailing(true))
	again.stop()
	if out, code := r.command([]string{"drop", "--confirm", r.pipeline}); code != 0 || !strings.Contains(out, "slot "+r.slot+"_rewind") {
		t.Errorf("drop: code %d\n%s", code, out)
	}
	if !r.hasTrailing(false)() {
		t.Error("the rewind slot outlived drop")
	}
}
