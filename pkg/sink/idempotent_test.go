package sink

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestPublishAndCheckpoint(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 3, nil)
		k := open(t, testConfig(t, brokers))
		ctx := within(t, 30*time.Second)
		if _, found, err := k.Load(ctx); err != nil || found {
			t.Fatalf("load before anything was written: found %v, %v", found, err)
		}
		c := claim(t, k)
		if _, found, err := c.Load(ctx); err != nil || found {
			t.Fatalf("load after the claim: found %v, %v", found, err)
		}
		base := baseRecord(k.cfg.Pipeline)
		if err := c.Write(ctx, base); err != nil {
			t.Fatal(err)
		}
		i := c.NewIdempotent(base)
		t.Cleanup(i.Close)
		r := drive(t, i)
		const rows = 500
		for n := range rows {
			r.transaction(event(topic, fmt.Sprint("k", n%7), fmt.Sprint(n), n))
		}
		r.untilConfirmed()
		if r.acked != rows {
			t.Fatalf("acknowledged %d of %d", r.acked, rows)
		}
		last := map[string]int{}
		records := seen(t, brokers, topic)
		for _, record := range records {
			var n int
			_, _ = fmt.Sscan(string(record.Value), &n)
			if before, ok := last[string(record.Key)]; ok && n <= before {
				t.Errorf("key %s: %d after %d", record.Key, n, before)
			}
			last[string(record.Key)] = n
		}
		if len(records) != rows {
			t.Errorf("the topic holds %d records, not %d", len(records), rows)
		}
		got, found, err := c.Load(ctx)
		if err != nil || !found || got.Edge() != edgeAt(r.lsn) {
			t.Fatalf("loaded %+v, found %v, %v; want the edge %+v", got, found, err, edgeAt(r.lsn))
		}
		if got.SystemID != base.SystemID || got.Version != "1.2.3" {
			t.Errorf("the record lost its fields: %+v", got)
		}
	})
}

// A second instance ends the first: what that publishes from then on counts for
// nobody in exactly-once, and moves no checkpoint in either.
func TestSecondClaimFencesTheFirst(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			topic := createTopic(t, brokers, 1, nil)
			cfg := testConfig(t, brokers)
			r := start(t, cfg)
			for n := range 3 { // so that both lanes have been used
				r.transaction(event(topic, "k", "one", n))
				r.untilConfirmed()
			}
			confirmed := r.ledger.Confirmed()

			second := claim(t, open(t, cfg))
			r.transaction(event(topic, "k", "two", 3))
			if err := r.untilError(); !errors.Is(err, ErrFenced) || !Retriable(err) {
				t.Fatalf("the fenced instance reported %v", err)
			}
			if got := r.ledger.Confirmed(); got != confirmed {
				t.Fatalf("the fenced instance confirmed %s after %s", got, confirmed)
			}
			got, found, err := second.Load(within(t, 20*time.Second))
			if err != nil || !found || got.Covered != confirmed {
				t.Fatalf("the new owner loaded %v (found %v, %v), want %s", got.Covered, found, err, confirmed)
			}
			if _, exactly := r.sink.(*Transactional); exactly {
				if got := values(seen(t, brokers, topic)); len(got) != 3 {
					t.Errorf("readers see %q", got)
				}
			}
		})
	})
}
