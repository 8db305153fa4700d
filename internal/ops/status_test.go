package ops

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/prune"
	"github.com/walstream/walstream/pkg/replication"
)

func testConfig(p *pipeline.Progress) Config {
	return Config{
		Pipeline: "bank", Slot: "bank_slot", Delivery: "exactly-once", Version: "1.2.3", StallTimeout: time.Minute, MaxInFlightBytes: 32 << 20,
		Progress: func() *pipeline.Progress { return p },
		Retention: func() *prune.Report {
			return &prune.Report{Deleted: 7, Stamped: 8, Dropped: 1, Oldest: time.Unix(1_700_000_000, 0), PassedAt: time.Unix(1_700_000_100, 0), Err: "the role lacks DELETE", ErrAt: time.Unix(1_700_000_200, 0)}
		},
	}
}

// streaming is a pipeline that streams and has nothing to do.
func streaming() *pipeline.Progress {
	now, safe := time.Now(), int64(1<<30)
	return &pipeline.Progress{
		At: now, State: pipeline.Streaming, Since: now.Add(-time.Hour), Restarts: map[string]uint64{},
		Received: 5000, Published: 5000, Confirmed: 5000,
		Counters: pipeline.Counters{ProgressAt: now, Events: 10},
		Health: replication.Health{
			At: now, WALEnd: 5000, Confirmed: 5000, Restart: 4000, WALStatus: "reserved", SafeWALSize: &safe, WalsenderActive: true,
		},
	}
}

// behind is a pipeline with work that waits for Kafka.
func behind() *pipeline.Progress {
	p := streaming()
	p.Health.WALEnd, p.Received, p.Published, p.Confirmed = 9000, 8000, 6000, 5500
	p.InFlightEvents, p.InFlightBytes = 20, 2000
	p.OldestCommit, p.OldestAge = p.At.Add(-7*time.Second), 7*time.Second
	p.BehindSince, p.Counters.ProgressAt = p.At.Add(-3*time.Second), p.At.Add(-8*time.Second)
	return p
}

// TestC57LagThatLies: bytes and seconds of one reading; 0 when idle, never
// negative, growing or absent when unknown.
func TestC57LagThatLies(t *testing.T) {
	type lag struct {
		bytes   [3]int64 // received, published, confirmed
		seconds [3]float64
	}
	in := func(change func(*pipeline.Progress)) *pipeline.Progress {
		p := behind()
		change(p)
		return p
	}
	for _, c := range []struct {
		name     string
		progress *pipeline.Progress
		want     *lag // nil: absent
		healthy  bool
	}{
		{"idle", streaming(), &lag{}, true},
		{"idle for an hour", func() *pipeline.Progress {
			p := streaming()
			p.Counters.Transactions, p.Since = 5, p.At.Add(-10*time.Hour)
			return p
		}(), &lag{}, true},
		{"under load", behind(), &lag{[3]int64{1000, 3000, 3500}, [3]float64{3, 7, 8}}, true},
		{"the stream is newer than the reading", in(func(p *pipeline.Progress) {
			p.Health.WALEnd, p.BehindSince = 7000, time.Time{}
		}), &lag{[3]int64{0, 2000, 2500}, [3]float64{0, 7, 8}}, true},
		{"a burst that the reading has seen first", in(func(p *pipeline.Progress) {
			p.Received, p.Published, p.Confirmed, p.OldestCommit, p.OldestAge = 5000, 5000, 5000, time.Time{}, 0
			p.InFlightEvents, p.Counters.ProgressAt = 0, p.At
		}), &lag{[3]int64{4000, 4000, 4000}, [3]float64{3, 3, 3}}, true},
		{"a server clock ahead of ours", in(func(p *pipeline.Progress) {
			p.BehindSince, p.OldestAge, p.Confirmed = p.At.Add(time.Minute), 0, p.Published
		}), &lag{[3]int64{1000, 3000, 3000}, [3]float64{0, 0, 0}}, true},
		{"draining", in(func(p *pipeline.Progress) { p.State = pipeline.Draining }), &lag{[3]int64{1000, 3000, 3500}, [3]float64{3, 7, 8}}, true},
		{"blackholed: the broker", in(func(p *pipeline.Progress) {
			p.Counters.ProgressAt, p.OldestAge = p.At.Add(-2*time.Minute), 2*time.Minute
		}), &lag{[3]int64{1000, 3000, 3500}, [3]float64{3, 120, 120}}, false},
		{"blackholed: the server, and the reading is old", in(func(p *pipeline.Progress) { p.Health.At = p.At.Add(-11 * time.Second) }), nil, true},
		{"the session is cut", in(func(p *pipeline.Progress) {
			p.Health = replication.Health{At: p.At, Err: errors.New("cut")}
		}), nil, true},
		{"the loop is late", in(func(p *pipeline.Progress) {
			p.At = p.At.Add(-5 * time.Second)
			p.Health.At = p.At.Add(5 * time.Second)
		}), &lag{[3]int64{1000, 3000, 3500}, [3]float64{3, 12, 12}}, true},
		{"waiting", in(func(p *pipeline.Progress) { p.State, p.DownSince = pipeline.Waiting, p.At.Add(-2*time.Second) }), nil, true},
		{"waiting for long", in(func(p *pipeline.Progress) { p.State, p.DownSince = pipeline.Waiting, p.At.Add(-time.Hour) }), nil, false},
		{"connecting, with what the last stream left", in(func(p *pipeline.Progress) { p.State, p.DownSince = pipeline.Connecting, p.At }), nil, true},
		{"standing by", in(func(p *pipeline.Progress) { p.State = pipeline.Standby }), nil, true},
		{"slot missing: refused", in(func(p *pipeline.Progress) { p.State, p.Reason = pipeline.Refused, "no slot" }), nil, false},
		{"stopped", in(func(p *pipeline.Progress) { p.State = pipeline.Stopped }), nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			status, families := newStatus(testConfig(c.progress), c.progress, now), gather(t, c.progress)
			if status.Healthy != c.healthy {
				t.Errorf("healthy %v: %s", status.Healthy, status.Reason)
			}
			for i, stage := range []string{"received", "published", "confirmed"} {
				bytes, seconds := status.LagBytes[stage], status.LagSeconds[stage]
				if c.want == nil {
					if bytes != nil || seconds != nil || families["walstream_lag_bytes"] != nil || families["walstream_lag_seconds"] != nil {
						t.Errorf("%s: lag is told", stage)
					}
					continue
				}
				if bytes == nil || *bytes != c.want.bytes[i] {
					t.Errorf("%s: %v bytes, want %d", stage, bytes, c.want.bytes[i])
				}
				if seconds == nil || *seconds < c.want.seconds[i] || *seconds > c.want.seconds[i]+0.9 {
					t.Errorf("%s: %v s, want %v", stage, *seconds, c.want.seconds[i])
				}
				if got := ofStage(families["walstream_lag_bytes"], stage); got != float64(c.want.bytes[i]) {
					t.Errorf("%s: the metric says %v bytes", stage, got)
				}
			}
			if families["walstream_stalled_seconds"] == nil || families["walstream_state"] == nil {
				t.Error("stalled_seconds or state is absent")
			}
		})
	}
}

func ofStage(f *dto.MetricFamily, stage string) float64 {
	for _, m := range f.GetMetric() {
		for _, l := range m.Label {
			if l.GetValue() == stage {
				return m.Gauge.GetValue()
			}
		}
	}
	return -1
}

// TestLagIsOrderedAndNotNegative, whatever a picture holds.
func TestLagIsOrderedAndNotNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		at := func(name string) time.Time {
			if rapid.Bool().Draw(t, name+" unset") {
				return time.Time{}
			}
			return now.Add(time.Duration(rapid.Int64Range(-1e11, 1e10).Draw(t, name)))
		}
		lsn := func(name string, most pglogrepl.LSN) pglogrepl.LSN {
			return pglogrepl.LSN(rapid.Uint64Range(1, uint64(most)).Draw(t, name))
		}
		p := &pipeline.Progress{
			State: rapid.SampledFrom(pipeline.States).Draw(t, "state"), At: at("at"), DownSince: at("down"),
			BehindSince: at("behind"), OldestCommit: at("oldest"), OldestAge: time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "age")),
		}
		p.Received = lsn("received", 1e9)
		p.Published = lsn("published", p.Received)
		p.Confirmed = lsn("confirmed", p.Published)
		p.Counters.ProgressAt = at("progress")
		p.Health = replication.Health{At: at("read"), WALEnd: lsn("end", 1e9), Restart: lsn("restart", 1e9)}
		s := newStatus(testConfig(p), p, now)
		var bytes int64
		var seconds float64
		for _, stage := range []string{"received", "published", "confirmed"} {
			b, sec := s.LagBytes[stage], s.LagSeconds[stage]
			if known := p.Known(now); (b != nil) != known || (sec != nil) != known {
				t.Fatalf("%s: known %v, told %v %v", stage, known, b, sec)
			}
			if b == nil {
				continue
			}
			if *b < bytes || *sec < seconds {
				t.Fatalf("%s: %d bytes after %d, %v s after %v", stage, *b, bytes, *sec, seconds)
			}
			bytes, seconds = *b, *sec
		}
		if s.StalledSeconds < 0 {
			t.Fatalf("stalled for %v", s.StalledSeconds)
		}
	})
}

func TestLostSlotRetainsNothingKnown(t *testing.T) {
	p := streaming()
	p.Health.Restart, p.Health.WALStatus = 0, "lost"
	s := newStatus(testConfig(p), p, time.Now())
	if s.SlotHealth.RetainedBytes != nil || s.SlotHealth.Remedy == "" || gather(t, p)["walstream_slot_retained_bytes"] != nil {
		t.Errorf("%+v", s.SlotHealth)
	}
}

func TestHistory(t *testing.T) {
	h, now := &history{}, time.Now()
	at := func(s int, goesOn string, current ...string) {
		h.note(current, goesOn, now.Add(time.Duration(s)*time.Second))
	}
	at(0, "starting")
	at(1, "", "a")
	at(2, "a")
	at(3, "", "a", "b")
	at(4, "")
	at(5, "", "a")
	got := h.list()
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	a, b := got[0], got[1]
	if a.Message != "a" || a.Times != 2 || !a.Now || a.First != now.Add(time.Second) || a.Last != now.Add(5*time.Second) {
		t.Errorf("a: %+v", a)
	}
	if b.Message != "b" || b.Times != 1 || b.Now || b.Last != now.Add(3*time.Second) {
		t.Errorf("b: %+v", b)
	}
	for i := range 100 {
		at(10+i, "", string(rune('c'+i)))
	}
	if got := h.list(); len(got) != historySize || got[0].Message != string(rune('c'+99)) {
		t.Errorf("%d kept, the newest %q", len(got), got[0].Message)
	}
}

// TestHistoryKeepsWhatHasPassed: a failure whose pause was over between two looks
// counts; waiting for the slot does not.
func TestHistoryKeepsWhatHasPassed(t *testing.T) {
	h, now := &history{}, time.Now()
	look := func(state pipeline.State, reason string, restarts map[string]uint64) {
		now = now.Add(historyInterval)
		p := streaming()
		p.State, p.Reason, p.Restarts = state, reason, restarts
		h.look(p, now)
	}
	look(pipeline.Connecting, "starting", nil)
	look(pipeline.Standby, "held by another", map[string]uint64{"slot-busy": 3})
	look(pipeline.Connecting, "held by another", map[string]uint64{"slot-busy": 4})
	look(pipeline.Connecting, "making the slot waits for a transaction", map[string]uint64{"slot-busy": 4})
	look(pipeline.Streaming, "", map[string]uint64{"slot-busy": 4})
	if got := h.list(); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
	look(pipeline.Connecting, "cut off", map[string]uint64{"slot-busy": 4, "postgres": 1})
	look(pipeline.Connecting, "cut off", map[string]uint64{"slot-busy": 4, "postgres": 1})
	if got := h.list(); len(got) != 1 || !got[0].Now || got[0].Times != 1 {
		t.Fatalf("%+v", got)
	}
	look(pipeline.Standby, "fenced by another", map[string]uint64{"slot-busy": 4, "postgres": 1, "fenced": 1})
	look(pipeline.Streaming, "", map[string]uint64{"slot-busy": 4, "postgres": 1, "fenced": 1})
	got := h.list()
	if len(got) != 2 || got[0].Message != "fenced by another" || got[0].Now || got[1].Now {
		t.Fatalf("%+v", got)
	}
}

// The rewind slot is kept, given up or failing; what was read long ago is unknown.
func TestStatusOfTheRewindSlot(t *testing.T) {
	p := streaming()
	now := p.At
	if newRewind(p, now) != nil {
		t.Error("a rewind slot that nobody asked for")
	}
	for _, c := range []struct {
		state string
		p     pipeline.RewindProgress
		known bool
	}{
		{"kept", pipeline.RewindProgress{At: now, Kept: true, From: "0/10", RetainedBytes: 7}, true},
		{"unknown", pipeline.RewindProgress{At: now.Add(-time.Minute), Kept: true, From: "0/10"}, false},
		{"failing", pipeline.RewindProgress{At: now, Kept: true, From: "0/10", Err: "no slot is free"}, true},
		{"given up", pipeline.RewindProgress{At: now, GivenUp: "too much WAL"}, false},
	} {
		p.Rewind = &c.p
		view := newRewind(p, now)
		if view.State != c.state || (view.RetainedBytes != nil) != c.known || view.Reason != c.p.Err+c.p.GivenUp {
			t.Errorf("%s: %+v", c.state, view)
		}
	}
}
