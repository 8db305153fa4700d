package sink

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/walstream/walstream/internal/testenv"
)

// oldBrokers are releases that no real broker of is tried here: a fake that speaks
// no newer version of any request. It shows that what we ask is understood, not
// that those brokers are free of faults.
var oldBrokers = map[string]*kversion.Versions{
	"2.5": kversion.V2_5_0(), // the first with what transactions need (KIP-360, KIP-447)
	"2.8": kversion.V2_8_0(),
	"3.0": kversion.V3_0_0(),
	"3.5": kversion.V3_5_0(),
	"3.9": kversion.V3_9_0(),
}

func everyOldBroker(t *testing.T, test func(t *testing.T, brokers []string)) {
	for name, versions := range oldBrokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, brokers := testenv.NewKfake(t, kfake.MaxVersions(versions))
			test(t, brokers)
		})
	}
}

// A pipeline's life: check, claim, rows for topics that are made and that are
// there, a checkpoint, a second instance that takes over and fences the first.
func TestLifeOnOlderBrokers(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyOldBroker(t, func(t *testing.T, brokers []string) {
			cfg := testConfig(t, brokers)
			cfg.CreateTopics, cfg.TopicPartitions, cfg.TopicReplicationFactor = true, 3, 1
			there, made := createTopic(t, brokers, 2, nil), unique("made")
			for _, f := range open(t, cfg).Check(within(t, 20*time.Second), []string{there}) {
				if f.Status == StatusFail {
					t.Errorf("check: %s: %s", f.Name, f.Detail)
				}
			}
			r := start(t, cfg)
			const rounds = 10
			for n := 1; n <= rounds; n++ {
				for key := range 4 {
					k := fmt.Sprint("k", key)
					r.transaction(event(there, k, fmt.Sprint(n), n), event(made, k, fmt.Sprint(n), n))
				}
				r.untilConfirmed()
			}
			for _, topic := range []string{there, made} {
				inOrder(t, seen(t, brokers, topic), 4, rounds)
			}
			covered := r.lsn
			second := claim(t, open(t, cfg))
			r.transaction(event(there, "k", "zombie", 0))
			if err := r.untilError(); !errors.Is(err, ErrFenced) {
				t.Errorf("reported %v", err)
			}
			mustLoad(t, second, covered)
		})
	})
}

// Refusals are told as on a new broker.
func TestRefusalsOnOlderBrokers(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyOldBroker(t, func(t *testing.T, brokers []string) { refusedBeforeSending(t, start, brokers) })
	})
}
