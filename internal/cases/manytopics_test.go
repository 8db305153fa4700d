package cases

import (
	"fmt"
	"testing"
	"time"
)

// A column that names many topics, all of them legal: each row goes to its own, the
// topics are made on the way, and walstream's memory stays bounded. What every
// further topic costs is what the client keeps of it, and is measured.
func TestC46ManyTopics(t *testing.T) { inBothAtOnce(t, manyTopics) }

func manyTopics(t *testing.T) {
	r := sharedRig(t)
	topics, bound := 200, int64(128<<20)
	if full() {
		topics, bound = 10_000, 384<<20
	}
	s := r.stream("--topic", unset, "--topic-column", "aggregate_type", "--topic-partitions", "1")
	r.exec(putTopic, r.topic)
	r.untilConfirmed()
	before, err := peakMemory(s.PID())
	r.check(err)
	const rounds = 3
	for round := range rounds {
		began := time.Now()
		r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT $1 || '.' || i, 'acc-' || i % 7, 'deposited', jsonb_build_object('i', i) FROM generate_series(1, $2::int) i`, r.topic, topics)
		r.untilConfirmed()
		peak, err := peakMemory(s.PID())
		r.check(err)
		t.Logf("round %d: %d topics in %s, peak memory %d MiB, before %d MiB", round, topics, time.Since(began).Round(time.Millisecond), peak>>20, before>>20)
		if peak > bound {
			t.Errorf("round %d: peak memory %d MiB", round, peak>>20)
		}
	}
	listed, err := r.admin.ListEndOffsets(r.ctx, topicsNamed(r.topic, topics)...)
	r.check(err)
	if len(listed) != topics {
		t.Fatalf("%d topics", len(listed))
	}
	// A few of them in full: their own rows, in order, and no other's.
	for _, n := range []int{1, 2, topics / 2, topics} {
		topic := fmt.Sprint(r.topic, ".", n)
		r.markersWritten(topic)
		records := readTopic(t, r.ctx, r.brokers, topic)
		if len(records) != rounds {
			t.Errorf("topic %s has %d records", topic, len(records))
		}
		for _, rec := range records {
			if want := fmt.Sprintf(`{"i": %d}`, n); string(rec.Value) != want {
				t.Errorf("topic %s: %s", topic, rec.Value)
			}
		}
	}
	missing := 0
	for _, at := range listed {
		if at[0].Offset < rounds {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d topics have not all of their rows", missing)
	}
	_, _ = r.admin.DeleteTopics(r.ctx, topicsNamed(r.topic, topics)...) // other cases list topics
}

func topicsNamed(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, ".", i+1)
	}
	return names
}
