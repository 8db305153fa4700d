package prune

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/replication"
)

// A partition is dropped in two steps, each a transaction:
//
//  1. It is detached, closed, and its comment says what becomes of it. That takes the
//     parent's lock for a moment, behind every transaction that writes to it, so
//     whatever was written to the partition as a part of the outbox is committed, and
//     comes in the stream under the outbox's name. Whoever writes to it by its own
//     name from then on fails, where the row would come in no stream.
//  2. A table with that comment is dropped once the state in which it is seen is
//     published, and none of its rows is younger than the limit. Whoever does it need
//     not be who did 1.
//
// DETACH PARTITION CONCURRENTLY would do without the lock, but loses rows: between its
// two transactions a statement that began before can still write to the partition by
// the outbox's name, and the server decodes such rows as those of a partition that has
// no parent, which no publication of the outbox carries (docs/decisions/0010).

// partition of a table.
type partition struct {
	*table
	upper     string // bound, as SQL; empty: it has none that can be compared
	listed    bool   // a publication names it
	marked    bool   // has our comment
	byDefault bool
}

const partitionedQuery = `
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)
FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
WHERE p.partrelid = $1 AND p.partstrat = 'r' AND p.partnatts = 1`

const partitionsQuery = `
SELECT c.oid, n.nspname, c.relname, pg_get_expr(c.relpartbound, c.oid), EXISTS (SELECT FROM pg_publication_rel r WHERE r.prrelid = c.oid),
       coalesce(obj_description(c.oid, 'pg_class') = $2, false), c.oid = p.partdefid
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_partitioned_table p ON p.partrelid = i.inhparent
WHERE i.inhparent = $1 AND NOT i.inhdetachpending ORDER BY c.oid`

const detachedQuery = `
SELECT c.oid, n.nspname, c.relname FROM pg_description d JOIN pg_class c ON c.oid = d.objoid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.classoid = 'pg_class'::regclass AND d.objsubid = 0 AND d.description = $1
  AND NOT c.relispartition AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE') ORDER BY c.oid`

// upperBound of a range over one column. What stands there was written by the server.
var upperBound = regexp.MustCompile(`^FOR VALUES FROM \(.*\) TO \(('[^']*'|-?[0-9]+)\)$`)

// closed is the name of the constraint that no row meets.
const closed = "walstream_detached"

// mark is the comment of a partition that was detached to be dropped.
func (t *table) mark() string {
	return fmt.Sprintf("walstream: a partition of %s, detached to be dropped when all of it is published and old enough", t.quoted())
}

// partitions of a table that is partitioned by the range of one column.
func (p *Prune) partitions(ctx context.Context, t *table) (found []partition, column, columnType string, err error) {
	conn := p.reading.Conn()
	err = conn.QueryRow(ctx, partitionedQuery, t.oid).Scan(&column, &columnType)
	if missing(err) {
		return nil, "", "", nil
	}
	var rows pgx.Rows
	if err == nil {
		rows, err = conn.Query(ctx, partitionsQuery, t.oid, t.mark())
	}
	if err == nil {
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (partition, error) {
			like := *t
			part := partition{table: &like}
			var bound string
			err := row.Scan(&part.oid, &part.schema, &part.name, &bound, &part.listed, &part.marked, &part.byDefault)
			if m := upperBound.FindStringSubmatch(bound); m != nil {
				part.upper = m[1]
			}
			return part, err
		})
	}
	if err != nil {
		return nil, "", "", fmt.Errorf("look up the partitions of %s: %w", t, replication.Classify(err))
	}
	return found, column, columnType, nil
}

// parts of a table that is partitioned by range: those that can go as a whole, and
// what rows are deleted from. Any other table is left as it is.
func (p *Prune) parts(ctx context.Context, t *table) (rest []*table, whole []string, err error) {
	found, old, err := p.oldPartitions(ctx, t)
	if err != nil || found == nil {
		return []*table{t}, nil, err
	}
	for _, part := range old {
		whole = append(whole, part.String())
	}
	return defaultOf(found), whole, nil
}

// defaultOf the partitions: it is never dropped.
func defaultOf(found []partition) (rest []*table) {
	for _, part := range found {
		if part.byDefault {
			rest = append(rest, part.table)
		}
	}
	return rest
}

// oldPartitions are those that no new row will be made for, and all of whose rows are
// old enough. It looks in the state that is held.
func (p *Prune) oldPartitions(ctx context.Context, t *table) (found, old []partition, err error) {
	found, column, columnType, err := p.partitions(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	for _, part := range found {
		if part.byDefault || part.upper == "" {
			continue
		}
		bound := part.upper + "::" + columnType
		// By the age itself its bound tells; by anything else, an id above all, there
		// have to be rows beyond the bound, and every row is looked at.
		query := fmt.Sprintf("SELECT %s <= $1::text::timestamptz", bound)
		if column != t.age {
			query = fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE %s >= %s) AND %s", t.quoted(), quote(column), bound, part.allOld())
		}
		var whole bool
		if err := p.reading.Conn().QueryRow(ctx, query, p.before).Scan(&whole); err != nil {
			return nil, nil, fmt.Errorf("look at partition %s: %w", part, replication.Classify(err))
		}
		switch {
		case whole && part.listed:
			p.progress("%s is left: a publication names it, and would change", part)
		case whole:
			old = append(old, part)
		}
	}
	return found, old, nil
}

func (t *table) allOld() string {
	return fmt.Sprintf("NOT EXISTS (SELECT FROM %s WHERE NOT coalesce(%s, false))", t.quoted(), t.isOld())
}

// dropPartitions of a table, and returns what rows are to be deleted from.
func (p *Prune) dropPartitions(ctx context.Context, t *table) (rest []*table, err error) {
	if err := p.see(ctx); err != nil {
		return nil, err
	}
	found, old, err := p.oldPartitions(ctx, t)
	if err == nil {
		err = p.unsee(ctx) // or it would wait for itself
	}
	if err != nil {
		return nil, err
	}
	for _, part := range found {
		if part.marked { // somebody has attached it again
			err := p.alter(ctx, fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s", part.quoted(), closed),
				fmt.Sprintf("COMMENT ON TABLE %s IS NULL", part.quoted()))
			if err != nil && !replication.LockTimeout(err) {
				return nil, fmt.Errorf("take the mark from partition %s: %w", part, err)
			}
		}
	}
	if len(old) > 0 { // only what is published
		if err := p.await(ctx); err != nil {
			return nil, err
		}
	}
	for _, part := range old {
		err := p.alter(ctx, fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s", t.quoted(), part.quoted()),
			fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s CHECK (false) NOT VALID", part.quoted(), closed),
			fmt.Sprintf("COMMENT ON TABLE %s IS %s", part.quoted(), literal(t.mark())))
		if replication.LockTimeout(err) {
			p.progress("%s is left for the next time: %s is in use", part, t)
			continue
		}
		if err != nil {
			return nil, hindered("detached", part.table, err)
		}
		p.progress("%s is detached", part)
		if p.between != nil {
			if err := p.between(ctx, 0); err != nil {
				return nil, err
			}
		}
	}
	if err := p.dropDetached(ctx, t); err != nil {
		return nil, err
	}
	if found == nil {
		return []*table{t}, nil
	}
	return defaultOf(found), nil
}

// dropDetached drops what was detached to be dropped, by whomever.
func (p *Prune) dropDetached(ctx context.Context, t *table) error {
	if err := p.see(ctx); err != nil {
		return err
	}
	conn := p.reading.Conn()
	rows, err := conn.Query(ctx, detachedQuery, t.mark())
	var detached []table
	if err == nil {
		detached, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (table, error) {
			like := *t
			err := row.Scan(&like.oid, &like.schema, &like.name)
			return like, err
		})
	}
	if err != nil {
		return fmt.Errorf("look up detached partitions of %s: %w", t, replication.Classify(err))
	}
	detached = slices.DeleteFunc(detached, func(part table) bool {
		var old bool
		if err == nil {
			err = conn.QueryRow(ctx, "SELECT "+part.allOld(), p.before).Scan(&old)
		}
		return !old
	})
	if err != nil {
		return fmt.Errorf("look at detached partitions of %s: %w", t, replication.Classify(err))
	}
	if err := p.unsee(ctx); err != nil || len(detached) == 0 {
		return err
	}
	if err := p.await(ctx); err != nil {
		return err
	}
	for _, part := range detached {
		err := p.alter(ctx, "DROP TABLE "+part.quoted())
		if replication.LockTimeout(err) {
			p.progress("%s is left for the next time: it is in use", &part)
			continue
		}
		if err != nil {
			return hindered("dropped", &part, err)
		}
		p.results[t.String()].Dropped = append(p.results[t.String()].Dropped, part.String())
		p.progress("%s is dropped", &part)
	}
	return nil
}

// hindered says that the server refused it: a view, or a foreign key, for example.
func hindered(what string, part *table, err error) error {
	if replication.Transient(err) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("partition %s: %w", part, err)
	}
	return &SetupError{Found: fmt.Sprintf("partition %s cannot be %s: %v", part, what, err), Remedy: "take away what hinders it, or do it by hand"}
}

const (
	// lockWait is for how long others wait behind us, where we wait for a lock.
	lockWait  = 200 * time.Millisecond
	lockTries = 5
	lockPause = time.Second
)

// alter runs statements in one transaction that never holds others up for long.
func (p *Prune) alter(ctx context.Context, statements ...string) (err error) {
	conn := p.writing.Conn()
	for try := range lockTries {
		if try > 0 {
			if err := sleep(ctx, lockPause); err != nil {
				return err
			}
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds())); err != nil {
				return err
			}
			for _, sql := range statements {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		})
		if !replication.LockTimeout(err) {
			break
		}
	}
	return replication.Classify(err)
}

// literal of a text, whatever standard_conforming_strings is: ours has no backslash
// but that of a name.
func literal(text string) string { return "$walstream$" + text + "$walstream$" }
