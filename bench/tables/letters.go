package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const lettersTopic = "walstream.dead-letters."

// letter is a bad row: the value of its dead letter, where that is known, and its
// event id.
type letter struct {
	known     bool
	value, id []byte
}

// sortLetters takes the dead letters out of the records.
func sortLetters(all []*kgo.Record) (letters, rest []*kgo.Record) {
	for _, r := range all {
		if strings.HasPrefix(r.Topic, lettersTopic) {
			letters = append(letters, r)
		} else {
			rest = append(rest, r)
		}
	}
	return letters, rest
}

// judgeLetters: each bad row has one, or none where they are left out.
func (r *round) judgeLetters(ctx context.Context, v *verdict, all []*kgo.Record) error {
	for n, t := range r.tables {
		rows, err := r.db.Query(ctx, "SELECT known, value, id FROM public.letters WHERE tab = $1 ORDER BY n", n)
		if err != nil {
			return err
		}
		expected, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l letter, err error) {
			err = row.Scan(&l.known, &l.value, &l.id)
			return l, err
		})
		if err != nil {
			return err
		}
		v.Bad += len(expected)
		if r.onPoison != "dead-letter" {
			expected = nil
		}
		for i := range deliveries {
			v.compareLetters(stream{r.slot(i), fmt.Sprint(n)}, t.schema+"."+t.name, expected, all, i == 1)
		}
	}
	return nil
}

func (v *verdict) compareLetters(of stream, table string, expected []letter, all []*kgo.Record, exact bool) {
	var got []*kgo.Record
	seen := map[string]bool{}
	for _, rec := range all {
		if header(rec, "walstream-pipeline") != of.pipeline || header(rec, "table") != of.table {
			continue
		}
		position := header(rec, "walstream-position")
		switch {
		case !seen[position]:
			seen[position] = true
			got = append(got, rec)
		case exact:
			v.Doubled++
			v.example("%v: the dead letter %s is there twice", of, position)
		}
	}
	slices.SortFunc(got, func(a, b *kgo.Record) int {
		return cmp.Compare(header(a, "walstream-position"), header(b, "walstream-position"))
	})
	if len(got) != len(expected) {
		v.Lost += max(0, len(expected)-len(got))
		v.Unknown += max(0, len(got)-len(expected))
		v.example("%v: %d dead letters of %d bad rows", of, len(got), len(expected))
		return
	}
	for i, rec := range got {
		id := expected[i].id
		if id == nil {
			id = []byte(header(rec, "walstream-position"))
		}
		switch {
		case expected[i].known && !same(rec.Value, expected[i].value):
			v.Altered++
			v.example("%v: dead letter %s: value %.300q instead of %.300q: %s", of, header(rec, "walstream-position"),
				rec.Value, expected[i].value, header(rec, "walstream-dead-letter-reason"))
		case header(rec, "walstream-event-id") != string(id), header(rec, "walstream-dead-letter-table") != table:
			v.Altered++
			v.example("%v: dead letter %s has event id %q instead of %q, table %q instead of %q", of, header(rec, "walstream-position"),
				header(rec, "walstream-event-id"), id, header(rec, "walstream-dead-letter-table"), table)
		}
	}
}
