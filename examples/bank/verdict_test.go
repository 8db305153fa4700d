package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// seen is a record of the topic: event 1 has the id 00..01.
type seen struct {
	event     int
	partition int32
	account   string
	number    int64
}

func TestTally(t *testing.T) {
	for _, c := range []struct {
		name      string
		committed int
		records   []seen
		want      Verdict
		fault     string // a part of the error, empty for none
	}{
		{
			name: "all is well", committed: 3,
			records: []seen{{1, 0, "a", 1}, {3, 0, "a", 2}, {2, 1, "b", 1}},
			want:    Verdict{Committed: 3, Published: 3},
		},
		{
			name: "nothing committed, nothing published",
			want: Verdict{},
		},
		{
			name: "missing at the end", committed: 3,
			records: []seen{{1, 0, "a", 1}},
			want:    Verdict{Committed: 3, Published: 1, Missing: 2},
			fault:   "2 committed events are missing",
		},
		{
			name: "a gap is missing, not out of order", committed: 3,
			records: []seen{{1, 0, "a", 1}, {3, 0, "a", 3}},
			want:    Verdict{Committed: 3, Published: 2, Missing: 1},
			fault:   "1 committed events are missing",
		},
		{
			name: "a part sent again is doubled, not out of order", committed: 3,
			records: []seen{{1, 0, "a", 1}, {2, 0, "a", 2}, {1, 0, "a", 1}, {2, 0, "a", 2}, {3, 0, "a", 3}},
			want:    Verdict{Committed: 3, Published: 3, Duplicates: 2},
			fault:   "2 records are duplicates",
		},
		{
			name: "three copies are two duplicates", committed: 1,
			records: []seen{{1, 0, "a", 1}, {1, 0, "a", 1}, {1, 1, "a", 1}},
			want:    Verdict{Committed: 1, Published: 1, Duplicates: 2},
			fault:   "2 records are duplicates",
		},
		{
			name: "swapped", committed: 2,
			records: []seen{{2, 0, "a", 2}, {1, 0, "a", 1}},
			want:    Verdict{Committed: 2, Published: 2, Disordered: 1},
			fault:   "1 events are out of their account's order",
		},
		{
			name: "an account on two partitions", committed: 2,
			records: []seen{{1, 0, "a", 1}, {2, 1, "a", 2}},
			want:    Verdict{Committed: 2, Published: 2, Disordered: 1},
			fault:   "1 events are out of their account's order",
		},
		{
			name: "of no transaction that committed", committed: 1,
			records: []seen{{1, 0, "a", 1}, {7, 0, "a", 2}},
			want:    Verdict{Committed: 1, Published: 1, Unknown: 1},
			fault:   "1 records carry an event that nobody committed",
		},
		{
			name: "somebody's own insert has no number", committed: 2,
			records: []seen{{1, 0, "acc-7", 5}, {2, 0, "acc-7", 0}},
			want:    Verdict{Committed: 2, Published: 2},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tally := newTally()
			for event := 1; event <= c.committed; event++ {
				var id pgtype.UUID
				if err := id.Scan(uuid(event)); err != nil {
					t.Fatal(err)
				}
				tally.commit(id)
			}
			for _, r := range c.records {
				value, err := json.Marshal(deposited{Account: r.account, Number: r.number})
				if err != nil {
					t.Fatal(err)
				}
				tally.record(uuid(r.event), r.partition, value)
			}
			got := tally.result()
			if got != c.want {
				t.Errorf("verdict %+v, want %+v", got, c.want)
			}
			switch fault := got.fault(); {
			case (fault != nil) != (c.fault != ""):
				t.Errorf("fault %v, want %q", fault, c.fault)
			case fault != nil && !strings.Contains(fault.Error(), c.fault):
				t.Errorf("fault %v, want %q", fault, c.fault)
			}
		})
	}
}

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func TestTallyRefusesRecordsWithoutAnEventID(t *testing.T) {
	tally := newTally()
	tally.record("", 0, []byte(`{}`))
	tally.record("not a uuid", 0, nil)
	if got := tally.result(); got.Unknown != 2 {
		t.Errorf("verdict %+v, want two unknown records", got)
	}
}

// The line is read by programs: its keys are part of what the demo promises.
func TestVerdictJSON(t *testing.T) {
	got, err := json.Marshal(Verdict{Committed: 5, Published: 4, Missing: 1, Duplicates: 2, P50: 2.5, P99: 14, Unknown: 1})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"committed":5,"published":4,"missing":1,"duplicates":2,"p50_ms":2.5,"p99_ms":14}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
