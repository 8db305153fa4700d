package audit

import (
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"

	"github.com/walstream/walstream/internal/verdict"
	"github.com/walstream/walstream/pkg/decode"
)

// The checker of the crash tools holds everything in memory and knows the commit
// order from the rows themselves; this one spills, and believes the positions. On
// whatever mess, they count the same.
func TestAgreesWithTheCrashToolsJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{scope: scope{tables: 1}, facts: facts{
			due: dueness{all: true, next: 1 << 20}, covered: 1 << 40, until: 1 << 40, topics: map[string]topicFacts{},
		}}
		var rows []verdict.Row
		var events []record
		n := rapid.IntRange(0, 30).Draw(t, "rows")
		lsn, ordinal := 1000, 0
		for i := range n {
			if ordinal++; rapid.Bool().Draw(t, "commit") {
				lsn, ordinal = lsn+1000, 1
			}
			key := rapid.IntRange(0, 3).Draw(t, "key")
			r := row{
				id: fmt.Append(nil, i), topic: "t", key: fmt.Append(nil, key), value: fmt.Append(nil, "v", i), xid: uint32(lsn), tid: uint64(i), at: int64(i + 1),
			}
			w.rows = append(w.rows, r)
			rows = append(rows, verdict.Row{ID: string(r.id), Key: string(r.key), Seq: int64(i), Digest: verdict.Digest(r.value)})
			events = append(events, record{
				place: uint32(key % 2), id: r.id, key: r.key, value: r.value, timeline: 1, lsn: pglogrepl.LSN(lsn), ordinal: uint32(ordinal),
			})
		}
		// Published in order, but for what goes wrong: lost, repeated, late.
		var late []record
		var published []record
		for _, e := range events {
			switch rapid.SampledFrom([]string{"", "", "", "", "lost", "late", "twice"}).Draw(t, "fault") {
			case "lost":
			case "late":
				late = append(late, e)
			case "twice":
				published = append(published, e, e)
			default:
				published = append(published, e)
			}
			if len(late) > 0 && rapid.Bool().Draw(t, "now") {
				published, late = append(published, late...), nil
			}
		}
		published = append(published, late...)
		var records []verdict.Record
		offsets := [2]int64{}
		for i := range published {
			e := &published[i]
			e.offset, e.producer = offsets[e.place], 7
			offsets[e.place]++
			records = append(records, verdict.Record{
				ID: string(e.id), Key: string(e.key), Digest: verdict.Digest(e.value), Place: verdict.Place{Topic: "t", Partition: int32(e.place)},
				Offset: e.offset, Producer: 7, Position: decode.Position{CommitLSN: e.lsn, Ordinal: e.ordinal},
			})
		}
		w.records = published
		want := verdict.Judge(rows, records, nil)
		j := newJudge(w.scope, "", rapid.SampledFrom([]int{1, 1 << 20}).Draw(t, "memory"))
		j.places = []place{{"t", 0}, {"t", 1}}
		got := w.judgeWith(t, j)
		for _, c := range []struct {
			what      string
			got, want int
		}{
			{"rows", int(got.Rows), want.Committed},
			{"found", int(got.Found), want.Published},
			{"missing", int(got.Missing), want.Missing},
			{"duplicates", int(got.Duplicates), want.Duplicates},
			{"unexplained", int(got.Unexplained()), want.BeforeCheckpoint},
			{"reordered", int(got.Reordered), want.Reordered},
			{"altered", int(got.Altered), want.Altered},
		} {
			if c.got != c.want {
				t.Errorf("%s: %d, the crash tools' judge says %d", c.what, c.got, c.want)
			}
		}
		if (got.Verdict == Clean) != (want.Err() == nil) {
			t.Errorf("verdict %s, the crash tools' judge says %v", got.Verdict, want.Err())
		}
	})
}
