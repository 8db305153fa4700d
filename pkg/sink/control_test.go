package sink

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestPauseInForce(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		pause Pause
		want  bool
	}{
		"no word":              {Pause{}, false},
		"paused":               {Pause{Paused: true}, true},
		"resumed":              {Pause{Paused: false, Until: now.Add(time.Hour)}, false},
		"paused for a while":   {Pause{Paused: true, Until: now.Add(time.Second)}, true},
		"the while is over":    {Pause{Paused: true, Until: now}, false},
		"it was over long ago": {Pause{Paused: true, Until: now.Add(-time.Hour)}, false},
	} {
		if got := c.pause.InForce(now); got != c.want {
			t.Errorf("%s: in force %v", name, got)
		}
	}
}

// The newest word counts, in however many readings; no topic is no pause; another
// pipeline's word is not ours; what is nothing of walstream's is refused and can be
// written over.
func TestPauseIsReadAsWritten(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		k := open(t, cfg)
		ctx := within(t, 60*time.Second)
		reader := k.NewPauseReader()
		mustRead := func(want bool, by string) {
			t.Helper()
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				followed, err := reader.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				once, err := k.ReadPause(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if followed.Paused == want && once == followed && followed.By == by {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("read %+v and %+v, want paused %v by %q", followed, once, want, by)
				}
			}
		}
		mustRead(false, "")
		write := func(p Pause) {
			t.Helper()
			if err := k.WritePause(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		write(Pause{Paused: true, By: "a", Reason: "x"})
		mustRead(true, "a")
		write(Pause{By: "b"})
		mustRead(false, "b")
		for range 40 { // beyond the first window
			write(Pause{Paused: true, By: "c"})
		}
		mustRead(true, "c")
		c := client(t, brokers)
		produce := func(key, value string) {
			t.Helper()
			if err := c.ProduceSync(ctx, &kgo.Record{Topic: cfg.controlTopic(), Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for range 70 {
			produce("another", `{"format":1,"paused":false}`)
		}
		mustRead(true, "c")
		produce(cfg.Pipeline, `{"format":99}`)
		if _, err := reader.Read(ctx); err == nil {
			t.Error("a format of the future is read")
		} else {
			mustContain(t, err, "walstream resume", cfg.controlTopic())
		}
		write(Pause{By: "d"})
		mustRead(false, "d")
	})
}

// A forgotten checkpoint is none, whoever forgets it, and whoever held the lanes
// before cannot write another behind it.
func TestForgottenCheckpoint(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		k := open(t, cfg)
		ctx := within(t, 60*time.Second)
		zombie := claim(t, k)
		if err := zombie.Write(ctx, baseRecord(cfg.Pipeline).With(edgeAt(100))); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, k, 100)
		owner, err := k.Owned(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer owner.Close()
		if err := owner.Forget(ctx); err != nil {
			t.Fatal(err)
		}
		mustLoad(t, k, 0)
		if err := zombie.Write(ctx, baseRecord(cfg.Pipeline).With(edgeAt(200))); err == nil {
			t.Error("a zombie wrote a checkpoint behind the tombstone")
		}
		mustLoad(t, k, 0)
		topics, letters, err := k.OwnTopics(ctx)
		if err != nil || len(topics) != 1 || topics[0] != k.CheckpointTopic() || letters != "" {
			t.Fatalf("own topics %v and %q (%v)", topics, letters, err)
		}
		for range 2 {
			if err := k.DeleteTopic(ctx, topics[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
}
