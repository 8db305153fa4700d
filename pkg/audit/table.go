package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

// tables are the outbox tables, read as the stream would carry them: the same
// columns, through the same mapping, so that a row becomes the same event.
type tables struct {
	cfg     *Config
	mapping *outbox.Mapping
	sources []*source
}

// source is one table.
type source struct {
	owner    uint32
	name     string // quoted
	plain    string
	only     bool // an ordinary table: its heirs are not published by its name
	relation *decode.Relation
	columns  outbox.TableColumns
	time     string // column; empty: none is known
	order    string // expression for where a row stands among those of its table
	timed    bool   // and that is its time, in microseconds
}

// OIDs that decide how rows are ordered and asked for.
const (
	oidInt8, oidInt2, oidInt4    = 20, 21, 23
	oidTimestamp, oidTimestamptz = 1114, 1184
)

// openTables looks the tables up.
func openTables(ctx context.Context, cfg *Config, conn *pgx.Conn) (*tables, error) {
	t := &tables{cfg: cfg}
	var err error
	if t.mapping, err = outbox.NewMapping(cfg.Mapping); err != nil {
		return nil, err
	}
	version, err := replication.ServerVersion(ctx, conn)
	if err != nil {
		return nil, err
	}
	publication, err := replication.LookupPublication(ctx, conn, cfg.Publication)
	if err != nil {
		return nil, err
	}
	var layouts []*decode.Relation
	infos := map[string]replication.TableInfo{}
	for _, need := range t.mapping.Tables() {
		info, err := replication.LookupTable(ctx, conn, need.Schema, need.Name, cfg.Publication)
		if err != nil {
			return nil, err
		}
		if !info.Exists {
			continue // Resolve says so
		}
		if info.RowFilter {
			return nil, &SetupError{
				fmt.Sprintf("publication %s leaves rows of %s.%s out by a filter", cfg.Publication, need.Schema, need.Name),
				"an audit would take them for missing: take the filter away",
			}
		}
		layouts = append(layouts, info.Layout(publication, version))
		infos[need.Schema+"."+need.Name] = info
	}
	if err := t.mapping.Resolve(layouts...); err != nil {
		return nil, err
	}
	for i, need := range t.mapping.Tables() {
		s, err := t.newSource(uint32(i), need, infos[need.Schema+"."+need.Name])
		if err != nil {
			return nil, err
		}
		t.sources = append(t.sources, s)
	}
	return t, nil
}

func (t *tables) newSource(owner uint32, need outbox.TableNeed, info replication.TableInfo) (*source, error) {
	s := &source{
		owner: owner, name: quote(need.Schema, need.Name), plain: need.Schema + "." + need.Name, only: info.Kind == "r",
		relation: &decode.Relation{ID: info.OID, Namespace: need.Schema, Name: need.Name},
		columns:  t.mapping.ColumnsOf(need.Schema, need.Name),
	}
	types := map[string]uint32{}
	for _, c := range info.Columns {
		types[c.Name] = c.TypeOID
	}
	for _, name := range need.Columns {
		if oid, ok := types[name]; ok {
			s.relation.Columns = append(s.relation.Columns, decode.Column{Name: name, TypeOID: oid})
		}
	}
	const created = "created_at"
	isTime := func(name string) bool { return slices.Contains([]uint32{oidTimestamp, oidTimestamptz}, types[name]) }
	switch {
	case t.cfg.TimeColumn != "" && !isTime(t.cfg.TimeColumn):
		return nil, settingError("time-column", "%s has no column %q of a type timestamp", s.plain, t.cfg.TimeColumn)
	case t.cfg.TimeColumn != "":
		s.time = t.cfg.TimeColumn
	case isTime(s.columns.Timestamp):
		s.time = s.columns.Timestamp
	case isTime(created):
		s.time = created
	case t.cfg.byTime():
		return nil, settingError("from-time, to-time", "%s has no column created_at: name the one that says when a row was made by --time-column", s.plain)
	}
	if t.cfg.byID() && s.columns.ID == "" {
		return nil, settingError("from-id, to-id", "%s has no id column that is known: name it by --id-column", s.plain)
	}
	switch {
	case s.time != "":
		at := quote(s.time)
		s.order, s.timed = "CASE WHEN isfinite("+at+") THEN (extract(epoch FROM "+at+") * 1000000)::int8 END", true
	case slices.Contains([]uint32{oidInt2, oidInt4, oidInt8}, types[s.columns.ID]):
		s.order = quote(s.columns.ID) + "::int8"
	default:
		s.order = "NULL::int8"
	}
	return s, nil
}

func quote(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// systemColumns follow the mapped ones in every query.
const systemColumns = 3

// selection is the query for rows, with a condition.
func (s *source) selection(where string) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for _, c := range s.relation.Columns {
		b.WriteString(quote(c.Name) + ", ")
	}
	b.WriteString("xmin, ctid, " + s.order + " FROM ")
	if s.only {
		b.WriteString("ONLY ")
	}
	b.WriteString(s.name)
	if where != "" {
		b.WriteString(" WHERE " + where)
	}
	return b.String()
}

// rangeOf says the configured range in SQL.
func (s *source) rangeOf(cfg *Config) (where string, args []any) {
	var conditions []string
	add := func(column, operator string, value any) {
		args = append(args, value)
		conditions = append(conditions, fmt.Sprintf("%s %s $%d", quote(column), operator, len(args)))
	}
	if cfg.FromID != "" {
		add(s.columns.ID, ">=", cfg.FromID)
	}
	if cfg.ToID != "" {
		add(s.columns.ID, "<=", cfg.ToID)
	}
	if !cfg.FromTime.IsZero() {
		add(s.time, ">=", cfg.FromTime.UTC())
	}
	if !cfg.ToTime.IsZero() {
		add(s.time, "<=", cfg.ToTime.UTC())
	}
	return strings.Join(conditions, " AND "), args
}

// formats asks for the mapped columns in the stream's format, and for the others
// in binary.
func (t *tables) formats(s *source) pgx.QueryResultFormats {
	mapped := int16(pgx.TextFormatCode)
	if t.mapping.BinaryOK() {
		mapped = pgx.BinaryFormatCode
	}
	formats := make(pgx.QueryResultFormats, 0, len(s.relation.Columns)+systemColumns)
	for range s.relation.Columns {
		formats = append(formats, mapped)
	}
	for range systemColumns {
		formats = append(formats, pgx.BinaryFormatCode)
	}
	return formats
}

// found is a row of a table as an event.
type found struct {
	row
	event outbox.Event
	bad   *outbox.RowError // it cannot become one
}

// query calls do with the rows of a query made by selection.
func (t *tables) query(ctx context.Context, conn *pgx.Conn, s *source, sql string, args []any, do func(*found) error) error {
	rows, err := conn.Query(ctx, sql, append([]any{t.formats(s)}, args...)...)
	if err != nil {
		return explainRead(conn, s, err)
	}
	defer rows.Close()
	mapped := decode.Row{Relation: s.relation, Begin: &decode.Begin{}, Values: make([]decode.Value, len(s.relation.Columns))}
	nowhere := mapped.Position.Header(0) // in place of the event id where there is none
	var f found
	for rows.Next() {
		raw := rows.RawValues()
		for i := range mapped.Values {
			mapped.Values[i] = decode.Value{Format: t.formatOf(rows, i), Data: raw[i]}
			if raw[i] == nil {
				mapped.Values[i].Format = decode.ValueNull
			}
		}
		f.bad = nil
		if err := f.system(raw[len(mapped.Values):]); err != nil {
			return err
		}
		f.owner = s.owner
		if _, err := t.mapping.Map(&mapped, &f.event); err != nil {
			if !errors.As(err, &f.bad) {
				return err
			}
		}
		f.row.fill(&f.event, nowhere)
		if err := do(&f); err != nil {
			return err
		}
	}
	return explainRead(conn, s, rows.Err())
}

func (t *tables) formatOf(rows pgx.Rows, i int) byte {
	if rows.FieldDescriptions()[i].Format == pgx.BinaryFormatCode {
		return decode.ValueBinary
	}
	return decode.ValueText
}

// system reads xmin, ctid and order.
func (f *found) system(raw [][]byte) error {
	if len(raw) != systemColumns || len(raw[0]) != 4 || len(raw[1]) != 6 || raw[2] != nil && len(raw[2]) != 8 {
		return errors.New("the server sent xmin, ctid, time or id of a row in a form that is not known")
	}
	f.xid = binary.BigEndian.Uint32(raw[0])
	f.tid = uint64(binary.BigEndian.Uint32(raw[1]))<<16 | uint64(binary.BigEndian.Uint16(raw[1][4:]))
	f.at = 0
	if raw[2] != nil {
		f.at = int64(binary.BigEndian.Uint64(raw[2]))
	}
	return nil
}

func (r *row) fill(e *outbox.Event, nowhere string) {
	r.topic, r.key, r.value, r.id, r.format = e.Topic, e.Key, outbox.DataOf(e.Value, e.Headers), nil, ""
	if e.Schema != nil {
		r.format = e.Schema.Format
	}
	for _, h := range e.Headers {
		if h.Key == outbox.HeaderEventID && string(h.Value) != nowhere {
			r.id = h.Value
		}
	}
}

// readAll reads the rows of the range from one snapshot of the database.
func (t *tables) readAll(ctx context.Context, conn *pgx.Conn, do func(*found) error) error {
	for _, s := range t.sources {
		where, args := s.rangeOf(t.cfg)
		if err := t.query(ctx, conn, s, s.selection(where), args, do); err != nil {
			return err
		}
	}
	return nil
}

// explainRead names the right that walstream does without and an audit needs.
func explainRead(conn *pgx.Conn, s *source, err error) error {
	if err == nil {
		return nil
	}
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		switch coded.SQLState() {
		case "42501":
			return &replication.RightError{What: "the right to read " + s.plain, SQL: "GRANT SELECT ON " + s.name + " TO " + quote(conn.Config().User) + ";", Err: err}
		case "22P02", "22003", "22007", "22008": // a bound that its column's type does not know
			return settingError("range", "PostgreSQL does not take a bound for one of %s: %v", s.plain, err)
		}
	}
	return fmt.Errorf("read %s: %w", s.plain, err)
}
