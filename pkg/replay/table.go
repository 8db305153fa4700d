package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

// OIDs of types that have the order of their making, or of time.
const (
	oidInt8, oidInt2, oidInt4    = 20, 21, 23
	oidTimestamp, oidTimestamptz = 1114, 1184
)

// table as it is asked for rows.
type table struct {
	schema, name string
	key          []string
	id           string // its id column; empty: none is known
	numbered     bool   // ids are integers
	idType       string
	time         string // when a row was made; empty: none is known
	eventID      bool
	byKey        bool // the order of the primary key is that of its making
}

func (t *table) String() string { return t.schema + "." + t.name }

func (t *table) quoted() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// moment of time that a column with and one without a zone both take: the session's
// zone is UTC.
func moment(t time.Time) string { return literal(t.UTC().Format("2006-01-02 15:04:05.999999+00")) }

func lookUp(ctx context.Context, conn *pgx.Conn, need outbox.TableNeed, columns outbox.TableColumns, q *Request, publication string) (*table, error) {
	t := &table{schema: need.Schema, name: need.Name, id: columns.ID, eventID: columns.EventID != ""}
	info, err := replication.LookupTable(ctx, conn, t.schema, t.name, publication)
	if err != nil {
		return nil, err
	}
	if t.key, _, err = replication.PrimaryKey(ctx, conn, info.OID); err != nil {
		return nil, err
	}
	types := map[string]uint32{}
	for _, c := range info.Columns {
		types[c.Name] = c.TypeOID
	}
	integer := func(name string) bool { return slices.Contains([]uint32{oidInt2, oidInt4, oidInt8}, types[name]) }
	isTime := func(name string) bool { return slices.Contains([]uint32{oidTimestamp, oidTimestamptz}, types[name]) }
	t.numbered, t.byKey = integer(t.id), len(t.key) > 0 && integer(t.key[0])
	if err := conn.QueryRow(ctx, "SELECT format_type($1, NULL)", types[t.id]).Scan(&t.idType); t.id != "" && err != nil {
		return nil, fmt.Errorf("look up the id of %s: %w", t, replication.Classify(err))
	}
	for _, name := range []string{q.TimeColumn, columns.Timestamp, "created_at"} {
		if isTime(name) {
			t.time = name
		}
		if t.time != "" || name == q.TimeColumn && name != "" {
			break
		}
	}
	var readable bool
	if err := conn.QueryRow(ctx, "SELECT has_table_privilege($1::oid, 'SELECT')", info.OID).Scan(&readable); err != nil {
		return nil, fmt.Errorf("look up %s: %w", t, replication.Classify(err))
	}
	if !readable {
		return nil, fmt.Errorf("replay of %s: %w", t, &replication.RightError{
			What: "SELECT on the table", SQL: fmt.Sprintf("GRANT SELECT ON %s TO %s;", t.quoted(), quote(conn.Config().User)),
		})
	}
	return t, nil
}

// usable says why no rows of the table can be replayed.
func (t *table) usable() error {
	switch {
	case len(t.key) == 0:
		return &SetupError{fmt.Sprintf("table %s has no primary key, in whose order it would be read", t), "give it one, or take --source wal"}
	case !t.eventID:
		return &SetupError{
			fmt.Sprintf("rows of %s have no event id: their records carried the position in its place, which the table does not know", t),
			"take --source wal, or name a column by --id-column: consumers then see it as the event id of what is replayed",
		}
	}
	return nil
}

// bounds are the condition on its rows, and the column that orders them before the
// primary key.
func (t *table) bounds(q *Request) (where, order string, err error) {
	var conditions []string
	if q.FromID != "" || q.ToID != "" {
		if !t.numbered {
			return "", "", t.errUnordered("--from-id and --to-id bound nothing in it")
		}
		order = t.id
		conditions = between(conditions, t.id, literalOr(q.FromID), literalOr(q.ToID))
	}
	if !q.FromTime.IsZero() || !q.ToTime.IsZero() {
		if t.time == "" {
			return "", "", &SetupError{
				fmt.Sprintf("table %s has no column %s of a type timestamp that says when a row was made", t, orWord(q.TimeColumn, "created_at")),
				"name one by --time-column, or take --from-id or --from-lsn",
			}
		}
		if order == "" {
			order = t.time
		}
		from, to := "", ""
		if !q.FromTime.IsZero() {
			from = moment(q.FromTime)
		}
		if !q.ToTime.IsZero() {
			to = moment(q.ToTime)
		}
		conditions = between(conditions, t.time, from, to)
	}
	return strings.Join(conditions, " AND "), t.ordered(order), nil
}

// boundsOf are those of rows that history knows of.
func (t *table) boundsOf(b *history.Bound, bounded bool) (where, order string, err error) {
	switch {
	case b.HasIDs && t.numbered:
		to := ""
		if bounded {
			to = fmt.Sprint(b.Greatest)
		}
		return strings.Join(between(nil, t.id, fmt.Sprint(b.Least), to), " AND "), t.ordered(t.id), nil
	case b.HasTimes && t.time != "":
		return strings.Join(between(nil, t.time, moment(b.Created), ""), " AND "), t.ordered(t.time), nil
	}
	return "", "", t.errUnordered("history knows of no time of its rows either")
}

// ordered leaves the order to the primary key where that has one.
func (t *table) ordered(column string) string {
	if t.byKey {
		return ""
	}
	return column
}

func (t *table) errUnordered(why string) error {
	text, remedy := "no id column that is known", "name one of integers by --id-column"
	if t.id != "" {
		text, remedy = fmt.Sprintf("ids without an order (column %s, %s)", t.id, t.idType), "take --from-time"
		if t.time == "" {
			remedy = "give it a column created_at"
		}
	}
	return &SetupError{fmt.Sprintf("table %s has %s: %s", t, text, why), remedy + ", or take --source wal, which wants a rewind slot"}
}

func between(conditions []string, column, from, to string) []string {
	if from != "" {
		conditions = append(conditions, quote(column)+" >= "+from)
	}
	if to != "" {
		conditions = append(conditions, quote(column)+" <= "+to)
	}
	return conditions
}

func literalOr(text string) string {
	if text == "" {
		return ""
	}
	return literal(text)
}

func orWord(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// count the rows that meet a condition.
func (t *table) count(ctx context.Context, conn *pgx.Conn, where string) (rows int64, err error) {
	err = conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s", t.quoted(), where)).Scan(&rows)
	if err == nil {
		return rows, nil
	}
	var coded interface{ SQLState() string }
	if asCoded(err, &coded) && slices.Contains([]string{"22P02", "22003", "22007", "22008"}, coded.SQLState()) {
		return 0, &SettingError{"from-id, --to-id, --from-time or --to-time", fmt.Sprintf("is not taken by PostgreSQL for table %s: %v", t, err)}
	}
	return 0, fmt.Errorf("count the rows of %s: %w", t, replication.Classify(err))
}
