package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/walstream/walstream/internal/pgtypes"
)

// change is something done to a table while it is streamed.
type change struct {
	kind  string
	sql   []string
	apply func(*table) // to what the writer knows, once it is done
	// outside: it cannot be done in a transaction.
	outside bool
}

// change draws one. A publication that lists columns keeps them as they are:
// the server refuses to change them.
func (t *table) change(r *rand.Rand, listed bool) change {
	alter := "ALTER TABLE " + t.quoted() + " "
	switch n := r.IntN(20); {
	case n < 4:
		return t.addColumn(r, alter)
	case n < 7:
		return t.onUnmapped(r, alter)
	case n < 10:
		if listed {
			return t.upkeep(r)
		}
		return t.retypeMapped(r, alter)
	case n < 14:
		if !t.partitioned {
			return t.onUnmapped(r, alter)
		}
		return t.onPartitions(r, alter)
	case n < 15:
		identity := []string{"FULL", "NOTHING", "DEFAULT"}[r.IntN(3)]
		return change{kind: "replica identity", sql: []string{alter + "REPLICA IDENTITY " + identity}}
	case n < 16:
		return change{kind: "truncate", sql: []string{"TRUNCATE " + t.quoted()}}
	case n < 17:
		sql := "DELETE FROM " + t.quoted()
		if r.IntN(2) == 0 {
			c := t.columns[r.IntN(len(t.columns))]
			if c.automatic == "" && !c.bound {
				sql = fmt.Sprintf("UPDATE %s SET %s = %s", t.quoted(), c.quoted(), c.draw(r, t.attached()))
			}
		}
		return change{kind: "housekeeping", sql: []string{sql}}
	}
	return t.upkeep(r)
}

// upkeep is what an operator does.
func (t *table) upkeep(r *rand.Rand) change {
	switch r.IntN(7) {
	case 6:
		value := pgtypes.Literal(fmt.Sprintf("value %d.%d", t.number, t.next()))
		return change{kind: "add enum value", sql: []string{"ALTER TYPE public.mood ADD VALUE " + value}, outside: true, apply: func(t *table) {
			for i := range t.columns {
				if c := &t.columns[i]; c.sql == "public.mood" {
					c.values = append(slices.Clone(c.values), value+"::public.mood")
				}
			}
		}}
	case 0:
		return change{kind: "vacuum full", sql: []string{"VACUUM FULL " + t.quoted()}, outside: true}
	case 1:
		return change{kind: "vacuum", sql: []string{"VACUUM (FREEZE, ANALYZE) " + t.quoted()}, outside: true}
	case 2:
		c := t.columns[r.IntN(len(t.columns))]
		n := t.next()
		sql := fmt.Sprintf("CREATE INDEX %s ON %s ((%s IS NULL))", quote(fmt.Sprintf("index %d.%d", t.number, n)), t.quoted(), c.quoted())
		return change{kind: "create index", sql: []string{sql}}
	case 3:
		return change{kind: "rename enum value", sql: []string{
			`DO $$ BEGIN IF EXISTS (SELECT FROM pg_enum WHERE enumlabel = 'sad') THEN
			ALTER TYPE public.mood RENAME VALUE 'sad' TO 'glum'; ALTER TYPE public.mood RENAME VALUE 'glum' TO 'sad'; END IF; END $$`,
		}}
	case 4:
		return change{kind: "comment", sql: []string{"COMMENT ON TABLE " + t.quoted() + " IS 'seen'", "ANALYZE " + t.quoted()}}
	}
	c := t.columns[r.IntN(len(t.columns))]
	return change{kind: "storage", sql: []string{fmt.Sprintf("ALTER TABLE %s ALTER %s SET STORAGE EXTERNAL", t.quoted(), c.quoted())}}
}

// fresh is a name that no column has.
func (t *table) fresh(r *rand.Rand) string {
	given := newNames(r)
	for i := range t.columns {
		given.used[t.columns[i].name] = true
	}
	return given.next()
}

func (t *table) addColumn(r *rand.Rand, alter string) change {
	c := column{name: t.fresh(r)}
	var sql []string
	var make string
	if c.columnType, make = anyType(r, t.own("type", t.next())); make != "" {
		sql = append(sql, make)
	}
	add := alter + "ADD " + c.quoted() + " " + c.sql
	switch r.IntN(4) {
	case 0:
		add += " NOT NULL DEFAULT " + c.values[0]
		c.notNull = true
	case 1: // volatile: the table is written anew
		c = column{name: c.name, columnType: columnType{sql: "text", values: []string{"'given'"}}}
		add = alter + "ADD " + c.quoted() + " text DEFAULT clock_timestamp()::text"
	case 2:
		c = column{name: c.name, columnType: columnType{sql: "int"}, automatic: "GENERATED ALWAYS AS (1 + 1) STORED"}
		add = alter + "ADD " + c.quoted() + " int " + c.automatic
	}
	if strings.Contains(add, "SELECT") { // no subquery in a default
		return t.upkeep(r)
	}
	return change{kind: "add column", sql: append(sql, add), apply: func(t *table) { t.columns = append(t.columns, c) }}
}

// onUnmapped columns anything may be done.
func (t *table) onUnmapped(r *rand.Rand, alter string) change {
	var free []int
	for i := range t.columns {
		if c := &t.columns[i]; !c.mapped() && !c.bound {
			free = append(free, i)
		}
	}
	if len(free) == 0 {
		return t.addColumn(r, alter)
	}
	at := free[r.IntN(len(free))]
	c := &t.columns[at]
	switch n := r.IntN(4); {
	case n == 0:
		to := t.fresh(r)
		return change{kind: "rename column", sql: []string{alter + "RENAME " + c.quoted() + " TO " + quote(to)}, apply: func(t *table) { t.columns[at].name = to }}
	case n == 1 && c.automatic == "":
		return t.retype(r, alter, at, "retype column")
	case n == 2 && c.automatic == "": // to the end
		sql := alter + "DROP " + c.quoted() + ", ADD " + c.quoted() + " " + c.sql
		return change{kind: "reorder column", sql: []string{sql}, apply: func(t *table) { t.moveToEnd(at, t.columns[at].columnType) }}
	}
	return change{kind: "drop column", sql: []string{alter + "DROP " + c.quoted()}, apply: func(t *table) { t.columns = slices.Delete(t.columns, at, at+1) }}
}

func (t *table) moveToEnd(at int, as columnType) {
	c := t.columns[at]
	c.columnType, c.notNull = as, false
	t.columns = append(slices.Delete(t.columns, at, at+1), c)
}

// retypeMapped gives a mapped column any other type that its part of the record
// can have.
func (t *table) retypeMapped(r *rand.Rand, alter string) change {
	var free []int
	for i := range t.columns {
		if c := &t.columns[i]; c.mapped() && c.automatic == "" && !c.bound {
			free = append(free, i)
		}
	}
	at := free[r.IntN(len(free))]
	return t.retype(r, alter, at, "retype mapped")
}

// retype a column, in its place or by dropping it and adding it at the end.
func (t *table) retype(r *rand.Rand, alter string, at int, kind string) change {
	c := &t.columns[at]
	var as columnType
	var sql []string
	switch {
	case c.as != nil:
		if as = oneOf(r, c.as...); r.IntN(4) == 0 {
			var make string
			as, make = domainOf(as, t.own("type", t.next()))
			sql = append(sql, make)
		}
	default:
		var make string
		if as, make = anyType(r, t.own("type", t.next())); make != "" {
			sql = append(sql, make)
		}
	}
	if r.IntN(2) == 0 {
		sql = append(sql, alter+"DROP "+c.quoted()+", ADD "+c.quoted()+" "+as.sql)
		return change{kind: kind, sql: sql, apply: func(t *table) { t.moveToEnd(at, as) }}
	}
	sql = append(sql, alter+"ALTER "+c.quoted()+" DROP NOT NULL, ALTER "+c.quoted()+" DROP DEFAULT",
		alter+"ALTER "+c.quoted()+" TYPE "+as.sql+" USING NULL")
	return change{kind: kind, sql: sql, apply: func(t *table) { t.columns[at].columnType, t.columns[at].notNull = as, false }}
}

// onPartitions come and go. One that is attached has its columns in another
// order, and may have rows that are not to be sent.
func (t *table) onPartitions(r *rand.Rand, alter string) change {
	attached := t.attached()
	n := attached[r.IntN(len(attached))]
	switch k := r.IntN(3); {
	case k == 0 && len(attached) > 1:
		sql, outside := fmt.Sprintf("%sDETACH PARTITION %s", alter, t.own("part", n)), r.IntN(2) == 0
		if outside {
			sql += " CONCURRENTLY"
		}
		return change{kind: "detach partition", sql: []string{sql}, outside: outside, apply: func(t *table) {
			for i := range t.partitions {
				if t.partitions[i].number == n {
					t.partitions[i].attached = false
				}
			}
		}}
	case k == 1:
		next := 100 + t.next()
		sql := fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES IN (%d)", t.own("part", next), t.quoted(), next)
		return change{kind: "new partition", sql: []string{sql}, apply: func(t *table) { t.partitions = append(t.partitions, partition{next, true}) }}
	}
	next := 100 + t.next()
	part := t.own("part", next)
	columns := slices.Clone(t.columns)
	r.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
	lines := []string{`"dropped before" text`}
	for i := range columns {
		c := &columns[i]
		line := c.quoted() + " " + c.sql
		if c.notNull {
			line += " NOT NULL"
		}
		if strings.Contains(c.automatic, "STORED") {
			line += " " + c.automatic
		}
		lines = append(lines, line)
	}
	return change{kind: "attach partition", sql: []string{
		fmt.Sprintf("CREATE TABLE %s (%s)", part, strings.Join(lines, ", ")),
		fmt.Sprintf(`ALTER TABLE %s DROP "dropped before"`, part),
		fmt.Sprintf("%sATTACH PARTITION %s FOR VALUES IN (%d)", alter, part, next),
	}, apply: func(t *table) { t.partitions = append(t.partitions, partition{next, true}) }}
}
