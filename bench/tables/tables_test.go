package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func position(n int) string { return fmt.Sprintf("00000001-0000000000000001-%08X", n) }

// record is what difference finds nothing wrong with.
func record(n int, of stream) (expectedRecord, *kgo.Record) {
	want := expectedRecord{n: int64(n), topic: "t", key: []byte("k"), value: fmt.Append(nil, n), names: []string{"h0", "h1", "table"}, headers: [][]byte{nil, {}, []byte(of.table)}}
	return want, &kgo.Record{Topic: "t", Key: want.key, Value: want.value, Headers: []kgo.RecordHeader{
		{Key: "walstream-position", Value: []byte(position(n))},
		{Key: "walstream-event-id", Value: []byte(position(n))},
		{Key: "walstream-pipeline", Value: []byte(of.pipeline)},
		{Key: "h0"},
		{Key: "h1", Value: []byte{}},
		{Key: "table", Value: []byte(of.table)},
	}}
}

// TestJudge: each way in which a record can be wrong is seen.
func TestJudge(t *testing.T) {
	of := stream{"p", "0"}
	two, three := int32(2), int64(3)
	for name, spoil := range map[string]func(*expectedRecord, *kgo.Record){
		"":          func(*expectedRecord, *kgo.Record) {},
		"topic":     func(_ *expectedRecord, r *kgo.Record) { r.Topic = "u" },
		"key":       func(_ *expectedRecord, r *kgo.Record) { r.Key = nil },
		"value":     func(w *expectedRecord, r *kgo.Record) { w.value, r.Value = []byte{}, nil },
		"partition": func(w *expectedRecord, _ *kgo.Record) { w.partition = &two },
		"timestamp": func(w *expectedRecord, _ *kgo.Record) { w.at = &three },
		"headers":   func(_ *expectedRecord, r *kgo.Record) { r.Headers = r.Headers[:5] },
		"h0":        func(_ *expectedRecord, r *kgo.Record) { r.Headers[3].Value = []byte{} },
		"event-id":  func(w *expectedRecord, _ *kgo.Record) { w.id = []byte("7") },
	} {
		want, got := record(1, of)
		spoil(&want, got)
		if what := difference(&want, got, of); (what == "") != (name == "") || !strings.Contains(what, name) {
			t.Errorf("%s: %q", name, what)
		}
	}
	one, first := record(1, of)
	other, second := record(2, of)
	for _, c := range []struct {
		expected []expectedRecord
		got      []*kgo.Record
		want     verdict
	}{
		{[]expectedRecord{one, other}, []*kgo.Record{first, second}, verdict{}},
		{[]expectedRecord{one, other}, []*kgo.Record{first}, verdict{Lost: 1}},
		{[]expectedRecord{one}, []*kgo.Record{first, second}, verdict{Unknown: 1}},
		{[]expectedRecord{one, other}, []*kgo.Record{second, first}, verdict{Altered: 2}},
	} {
		v := verdict{}
		v.compare(of, c.expected, c.got)
		if v.Lost != c.want.Lost || v.Unknown != c.want.Unknown || v.Altered != c.want.Altered || v.wrong() != c.want.wrong() {
			t.Errorf("%+v, want %+v", v, c.want)
		}
	}
}

// TestSeedRepeats: a seed makes the same tables and the same life.
func TestSeedRepeats(t *testing.T) {
	life := func() (all string) {
		r := rand.New(rand.NewPCG(7, 1))
		table, ddl := newTable(r, 0, "s", "t", "base", true, false)
		all = strings.Join(ddl, ";") + fmt.Sprint(table.settings())
		for range 50 {
			c := table.change(r, false)
			if before := table.clone(); c.apply != nil {
				c.apply(table)
				if r.IntN(2) == 0 {
					table = before
				}
			}
			sql, _ := table.insert(r)
			all += strings.Join(c.sql, ";") + sql
		}
		return all
	}
	if first, second := life(), life(); first != second {
		t.Error("not the same")
	}
}
