package sink

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
)

// keyless rows among others, each a transaction of its own, and what of them has one.
func keyless(topic string, n int, bad func(n int) bool) (events, letters []*outbox.Event, want []string) {
	for i := range n {
		e := event(topic, "k", fmt.Sprint(i), i)
		switch {
		case bad(i):
			e.Key = nil
			letters = append(letters, e)
		case i%2 == 0:
			e.Key = []byte{} // a key as good as any
			fallthrough
		default:
			want = append(want, string(e.Value))
		}
		events = append(events, e)
	}
	return events, letters, want
}

// A compacted topic takes no row without a key. That is known before it is sent: no
// row comes twice for it, in at-least-once either, however many such rows there are,
// and none costs a start.
func TestPoisonWithoutAKey(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			for _, policy := range []Policy{Stop, Skip, DeadLetter} {
				for _, setting := range []string{"compact", "compact,delete"} {
					t.Run(string(policy)+" "+setting, func(t *testing.T) {
						topic := createTopic(t, brokers, 1, map[string]string{"cleanup.policy": setting})
						cfg := testConfig(t, brokers)
						cfg.OnPoison, cfg.Seen = policy, NewSeen()
						events, letters, want := keyless(topic, 1500, func(n int) bool { return n%40 == 20 })
						starts, err := persist(t, start, cfg, single(events)...)
						if policy == Stop {
							want, letters = want[:20], letters[:1]
							refused, ok := errors.AsType[*DeliveryError](err)
							if class, bad := Flaw(err); !ok || !bad || class != ClassNoKey || refused.RowID != "20" {
								t.Fatalf("ended with %v", err)
							}
							mustContain(t, err, "no key", "compacted", "cleanup.policy=delete")
							mustBeRunnable(t, brokers, err.Error())
						} else if err != nil || starts != 1 {
							t.Fatalf("%d starts, ended with %v", starts, err)
						}
						if got := values(seen(t, brokers, topic)); !slices.Equal(got, want) {
							t.Errorf("published %d, want %d", len(got), len(want))
						}
						if counts, _ := cfg.Seen.BadRows(); policy != Stop && counts[policy][ClassNoKey] != uint64(len(letters)) {
							t.Errorf("counted %v, want %d", counts, len(letters))
						}
						if policy == DeadLetter {
							checkLetters(t, brokers, cfg, letters)
						}
					})
				}
			}
		})
	})
}

// A topic that is compacted from now on, or no more, while its rows flow: what was
// looked up before does not count, whichever way it changed.
func TestCompactionChangedWhileStreaming(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			topic := createTopic(t, brokers, 1, nil)
			cfg := testConfig(t, brokers)
			cfg.OnPoison, cfg.Seen = Skip, NewSeen()
			clean := func(policy string) {
				t.Helper()
				ctx, asks := within(t, 20*time.Second), open(t, cfg)
				_, err := kadm.NewClient(client(t, brokers)).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}}, topic)
				for set := ""; err == nil && set != policy; { // until the broker has heard of it
					var values map[string]map[string]string
					values, _, err = asks.configs(ctx, []string{topic}, settingCleanup)
					set = values[topic][settingCleanup]
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r := start(t, cfg)
			r.transaction(event(topic, "", "taken", 0))
			r.untilConfirmed()
			clean("compact")
			for _, tp := range r.front().topics { // as it is after an hour, or in another process
				tp.compacted = true
			}
			r.transaction(event(topic, "", "left out", 1))
			r.untilConfirmed()
			clean("delete")
			for _, tp := range r.front().topics {
				tp.asOf = tp.asOf.Add(-factsFresh)
			}
			r.transaction(event(topic, "", "taken again", 2))
			r.untilConfirmed()
			if got := values(seen(t, brokers, topic)); !slices.Equal(got, []string{"taken", "taken again"}) {
				t.Errorf("published %q", got)
			}
			r.close()

			cfg.OnPoison = Stop // it asks as well, when the sink has come to its end
			clean("compact")
			r = start(t, cfg)
			r.transaction(event(topic, "k", "with a key", 3))
			r.untilConfirmed()
			clean("delete")
			r.transaction(event(topic, "", "no more", 4))
			if err := r.untilError(); !Retriable(err) {
				t.Errorf("reported %v", err)
			}
		})
	})
}

// Compacted behind our look-up: the broker refuses the batch, and the look-up of the
// next start knows which row of it is bad, and why.
func TestCompactedBehindTheLookUp(t *testing.T) {
	k := testenv.SharedKafka(t)
	if k.From == testenv.Kfake {
		t.Skip("kfake takes such rows")
	}
	everySink(t, func(t *testing.T, start starter) {
		topic := createTopic(t, k.Brokers, 1, map[string]string{"cleanup.policy": "compact"})
		cfg := testConfig(t, k.Brokers)
		cfg.OnPoison, cfg.Seen = DeadLetter, NewSeen()
		r := start(t, cfg)
		r.transaction(event(topic, "k", "before", 0))
		r.untilConfirmed()
		for _, tp := range r.front().topics {
			tp.compacted = false // when it was looked up
		}
		bad := event(topic, "", "left out", 1)
		r.transaction(bad)
		if err := r.untilError(); !isSentAgain(err) {
			t.Fatalf("reported %v", err)
		}
		r.close()
		again := start(t, cfg)
		again.transaction(bad)
		again.transaction(event(topic, "k", "behind", 2))
		again.untilConfirmed()
		if got := values(seen(t, k.Brokers, topic)); !slices.Equal(got, []string{"before", "behind"}) {
			t.Errorf("published %q", got)
		}
		if counts, _ := cfg.Seen.BadRows(); counts[DeadLetter][ClassNoKey] != 1 {
			t.Errorf("counted %v", counts)
		}
		checkLetters(t, k.Brokers, cfg, []*outbox.Event{bad})
	})
}

// A dead letter without a key is not sent to a topic that takes none, and is to one
// that does.
func TestRetryWithoutAKey(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	k := open(t, testConfig(t, brokers))
	none := &TopicRecord{Headers: []outbox.Header{{Key: letterKey, Value: []byte(noKey)}}}
	for _, c := range []struct {
		setting string
		record  *TopicRecord
		want    Class
	}{
		{"compact", none, ClassNoKey},
		{"compact", &TopicRecord{}, ""},
		{"delete", none, ""},
	} {
		topic := createTopic(t, brokers, 1, map[string]string{"cleanup.policy": c.setting})
		err := k.retryTopic(within(t, 20*time.Second), c.record, topic)
		if class, _ := Flaw(err); class != c.want || err != nil && c.want == "" {
			t.Errorf("%s: %v", c.setting, err)
		}
	}
}
