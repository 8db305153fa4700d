package sink

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/testenv"
)

func TestReached(t *testing.T) {
	type ack struct {
		topic     string
		partition int32
		offset    int64
		lost      bool
	}
	var r reached
	for n, a := range []ack{
		{"a", 0, 5, false},
		{"a", 0, 6, false},
		{"b", 0, 2, false},
		{"a", 2, 0, false},
		{"a", 0, 9, false},
		{"a", 0, 7, true},
		{"a", 0, 8, false},
		{"b", 0, 2, true},
		{"b", 1, 0, false},
	} {
		if _, before := r.note(a.topic, a.partition, a.offset); a.offset < before != a.lost {
			t.Errorf("%d, %+v: before %d", n, a, before)
		}
	}
	r.forget("a", [16]byte{1})
	if _, before := r.note("a", 0, 0); before != 0 {
		t.Error("a topic made anew has lost nothing")
	}
	r.forget("a", [16]byte{1})
	if _, before := r.note("a", 0, 0); before != 1 {
		t.Error("the same topic was forgotten")
	}
}

// A partition that goes back is told, whatever the delivery: sequence numbers do
// not tell in every one.
func TestLossIsTold(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 2, nil)
		log := new(locked)
		cfg := testConfig(t, brokers)
		cfg.Logger = zerolog.New(log).Level(zerolog.InfoLevel)
		cfg.Seen = NewSeen()
		r := start(t, cfg)
		row := func(partition int32) {
			e := event(topic, "k", "x", 1)
			e.Partition = partition
			r.transaction(e)
			r.untilConfirmed()
		}
		row(0)
		row(1)
		row(0)
		row(1)
		if strings.Contains(log.String(), "has lost") {
			t.Fatalf("told without a loss: %s", log)
		}
		cfg.Seen.reached.note(topic, 0, 100) // as if it had been acknowledged
		row(0)
		for _, part := range []string{"has lost what it acknowledged before", topic, `"acknowledged_up_to":100`} {
			if strings.Count(log.String(), part) == 0 {
				t.Errorf("log %s lacks %s", log, part)
			}
		}
	})
}

// Two records of a partition in a row, with nothing lost or with, and what a
// record costs.
func TestLossWithinABatch(t *testing.T) {
	log := new(locked)
	l := losses{seen: NewSeen(), log: zerolog.New(log)}
	ack := func(partition int32, offsets ...int64) {
		for _, offset := range offsets {
			l.OnProduceRecordUnbuffered(&kgo.Record{Topic: "a", Partition: partition, Offset: offset}, nil)
		}
	}
	ack(0, 0, 1, 2, 3, 6, 7, 8) // a marker of a transaction lies between
	ack(1, 0, 1)
	ack(0, 9, 10)
	if log.String() != "" {
		t.Errorf("told without a loss: %s", log)
	}
	ack(0, 9, 10, 11) // the batch of 9 and 10 is gone
	if n := strings.Count(log.String(), "has lost"); n != 1 {
		t.Errorf("told %d times: %s", n, log)
	}
	// The records 12 to 15 are gone; the marker of their transaction, written late, is
	// now at 12. Another client meets that: there is one for each lane.
	ack(0, 12, 13, 14, 15)
	other := losses{seen: l.seen, log: l.log}
	other.OnProduceRecordUnbuffered(&kgo.Record{Topic: "a", Offset: -1}, nil) // the broker did not say
	other.OnProduceRecordUnbuffered(&kgo.Record{Topic: "a", Offset: 13}, nil)
	if n := strings.Count(log.String(), "has lost"); n != 2 {
		t.Errorf("told %d times: %s", n, log)
	}
}

func BenchmarkLosses(b *testing.B) {
	l := losses{seen: NewSeen(), log: zerolog.Nop()}
	r := &kgo.Record{Topic: "a"}
	for n := range b.N {
		r.Partition, r.Offset = int32(n/100%3), int64(n)
		l.OnProduceRecordUnbuffered(r, nil)
	}
}
