package main

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/verdict"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// part is the records of some rows of a transaction.
func part(writer int, number int64, size int, commit pglogrepl.LSN, indexes ...int) (records []arrival) {
	for _, index := range indexes {
		records = append(records, arrival{
			id: id{writer, number}, index: index, size: size, key: fmt.Sprintf("k-%d-%d", writer, max(index, 0)%keysOfWriter),
			place:    verdict.Place{Topic: topics[max(index, 0)%2]},
			position: decode.Position{CommitLSN: commit, Ordinal: uint32(index + 1)},
		})
	}
	return records
}

func all(size int) (indexes []int) {
	for i := range size {
		indexes = append(indexes, i)
	}
	return indexes
}

type counts struct{ missing, duplicates, reordered, altered, foreign, torn, split int }

// Everything the verdict must find, each by the smallest case.
func TestCollector(t *testing.T) {
	whole := part(1, 1, 3, 10, 0, 1, 2)
	next := part(1, 2, 2, 20, 0, 1)
	moved := part(1, 2, 2, 20, 0, 1)
	moved[0].place.Partition = 1
	elsewhere := part(1, 1, 3, 11, 2)
	uncounted := part(1, 1, 3, 10, 2)
	uncounted[0].position.Ordinal = 7
	for name, c := range map[string]struct {
		records [][]arrival
		written map[id]int
		splits  map[pglogrepl.LSN]uint32
		want    counts
	}{
		"all there":             {[][]arrival{whole, next}, map[id]int{{1, 1}: 3, {1, 2}: 2}, nil, counts{}},
		"nothing there":         {nil, map[id]int{{1, 1}: 3}, nil, counts{missing: 3}},
		"torn":                  {[][]arrival{whole[:2]}, map[id]int{{1, 1}: 3}, nil, counts{missing: 1, torn: 1}},
		"split":                 {[][]arrival{whole[:2]}, map[id]int{{1, 1}: 3}, map[pglogrepl.LSN]uint32{10: 2}, counts{missing: 1, split: 1}},
		"split elsewhere":       {[][]arrival{whole[:2]}, map[id]int{{1, 1}: 3}, map[pglogrepl.LSN]uint32{10: 1}, counts{missing: 1, torn: 1}},
		"split with a hole":     {[][]arrival{whole[1:]}, map[id]int{{1, 1}: 3}, map[pglogrepl.LSN]uint32{10: 2}, counts{missing: 1, torn: 1}},
		"twice":                 {[][]arrival{whole, whole[2:]}, map[id]int{{1, 1}: 3}, nil, counts{duplicates: 1}},
		"out of order":          {[][]arrival{next, whole}, map[id]int{{1, 1}: 3, {1, 2}: 2}, nil, counts{reordered: 2}},
		"in another partition":  {[][]arrival{whole, moved}, map[id]int{{1, 1}: 3, {1, 2}: 2}, nil, counts{reordered: 1}},
		"never committed":       {[][]arrival{whole}, nil, nil, counts{foreign: 3}},
		"a ghost":               {[][]arrival{whole, part(1, 1, 3, 10, ghost)}, map[id]int{{1, 1}: 3}, nil, counts{altered: 1}},
		"another size":          {[][]arrival{whole}, map[id]int{{1, 1}: 4}, nil, counts{altered: 1}},
		"another commit":        {[][]arrival{whole[:2], elsewhere}, map[id]int{{1, 1}: 3}, nil, counts{altered: 1, missing: 1, torn: 1}},
		"a wrong ordinal":       {[][]arrival{whole[:2], uncounted}, map[id]int{{1, 1}: 3}, nil, counts{altered: 1, missing: 1, torn: 1}},
		"order within the rows": {[][]arrival{part(1, 1, 9, 10, 8), part(1, 1, 9, 10, all(8)...)}, map[id]int{{1, 1}: 9}, nil, counts{reordered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := newCollector()
			for _, records := range c.records {
				for _, r := range records {
					seen.take(&r)
				}
			}
			torn, split := seen.torn(c.splits)
			got := counts{duplicates: seen.duplicates, reordered: seen.reordered, torn: len(torn), split: len(split)}
			got.missing, _, got.foreign = seen.missing(c.written)
			got.altered = seen.altered
			if got != c.want {
				t.Errorf("got %+v, want %+v\n%v", got, c.want, seen.examples)
			}
		})
	}
}

func TestParse(t *testing.T) {
	good := &kgo.Record{
		Topic: topics[1], Partition: 2, Offset: 9, Key: []byte("k-1-1"), Value: []byte("1/42/1/100/some/padding"),
		Headers: []kgo.RecordHeader{{Key: outbox.HeaderPosition, Value: []byte("00000001-00000000000000FF-00000002")}},
	}
	a, err := parse(good)
	if err != nil || a.id != (id{1, 42}) || a.index != 1 || a.size != 100 || a.position != (decode.Position{CommitLSN: 255, Ordinal: 2}) || a.place.Partition != 2 {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, value := range []string{"", "1/2/3", "a/1/1/1/", "1/1/1/b/"} {
		bad := *good
		bad.Value = []byte(value)
		if _, err := parse(&bad); err == nil {
			t.Errorf("%q was read", value)
		}
	}
}
