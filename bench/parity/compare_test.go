package main

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func int32p(n int32) *int32 { return &n }

// pair returns equal answers of both sides, to be changed.
func pair() (debezium, walstream *answer) {
	debezium = &answer{
		Outcome: published, Topic: "t", Key: []byte("k"), Value: []byte("v"), Partition: int32p(3),
		Headers:   []header{{"__debezium.context.taskId", []byte("0")}, {"id", []byte("1")}, {"type", nil}},
		Timestamp: noon.Add(time.Hour).UnixMilli(), Processed: noon.Add(time.Hour).UnixMilli(),
	}
	walstream = &answer{
		Outcome: published, Topic: "t", Key: []byte("k"), Value: []byte("v"), Partition: int32p(3),
		Headers: []header{{ownHeaders[0], nil}, {ownHeaders[1], nil}, {ownHeaders[2], nil}, {"id", []byte("1")}, {"type", nil}},
		// The commit time, where Debezium has the time it saw the row.
		Timestamp: noon.UnixMilli(),
	}
	return debezium, walstream
}

// TestCompare: whatever differs is found, and nothing else is.
func TestCompare(t *testing.T) {
	when := written{noon.Add(-time.Millisecond), noon.Add(time.Millisecond)}
	for name, c := range map[string]struct {
		change func(d, w *answer)
		want   []difference
	}{
		"nothing":            {func(_, _ *answer) {}, nil},
		"topic":              {func(_, w *answer) { w.Topic = "u" }, []difference{{"topic", "t", "u"}}},
		"key":                {func(_, w *answer) { w.Key = []byte("l") }, []difference{{"key", "k", "l"}}},
		"null and empty":     {func(d, w *answer) { d.Value, w.Value = nil, []byte{} }, []difference{{"value", "(NULL)", "(empty)"}}},
		"word and null":      {func(d, w *answer) { d.Value, w.Value = nil, []byte("(NULL)") }, []difference{{"value", "(NULL)", "(hex 284e554c4c29)"}}},
		"bytes":              {func(d, w *answer) { d.Value, w.Value = []byte{0xff}, []byte{0xfe} }, []difference{{"value", "(hex ff)", "(hex fe)"}}},
		"header":             {func(_, w *answer) { w.Headers[3].Value = []byte("2") }, []difference{{"header id", "1", "2"}}},
		"header null":        {func(_, w *answer) { w.Headers[4].Value = []byte{} }, []difference{{"header type", "(NULL)", "(empty)"}}},
		"header missing":     {func(_, w *answer) { w.Headers = w.Headers[:4] }, []difference{{"headers", "id, type", "id"}}},
		"header order":       {func(_, w *answer) { slices.Reverse(w.Headers[3:]) }, []difference{{"order of headers", "id, type", "type, id"}}},
		"own header missing": {func(_, w *answer) { w.Headers = w.Headers[1:] }, []difference{{"own headers", "walstream-position, walstream-event-id, walstream-pipeline", "walstream-event-id, walstream-pipeline"}}},
		"partition":          {func(_, w *answer) { w.Partition = int32p(4) }, []difference{{"partition", "3", "4"}}},
		"no key":             {func(d, w *answer) { d.Key, w.Key, d.Partition = nil, nil, nil }, nil},
		"no key, partition":  {func(d, w *answer) { d.Key, w.Key, w.Partition = nil, nil, int32p(1) }, []difference{{"partition", "3", "1"}}},
		"own time":           {func(d, w *answer) { d.Timestamp = 1000; w.Timestamp = 1000 }, nil},
		"other time":         {func(d, _ *answer) { d.Timestamp = 1000 }, []difference{{"timestamp", "1970-01-01T00:00:01.000Z", "2026-11-30T12:00:00.000Z"}}},
		"not the commit":     {func(_, w *answer) { w.Timestamp += 5 }, []difference{{"timestamp", "2026-11-30T13:00:00.000Z", "2026-11-30T12:00:00.005Z"}}},
		"both refuse": {func(d, w *answer) {
			*d, *w = answer{Outcome: refused, Error: "x"}, answer{Outcome: refused, Error: "y"}
		}, nil},
		"one refuses": {func(d, _ *answer) { *d = answer{Outcome: refused, Error: "x"} }, []difference{{"outcome", "refused: x", "record"}}},
		"one drops":   {func(_, w *answer) { *w = answer{Outcome: dropped} }, []difference{{"outcome", "record", "nothing"}}},
	} {
		d, w := pair()
		c.change(d, w)
		if got, _ := compare(d, w, when); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestShowLong(t *testing.T) {
	a, b := make([]byte, shown+1), make([]byte, shown+1)
	b[shown] = 1
	if show(a) == show(b) {
		t.Error("long values that differ in one byte look alike")
	}
}

// TestJudge: no difference without its explanation, no explanation without its
// difference.
func TestJudge(t *testing.T) {
	e := &explanations{
		Rules: map[string]string{"r": "x"},
		Cases: []explained{{"a", "key", "why", "1", "2"}, {"b", "key", "why", "1", "2"}},
	}
	same, other := difference{"key", "1", "2"}, difference{"key", "1", "3"}
	for name, c := range map[string]struct {
		found map[string][]difference
		rules map[string]bool
		want  verdict
	}{
		"as explained":      {map[string][]difference{"a": {same}, "b": {same}, "c": nil}, map[string]bool{"r": true}, verdict{Cases: 3, Equal: 1, Explained: 2}},
		"another text":      {map[string][]difference{"a": {same}, "b": {other}}, map[string]bool{"r": true}, verdict{Cases: 2, Explained: 1, Unexplained: 1, Stale: 1}},
		"another part too":  {map[string][]difference{"a": {same}, "b": {same, {"value", "1", "2"}}}, map[string]bool{"r": true}, verdict{Cases: 2, Explained: 1, Unexplained: 1}},
		"of another case":   {map[string][]difference{"a": {same}, "b": {same}, "c": {same}}, map[string]bool{"r": true}, verdict{Cases: 3, Explained: 2, Unexplained: 1}},
		"equal after all":   {map[string][]difference{"a": nil, "b": {same}}, map[string]bool{"r": true}, verdict{Cases: 2, Equal: 1, Explained: 1, Stale: 1}},
		"rule needed never": {map[string][]difference{"a": {same}, "b": {same}}, nil, verdict{Cases: 2, Explained: 2, Stale: 1}},
	} {
		v := judge(e, c.found, c.rules)
		if v.Cases != c.want.Cases || v.Equal != c.want.Equal || v.Explained != c.want.Explained || v.Unexplained != c.want.Unexplained || v.Stale != c.want.Stale {
			t.Errorf("%s: %+v, want %+v", name, *v, c.want)
		}
		if wrong := v.wrong() != nil; wrong != (c.want.Unexplained+c.want.Stale > 0) {
			t.Errorf("%s: wrong is %v", name, v.wrong())
		}
	}
}

func TestLoadExplanations(t *testing.T) {
	rules := "rules: {own-headers: x, connector-headers: x, commit-time: x, no-key: x}\n"
	for text, ok := range map[string]bool{
		rules + "reasons: {r: x}\ncases: [{case: a, part: key, reason: r, debezium: '1', walstream: '2'}]": true,
		rules + "reasons: {r: x}\ncases: [{case: a, part: key, reason: q, debezium: '1', walstream: '2'}]": false,
		rules + "reasons: {r: x}\ncases: [{case: a, part: key, reason: r, debezium: '1', walstream: '1'}]": false,
		rules + "reasons: {r: x}\ncases: []": false,
		"reasons: {}\ncases: []":             false,
	} {
		if _, err := loadExplanations([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
