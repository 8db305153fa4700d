package verdict

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
)

// at writes a record in one word: row a..z (its commit LSN is its letter's
// number, its key the letter's case: a..m and n..z are two keys), offset,
// producer.
func at(row string, offset, producer int64) Record {
	key := keyOf(row)
	return Record{
		ID: row, Key: key, Digest: Digest([]byte(row)), Producer: producer, Offset: offset,
		Position: decode.Position{CommitLSN: lsn(row), Ordinal: 1}, Place: place(key),
	}
}

func keyOf(row string) string {
	if row < "n" {
		return "first"
	}
	return "second"
}

func place(key string) Place {
	if key == "first" {
		return Place{"topic", 0}
	}
	return Place{"topic", 1}
}

func lsn(row string) pglogrepl.LSN { return pglogrepl.LSN(row[0]-'a') + 1 }

func committed(names ...string) []Row {
	var rows []Row
	for _, name := range names {
		rows = append(rows, Row{ID: name, Key: keyOf(name), Seq: int64(lsn(name)), Digest: Digest([]byte(name))})
	}
	return rows
}

func restart(checkpoint string, ends ...int64) Restart {
	r := Restart{Ends: map[Place]int64{}}
	if checkpoint != "" {
		r.Checkpoint = lsn(checkpoint)
	}
	for partition, end := range ends {
		r.Ends[Place{"topic", int32(partition)}] = end
	}
	return r
}

// counts in the order of the fields.
func (r *Result) counts() string {
	return fmt.Sprintf("published %d, missing %d, foreign %d, duplicates %d (%d before), reordered %d, altered %d",
		r.Published, r.Missing, r.Foreign, r.Duplicates, r.BeforeCheckpoint, r.Reordered, r.Altered)
}

func with(r Record, change func(*Record)) Record { change(&r); return r }

func TestJudge(t *testing.T) {
	abc := committed("a", "b", "c")
	for _, c := range []struct {
		name     string
		rows     []Row
		records  []Record
		restarts []Restart
		want     string
		fails    string // a part of Err; empty: none
	}{
		{name: "nothing", want: "published 0, missing 0, foreign 0, duplicates 0 (0 before), reordered 0, altered 0"},
		{
			name: "each once, in order", rows: abc,
			records: []Record{at("a", 0, 1), at("b", 1, 1), at("c", 2, 1)},
			want:    "published 3, missing 0, foreign 0, duplicates 0 (0 before), reordered 0, altered 0",
		},
		{
			name: "one missing", rows: abc,
			records: []Record{at("a", 0, 1), at("c", 1, 1)},
			want:    "published 2, missing 1, foreign 0, duplicates 0 (0 before), reordered 0, altered 0", fails: "1 committed rows are missing",
		},
		{
			name: "one of an aborted transaction", rows: abc[:1],
			records: []Record{at("a", 0, 1), at("b", 1, 1)},
			want:    "published 1, missing 0, foreign 1, duplicates 0 (0 before), reordered 0, altered 0", fails: "1 records belong to no committed row",
		},
		{
			name: "two of a key exchanged", rows: abc,
			records: []Record{at("b", 0, 1), at("a", 1, 1), at("c", 2, 1)},
			want:    "published 3, missing 0, foreign 0, duplicates 0 (0 before), reordered 1, altered 0", fails: "1 rows are out of order",
		},
		{
			name: "keys have no order among each other", rows: committed("a", "n", "b"),
			records: []Record{at("n", 0, 1), at("a", 0, 1), at("b", 1, 1)},
			want:    "published 3, missing 0, foreign 0, duplicates 0 (0 before), reordered 0, altered 0",
		},
		{
			name: "a key in two partitions", rows: abc[:2],
			records: []Record{at("a", 0, 1), with(at("b", 0, 1), func(r *Record) { r.Place.Partition = 1 })},
			want:    "published 2, missing 0, foreign 0, duplicates 0 (0 before), reordered 1, altered 0", fails: "1 rows are out of order",
		},
		{
			name: "another value", rows: abc[:1],
			records: []Record{with(at("a", 0, 1), func(r *Record) { r.Digest++ })},
			want:    "published 1, missing 0, foreign 0, duplicates 0 (0 before), reordered 0, altered 1", fails: "1 records differ",
		},
		{
			name: "another key", rows: abc[:1],
			records: []Record{with(at("a", 0, 1), func(r *Record) { r.Key = "second" })},
			want:    "published 1, missing 0, foreign 0, duplicates 0 (0 before), reordered 0, altered 1", fails: "1 records differ",
		},
		{
			name: "a position that changed", rows: abc[:1], restarts: []Restart{restart("", 1)},
			records: []Record{at("a", 0, 1), with(at("a", 1, 2), func(r *Record) { r.Position.Ordinal++ })},
			want:    "published 1, missing 0, foreign 0, duplicates 1 (0 before), reordered 0, altered 1", fails: "1 records differ",
		},
		{
			name: "twice without a restart", rows: abc[:1],
			records: []Record{at("a", 0, 1), at("a", 1, 1)},
			want:    "published 1, missing 0, foreign 0, duplicates 1 (1 before), reordered 0, altered 0", fails: "1 duplicates are not explained",
		},
		{
			name: "twice, behind the checkpoint", rows: abc, restarts: []Restart{restart("a", 2)},
			records: []Record{at("a", 0, 1), at("b", 1, 1), at("b", 2, 2), at("c", 3, 2)},
			want:    "published 3, missing 0, foreign 0, duplicates 1 (0 before), reordered 0, altered 0",
		},
		{
			name: "twice, covered by the checkpoint", rows: abc, restarts: []Restart{restart("b", 2)},
			records: []Record{at("a", 0, 1), at("b", 1, 1), at("b", 2, 2), at("c", 3, 2)},
			want:    "published 3, missing 0, foreign 0, duplicates 1 (1 before), reordered 0, altered 0", fails: "1 duplicates are not explained",
		},
		{
			name: "twice without any checkpoint", rows: abc[:1], restarts: []Restart{restart("", 1)},
			records: []Record{at("a", 0, 1), at("a", 1, 2)},
			want:    "published 1, missing 0, foreign 0, duplicates 1 (0 before), reordered 0, altered 0",
		},
		{
			name: "twice by the second instance", rows: abc[:2], restarts: []Restart{restart("", 1)},
			records: []Record{at("a", 0, 1), at("b", 1, 2), at("b", 2, 2)},
			want:    "published 2, missing 0, foreign 0, duplicates 1 (1 before), reordered 0, altered 0", fails: "1 duplicates are not explained",
		},
		{
			name: "the last restart decides", rows: abc[:2], restarts: []Restart{restart("a", 2), restart("b", 2)},
			records: []Record{at("a", 0, 1), at("b", 1, 1), at("b", 2, 3)},
			want:    "published 2, missing 0, foreign 0, duplicates 1 (1 before), reordered 0, altered 0", fails: "1 duplicates are not explained",
		},
		{
			name: "written from the broker's socket after the kill", rows: abc[:2], restarts: []Restart{restart("", 1)},
			records: []Record{at("a", 0, 1), at("b", 1, 1), at("b", 2, 2)},
			want:    "published 2, missing 0, foreign 0, duplicates 1 (0 before), reordered 0, altered 0",
		},
		{
			name: "written from a socket after the next instance has begun", rows: abc, restarts: []Restart{restart("a", 1)},
			records: []Record{at("a", 0, 1), at("b", 1, 2), at("b", 2, 1), at("c", 3, 2), at("c", 4, 1)},
			want:    "published 3, missing 0, foreign 0, duplicates 2 (0 before), reordered 0, altered 0",
		},
		{
			name: "the same, covered by the checkpoint", rows: abc[:2], restarts: []Restart{restart("b", 1)},
			records: []Record{at("a", 0, 1), at("b", 1, 2), at("b", 2, 1)},
			want:    "published 2, missing 0, foreign 0, duplicates 1 (1 before), reordered 0, altered 0", fails: "1 duplicates are not explained",
		},
		{
			name: "a duplicate does not count for the order", rows: abc, restarts: []Restart{restart("", 2)},
			records: []Record{at("a", 0, 1), at("b", 1, 1), at("a", 2, 2), at("b", 3, 2), at("c", 4, 2)},
			want:    "published 3, missing 0, foreign 0, duplicates 2 (0 before), reordered 0, altered 0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(c.rows, c.records, c.restarts)
			if got.counts() != c.want {
				t.Errorf("got  %s\nwant %s\n%s", got.counts(), c.want, strings.Join(got.Examples, "\n"))
			}
			switch err := got.Err(); {
			case c.fails == "" && err != nil:
				t.Errorf("unexpected: %v", err)
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("got %v, want %q", err, c.fails)
			case c.fails != "" && len(got.Examples) == 0:
				t.Error("no example of what is wrong")
			}
		})
	}
}

func TestPublishedBefore(t *testing.T) {
	got := Judge(committed("a", "b", "c"),
		[]Record{at("a", 0, 1), at("b", 1, 2), at("b", 2, 3), at("c", 3, 3)},
		[]Restart{restart("", 1), restart("", 2)})
	if fmt.Sprint(got.FirstSeen) != "[1 1 1]" || got.PublishedBefore(0) != 1 || got.PublishedBefore(1) != 2 {
		t.Errorf("first seen %v", got.FirstSeen)
	}
}

// A history of runs that publish from their checkpoint on is lawful; one fault
// planted in it is always found, and counted as what it is.
func TestJudgeFindsPlantedFaults(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rows, records, restarts := history(rng)
		if got := Judge(rows, records, restarts); got.Err() != nil || got.Missing != 0 {
			t.Fatalf("seed %d: lawful history: %v\n%s", seed, got.Err(), strings.Join(got.Examples, "\n"))
		}
		// A row taken out of every run is missing.
		lost := rows[rng.IntN(len(rows))].ID
		without := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.ID == lost })
		if got := Judge(rows, without, restarts); got.Missing != 1 {
			t.Fatalf("seed %d: without %s: %s", seed, lost, got.counts())
		}
		// A record repeated at the end, by its own producer, is unlawful.
		again := records[rng.IntN(len(records))]
		again.Offset = int64(len(records))
		if got := Judge(rows, append(slices.Clone(records), again), restarts); got.BeforeCheckpoint == 0 {
			t.Fatalf("seed %d: %s again: %s", seed, &again, got.counts())
		}
	}
}

// history is one partition written by several runs, each from the checkpoint of
// the one before.
func history(rng *rand.Rand) (rows []Row, records []Record, restarts []Restart) {
	n := 5 + rng.IntN(40)
	for i := range n {
		id := fmt.Sprint(i)
		rows = append(rows, Row{ID: id, Key: "k", Seq: int64(i), Digest: Digest([]byte(id))})
	}
	covered := 0 // rows below are covered by the checkpoint
	for producer := int64(1); ; producer++ {
		next := covered
		for next < n && (next == covered || rng.IntN(10) > 0) {
			records = append(records, Record{
				ID: rows[next].ID, Key: "k", Digest: rows[next].Digest, Producer: producer, Offset: int64(len(records)),
				Position: decode.Position{CommitLSN: pglogrepl.LSN(next + 1), Ordinal: 1}, Place: Place{"topic", 0},
			})
			next++
		}
		if next == n {
			return rows, records, restarts
		}
		covered += rng.IntN(next - covered + 1)
		restarts = append(restarts, Restart{
			Checkpoint: pglogrepl.LSN(covered), Ends: map[Place]int64{{"topic", 0}: int64(len(records))},
		})
	}
}

func TestParsePosition(t *testing.T) {
	want := decode.Position{CommitLSN: 0x1234567890ABCDEF, Ordinal: 0xFFFFFFFF}
	timeline, got, err := ParsePosition(want.Header(7))
	if err != nil || timeline != 7 || got != want {
		t.Errorf("got %d, %v, %v", timeline, got, err)
	}
	for _, text := range []string{"", "00000007", strings.Repeat("0", 34), want.Header(7) + "0", strings.Replace(want.Header(7), "F", "G", 1)} {
		if _, _, err := ParsePosition(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		name  string
		take  []int
		fails string
	}{
		{"each once", []int{3, 1, 2}, ""},
		{"one missing", []int{1, 3}, "2 of 3 rows arrived (0 duplicates, 0 foreign), the first missing is 2"},
		{"one twice", []int{1, 2, 3, 2}, "3 of 3 rows arrived (1 duplicates, 0 foreign)"},
		{"foreign", []int{1, 2, 3, 4, 0}, "3 of 3 rows arrived (0 duplicates, 2 foreign)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := NewNumbers(3)
			for _, n := range c.take {
				v.Take(n)
			}
			got := ""
			if err := v.Err(); err != nil {
				got = err.Error()
			}
			if got != c.fails {
				t.Errorf("got %q, want %q", got, c.fails)
			}
		})
	}
}
