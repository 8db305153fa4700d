package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// insert draws a statement that inserts rows, and says what must come of them.
func (t *table) insert(r *rand.Rand) (sql string, rows int) {
	into := t.quoted()
	numbers := t.attached()
	if t.partitioned && r.IntN(3) == 0 { // around the root
		numbers = []int{numbers[r.IntN(len(numbers))]}
		into = t.own("part", numbers[0])
	}
	rows = 1 + r.IntN(3)
	names, values := t.rows(r, numbers, rows)
	return fmt.Sprintf("WITH i AS (INSERT INTO %s (%s) VALUES %s RETURNING *) %s", into, names, values, t.expect()), rows
}

// rows draws the words of an INSERT.
func (t *table) rows(r *rand.Rand, numbers []int, n int) (names, values string) {
	quoted := make([]string, len(t.columns))
	for i := range t.columns {
		quoted[i] = t.columns[i].quoted()
	}
	lines := make([]string, n)
	for i := range lines {
		words := make([]string, len(t.columns))
		for j := range t.columns {
			words[j] = t.columns[j].draw(r, numbers)
			if t.poison {
				if bad, is := spoil(r, t.bad(&t.columns[j])); is {
					words[j] = bad
				}
			}
		}
		lines[i] = "(" + strings.Join(words, ", ") + ")"
	}
	return strings.Join(quoted, ", "), strings.Join(lines, ", ")
}

// copying is a COPY, which writes many rows in one record of the WAL: into a
// temporary table first, whose rows say what must come of them.
func (t *table) copying(r *rand.Rand) (before []string, out, in, after string, rows int) {
	rows = 5 + r.IntN(30)
	numbers := t.attached()
	if t.partitioned { // more would not come in their order
		numbers = []int{numbers[r.IntN(len(numbers))]}
	}
	names, values := t.rows(r, numbers, rows)
	var copied []string
	for i := range t.columns {
		if c := &t.columns[i]; c.automatic == "" {
			copied = append(copied, c.quoted())
		}
	}
	list := strings.Join(copied, ", ")
	return []string{
		"CREATE TEMP TABLE copied (LIKE " + t.quoted() + " INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY)",
		"INSERT INTO copied (" + names + ") VALUES " + values,
		"WITH i AS (SELECT * FROM copied ORDER BY ctid) " + t.expect(),
	}, "COPY (SELECT " + list + " FROM copied ORDER BY ctid) TO STDOUT", "COPY " + t.quoted() + " (" + list + ") FROM STDIN", "DROP TABLE copied", rows
}

// draw a value.
func (c *column) draw(r *rand.Rand, numbers []int) string {
	switch {
	case c.name == partitionColumn && c.bound:
		return fmt.Sprint(numbers[r.IntN(len(numbers))])
	case c.automatic != "":
		return "DEFAULT"
	case !c.notNull && !c.required && r.IntN(5) == 0:
		return "NULL"
	}
	return c.values[r.IntN(len(c.values))]
}

// attached are the numbers of the partitions that rows can go to.
func (t *table) attached() (numbers []int) {
	for _, p := range t.partitions {
		if p.attached {
			numbers = append(numbers, p.number)
		}
	}
	return numbers
}
