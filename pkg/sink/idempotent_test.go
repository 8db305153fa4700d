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
		records := consume(t, brokers, topic)
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

func TestSecondClaimFencesTheFirst(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		topic := createTopic(t, brokers, 1, nil)
		cfg := testConfig(t, brokers)
		first := claim(t, open(t, cfg)).NewIdempotent(baseRecord(cfg.Pipeline))
		t.Cleanup(first.Close)
		r := drive(t, first)
		r.transaction(event(topic, "k", "one", 1))
		r.untilConfirmed()
		confirmed := r.ledger.Confirmed()

		k := open(t, cfg)
		second := claim(t, k)
		r.transaction(event(topic, "k", "two", 2))
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
	})
}
