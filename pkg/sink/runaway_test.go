package sink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
)

// A stream of good and bad rows of two topics, at random: it stops at the very row
// that the plain rule names, every good row before it is published, and no bad row
// behind it is let pass. The rule is the same whatever is under way meanwhile.
func TestRunawayStopsWhereTheRuleSays(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		for seed := range uint64(12) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			topics := []string{createTopic(t, brokers, 2, map[string]string{"max.message.bytes": "2000"}), createTopic(t, brokers, 1, map[string]string{"max.message.bytes": "2000"})}
			cfg := testConfig(t, brokers)
			cfg.OnPoison, cfg.Seen, cfg.PoisonLimit = Skip, NewSeen(), 4
			var events []*outbox.Event
			inRow, all, stop, stopTopic := map[string]int{}, 0, -1, ""
			good := 0
			for n := range 400 {
				topic := topics[rnd.IntN(2)]
				e := event(topic, fmt.Sprint("k", n%3), fmt.Sprint(n), n)
				e.RowID = fmt.Sprint(n)
				bad := rnd.IntN(100) < 30+int(seed)*3
				if bad {
					e.Value = []byte(strings.Repeat("x", 3000))
				}
				switch {
				case stop >= 0:
				case !bad:
					good, inRow[topic], all = good+1, 0, 0
				case inRow[topic] == cfg.PoisonLimit:
					stop, stopTopic = n, topic
				case all == cfg.PoisonLimit:
					stop = n
				default:
					inRow[topic], all = inRow[topic]+1, all+1
				}
				events = append(events, e)
			}
			_, err := persist(t, start, cfg, single(events)...)
			published := 0
			for _, topic := range topics {
				published += len(seen(t, brokers, topic))
			}
			if published != good {
				t.Errorf("seed %d: %d published, want %d", seed, published, good)
			}
			if stop < 0 {
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				continue
			}
			over, _ := errors.AsType[*RunawayError](err)
			delivery, _ := errors.AsType[*DeliveryError](err)
			if over == nil || delivery == nil || delivery.RowID != fmt.Sprint(stop) || over.Topic != stopTopic || Retriable(err) {
				t.Errorf("seed %d: ended with %v, want row %d, topic %q", seed, err, stop, stopTopic)
			}
			if got := cfg.Seen.BadRun(); got != cfg.PoisonLimit {
				t.Errorf("seed %d: a run of %d", seed, got)
			}
		}
	})
}

// The same where only the broker can tell, over many starts: rows with a time that it
// does not take, while another topic is well.
func TestRunawayThatOnlyTheBrokerCanTell(t *testing.T) {
	k := testenv.SharedKafka(t)
	if k.From == testenv.Kfake {
		t.Skip("kfake takes such rows")
	}
	everySink(t, func(t *testing.T, start starter) {
		topic := createTopic(t, k.Brokers, 1, youngOnly)
		well := createTopic(t, k.Brokers, 1, nil)
		cfg := testConfig(t, k.Brokers)
		cfg.OnPoison, cfg.Seen, cfg.PoisonLimit = DeadLetter, NewSeen(), 3
		var events, letters []*outbox.Event
		var want []string
		for n := range 200 {
			e := event(topic, "k", fmt.Sprint(n), n)
			e.RowID = fmt.Sprint(n)
			switch {
			case n%10 == 0:
				e.Topic = well
			case n == 20-1, n == 20+1, n >= 101: // two with none between them, then all
				letters = append(letters, old(e))
			default:
				want = append(want, string(e.Value))
			}
			events = append(events, e)
		}
		_, err := persist(t, start, cfg, single(events)...)
		over, _ := errors.AsType[*RunawayError](err)
		delivery, _ := errors.AsType[*DeliveryError](err)
		if over == nil || delivery == nil || delivery.RowID != "104" || over.Topic != topic {
			t.Fatalf("ended with %v", err)
		}
		if text := err.Error(); !strings.Contains(text, "the 3 rows of topic") || !strings.Contains(text, "dead-letters retry") {
			t.Error(text)
		}
		if got := firsts(values(seen(t, k.Brokers, topic))); !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		checkLetters(t, k.Brokers, cfg, letters[:5])
	})
}

// A run that is kept is bounded, whatever a column of bad names holds.
func TestRunsAreBounded(t *testing.T) {
	var r runs
	for n := range uint32(3 * runsKept) {
		at := single([]*outbox.Event{event("", "", "", 0)})[0][0].Position
		at.Ordinal += n
		r.extend(fmt.Sprint("bad name ", n), at, at, 10)
		r.extend(allTopics, at, at, 10)
	}
	if len(r.topics) > runsKept+1 || r.longest() != 10 {
		t.Errorf("%d topics, the longest run %d", len(r.topics), r.longest())
	}
}
