package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/bench/internal/tooltest"
	"github.com/walstream/walstream/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m).Run()) }

// planted is a fault in the records of a round, and how it is to be reported.
type planted struct {
	name  string
	fault func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record
	found func(*verdict) bool
}

func altered(v *verdict) bool { return v.Altered > 0 && v.Lost+v.Doubled+v.Unknown == 0 }

var plants = []planted{
	{"lost", func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record {
		// In at-least-once a kill may have brought it twice; so with those below.
		at := first(t, all, func(r *kgo.Record) bool { return header(r, "walstream-pipeline") == exact })
		return slices.Delete(all, at, at+1)
	}, func(v *verdict) bool { return v.Lost == 1 }},
	{"doubled in exactly-once", func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record {
		at := first(t, all, func(r *kgo.Record) bool { return header(r, "walstream-pipeline") == exact })
		return append(all, all[at])
	}, func(v *verdict) bool { return v.Doubled == 1 }},
	{"repeated, and not the same", func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record {
		at := first(t, all, func(r *kgo.Record) bool { return header(r, "walstream-pipeline") != exact && r.Value != nil })
		again := *all[at]
		again.Value = append(bytes.Clone(again.Value), '!')
		return append(all, &again)
	}, altered},
	{"repeated in at-least-once", func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record {
		at := first(t, all, func(r *kgo.Record) bool { return header(r, "walstream-pipeline") != exact })
		return append(all, all[at])
	}, func(v *verdict) bool { return v.Repeated > 0 && !v.wrong() }},
	{"of no row", func(t *testing.T, all []*kgo.Record, _ string) []*kgo.Record {
		none := *all[first(t, all, anyRecord)]
		none.Headers = slices.Clone(none.Headers)
		none.Headers[0].Value = []byte("F" + header(&none, "walstream-position")[1:])
		return append(all, &none)
	}, func(v *verdict) bool { return v.Unknown == 1 }},
	{"swapped", func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record {
		a, b := pair(t, all, exact)
		all[a], all[b] = all[b], all[a]
		return all
	}, func(v *verdict) bool { return v.Disorder > 0 }},
	{
		"elsewhere", changed(func(r *kgo.Record) bool { return string(r.Key) == "one key" }, func(r *kgo.Record) { r.Partition = (r.Partition + 1) % 3 }),
		func(v *verdict) bool { return v.Disorder > 0 || v.Altered > 0 },
	},
	{"another topic", changed(anyRecord, func(r *kgo.Record) { r.Topic += "x" }), altered},
	{"another key", changed(anyRecord, func(r *kgo.Record) { r.Key = append(bytes.Clone(r.Key), 0) }), altered},
	{"a byte of the value", changed(func(r *kgo.Record) bool { return len(r.Value) > 0 }, func(r *kgo.Record) {
		r.Value = bytes.Clone(r.Value)
		r.Value[len(r.Value)-1] ^= 1
	}), altered},
	{"NULL for empty", changed(func(r *kgo.Record) bool { return emptyHeader(r) >= 0 }, func(r *kgo.Record) {
		r.Headers = slices.Clone(r.Headers)
		r.Headers[emptyHeader(r)].Value = nil
	}), altered},
	{"a header less", changed(hasTwo, func(r *kgo.Record) { r.Headers = slices.Delete(slices.Clone(r.Headers), ourHeaders, ourHeaders+1) }), altered},
	{"a header more", changed(anyRecord, func(r *kgo.Record) { r.Headers = append(slices.Clip(r.Headers), kgo.RecordHeader{Key: "x"}) }), altered},
	{"headers in another order", changed(hasTwo, func(r *kgo.Record) {
		r.Headers = slices.Clone(r.Headers)
		slices.Reverse(r.Headers[ourHeaders : ourHeaders+2])
	}), altered},
	{"a byte of an event id", changed(anyRecord, func(r *kgo.Record) {
		r.Headers = slices.Clone(r.Headers)
		r.Headers[1].Value = append(bytes.Clone(r.Headers[1].Value), '0')
	}), altered},
	{"an older time", changed(anyRecord, func(r *kgo.Record) { r.Timestamp = r.Timestamp.AddDate(-50, 0, 0) }), altered},
	{"a dead letter less", func(t *testing.T, all []*kgo.Record, exact string) []*kgo.Record {
		at := firstOf(t, all, func(r *kgo.Record) bool { return isLetter(r) && header(r, "walstream-pipeline") == exact })
		return slices.Delete(all, at, at+1)
	}, func(v *verdict) bool { return v.Lost == 1 }},
	{"a dead letter of a good row", func(t *testing.T, all []*kgo.Record, _ string) []*kgo.Record {
		letter := *all[firstOf(t, all, isLetter)]
		letter.Headers = slices.Clone(letter.Headers)
		letter.Headers[0].Value = []byte("F" + header(&letter, "walstream-position")[1:])
		return append(all, &letter)
	}, func(v *verdict) bool { return v.Unknown == 1 }},
	{"a dead letter's event id", func(t *testing.T, all []*kgo.Record, _ string) []*kgo.Record {
		at := firstOf(t, all, isLetter)
		letter := *all[at]
		letter.Headers = slices.Clone(letter.Headers)
		letter.Headers[1].Value = append(bytes.Clone(letter.Headers[1].Value), '0')
		all[at] = &letter
		return all
	}, altered},
	{"a CloudEvent's time", changed(func(r *kgo.Record) bool { return header(r, "ce_time") != "" }, func(r *kgo.Record) {
		r.Headers = slices.Clone(r.Headers)
		for i := range r.Headers {
			if r.Headers[i].Key == "ce_time" {
				r.Headers[i].Value = bytes.Replace(r.Headers[i].Value, []byte("T"), []byte(" "), 1)
			}
		}
	}), altered},
}

// ourHeaders come first, then those of the settings.
const ourHeaders = 3

// hasTwo headers of columns.
func hasTwo(r *kgo.Record) bool {
	return len(r.Headers) > ourHeaders+2 && r.Headers[ourHeaders].Key == "h0" && r.Headers[ourHeaders+1].Key == "h1"
}

func emptyHeader(r *kgo.Record) int {
	return slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Value != nil && len(h.Value) == 0 })
}

func isLetter(r *kgo.Record) bool { return strings.HasPrefix(r.Topic, lettersTopic) }

func anyRecord(*kgo.Record) bool { return true }

// changed plants a fault in the first record that can have it.
func changed(can func(*kgo.Record) bool, change func(*kgo.Record)) func(*testing.T, []*kgo.Record, string) []*kgo.Record {
	return func(t *testing.T, all []*kgo.Record, _ string) []*kgo.Record {
		at := first(t, all, can)
		r := *all[at]
		change(&r)
		all[at] = &r
		return all
	}
}

// first record that can; dead letters are none.
func first(t *testing.T, all []*kgo.Record, can func(*kgo.Record) bool) int {
	t.Helper()
	return firstOf(t, all, func(r *kgo.Record) bool { return !isLetter(r) && can(r) })
}

func firstOf(t *testing.T, all []*kgo.Record, can func(*kgo.Record) bool) int {
	t.Helper()
	at := slices.IndexFunc(all, can)
	if at < 0 {
		t.Fatal("no record of this round can have the fault: choose another plantedSeed")
	}
	return at
}

// pair is two records of one key and stream of a pipeline, in their order.
func pair(t *testing.T, all []*kgo.Record, pipeline string) (a, b int) {
	t.Helper()
	last := map[string]int{}
	for i, r := range all {
		if r.Key == nil || isLetter(r) || header(r, "walstream-pipeline") != pipeline {
			continue
		}
		of := strings.Join([]string{header(r, "walstream-pipeline"), header(r, "table"), r.Topic, string(r.Key)}, "\x00")
		if before, found := last[of]; found && header(all[before], "walstream-position") < header(r, "walstream-position") {
			return before, i
		}
		last[of] = i
	}
	t.Fatal("no two records with the same key")
	return 0, 0
}

// TestPlantedFaults: a round with nothing wrong, then the same records with one
// fault each, as a walstream that has it would have published them.
func TestPlantedFaults(t *testing.T) {
	pg, kafka, binary := tooltest.Servers(t, testenv.PGOptions{Major: testenv.NewestMajor}, testenv.KafkaOptions{Props: map[string]string{"log.retention.ms": "-1"}})
	r := &round{o: &options{binary: binary}, seed: plantedSeed, pg: pg, brokers: kafka.Brokers, dir: t.TempDir()}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	all, err := r.stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := judged(t, r, all); v.wrong() || v.Rows == 0 || v.Records < 2*v.Rows {
		t.Fatalf("%d records of %d rows, and wrong without a fault: %v\n%s", v.Records, v.Rows, v.wrong(), strings.Join(v.examples, "\n"))
	}
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			if v := judged(t, r, p.fault(t, slices.Clone(all), r.slot(1))); !p.found(v) {
				t.Errorf("%d lost, %d altered, %d doubled, %d unknown, %d out of order:\n%s",
					v.Lost, v.Altered, v.Doubled, v.Unknown, v.Disorder, strings.Join(v.examples, "\n"))
			}
		})
	}
}

// plantedSeed's round has records for every fault.
const plantedSeed = 22

func judged(t *testing.T, r *round, all []*kgo.Record) *verdict {
	t.Helper()
	v, err := r.judge(context.WithoutCancel(t.Context()), all)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
