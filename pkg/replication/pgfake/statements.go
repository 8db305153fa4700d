package pgfake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// statement is one that package replication sends, word for word but for white
// space: a statement that was changed there is unknown here until somebody has
// looked at its answer again.
type statement struct {
	sql     string
	params  []uint32
	columns []column
	// answer runs under the server's lock.
	answer func(c *session, args []any) ([][]any, *failure)
}

type column struct {
	name string
	oid  uint32
}

const (
	tBool = pgtype.BoolOID
	tInt  = pgtype.Int4OID
	tBig  = pgtype.Int8OID
	tText = pgtype.TextOID
	tName = pgtype.NameOID
	tOID  = pgtype.OIDOID
	tTime = pgtype.TimestamptzOID
)

// columnsOf names the columns of an answer by their types only: pgx goes by
// their order.
func columnsOf(oids ...uint32) []column {
	columns := make([]column, len(oids))
	for i, oid := range oids {
		columns[i] = column{fmt.Sprint("c", i+1), oid}
	}
	return columns
}

// statement finds a statement; one that nobody has taught is told of.
func (s *Server) statement(sql string) (*statement, *failure) {
	wanted := flat(sql)
	for i := range statements {
		known := &statements[i]
		if prefix, isPrefix := strings.CutSuffix(known.sql, " ..."); isPrefix && strings.HasPrefix(wanted, prefix) || flat(known.sql) == wanted {
			return &statement{wanted, known.params, known.columns, known.answer}, nil
		}
	}
	s.cfg.Unknown(sql)
	return nil, fail("42601", "pgfake does not know this statement: teach it in statements.go: %s", sql)
}

// flat is a statement with single blanks.
func flat(sql string) string { return strings.Join(strings.Fields(sql), " ") }

func one(values ...any) ([][]any, *failure) { return [][]any{values}, nil }

func nothing(*session, []any) ([][]any, *failure) { return nil, nil }

const walEnd = "CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_flush_lsn() END::text"

// statements that are answered. One that ends in " ..." is known by its beginning.
var statements = []statement{
	{sql: "SET transaction_timeout = 0", answer: nothing},
	{sql: "SET statement_timeout = 0; SET lock_timeout = 0", answer: nothing},
	{sql: "RESET statement_timeout; RESET lock_timeout", answer: nothing},
	{
		sql: "SHOW wal_sender_timeout", columns: columnsOf(tText),
		answer: func(c *session, _ []any) ([][]any, *failure) { return one(showMilliseconds(c.timeout())) },
	},
	{
		sql: "SELECT current_setting('server_version_num')::int", columns: columnsOf(tInt),
		answer: func(c *session, _ []any) ([][]any, *failure) { return one(int32(c.server.cfg.Version)) },
	},
	{
		sql: "SELECT " + walEnd + ", clock_timestamp()", columns: columnsOf(tText, tTime),
		answer: func(c *session, _ []any) ([][]any, *failure) { return one(c.server.flushed.String(), time.Now()) },
	},
	{
		sql: `SELECT ` + walEnd + `, s.confirmed_flush_lsn::text, s.restart_lsn::text,
       s.wal_status, s.safe_wal_size, coalesce(s.active_pid = $2, false),
       coalesce((SELECT r.sync_state FROM pg_stat_replication r WHERE r.pid = $2), ''),
       current_setting('synchronous_standby_names'), pg_is_in_recovery()
FROM pg_replication_slots s WHERE s.slot_name = $1`,
		params:  []uint32{tName, tInt},
		columns: columnsOf(tText, tText, tText, tText, tBig, tBool, tText, tText, tBool), answer: health,
	},
	{
		sql:     `SELECT clock_timestamp(), coalesce(age(s.catalog_xmin), 0)::int8, (j ->> 'inactive_since')::timestamptz, ...`,
		params:  []uint32{tName},
		columns: columnsOf(tTime, tBig, tTime, tBool, tBool, tText, tText, tText, tBig, tBig, tBig, tBig, tBig, tBig, tBig, tBig),
		answer: func(c *session, args []any) ([][]any, *failure) {
			if c.server.slots[args[0].(string)] == nil {
				return nil, nil
			}
			zero := int64(0)
			return one(time.Now(), zero, nil, false, false, "streaming", "", "", zero, zero, zero, zero, zero, zero, zero, zero)
		},
	},
	{
		sql:     "SELECT coalesce(h.pid, 0), coalesce(p.gid, ''), coalesce(a.usename, ''), coalesce(a.application_name, ''), ...",
		columns: columnsOf(tInt, tText, tText, tText, tText, tTime), answer: nothing, // whoever writes has committed
	},
	{
		sql: `SELECT coalesce(s.plugin, ''), s.slot_type, coalesce(s.database, ''), s.temporary, coalesce(s.two_phase, false),
       coalesce((j ->> 'failover')::bool, false), coalesce((j ->> 'synced')::bool, false), pg_is_in_recovery(),
       coalesce(s.confirmed_flush_lsn::text, '0/0'), coalesce(s.restart_lsn::text, '0/0'),
       coalesce(s.wal_status, ''), s.safe_wal_size,
       coalesce(j ->> 'invalidation_reason', CASE WHEN (j ->> 'conflicting')::bool THEN 'conflicting' ELSE '' END),
       (j ->> 'inactive_since')::timestamptz,
       s.active, coalesce(s.active_pid, 0), a.backend_start, coalesce(host(a.client_addr), ''),
       coalesce(a.application_name, '')
FROM pg_replication_slots s
CROSS JOIN LATERAL to_jsonb(s) j
LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = $1`,
		params: []uint32{tName},
		columns: columnsOf(tText, tText, tText, tBool, tBool, tBool, tBool, tBool, tText, tText, tText, tBig, tText, tTime,
			tBool, tInt, tTime, tText, tText),
		answer: lookupSlot,
	},
	{
		sql:    "SELECT lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput', false, false)",
		params: []uint32{tName}, columns: columnsOf(tText),
		answer: func(c *session, args []any) ([][]any, *failure) {
			lsn, refused := c.server.createSlot(args[0].(string))
			if refused != nil {
				return nil, refused
			}
			return one(lsn.String())
		},
	},
	{
		sql:    "SELECT pg_drop_replication_slot($1)",
		params: []uint32{tName}, columns: columnsOf(tText), answer: dropSlot,
	},
	{
		sql: `SELECT p.pubname, pg_get_userbyid(p.pubowner), p.puballtables, p.pubviaroot,
       p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
       coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)
FROM pg_publication p WHERE p.pubname = $1`,
		params: []uint32{tName}, columns: columnsOf(tName, tName, tBool, tBool, tBool, tBool, tBool, tBool, tBool),
		answer: func(c *session, args []any) ([][]any, *failure) {
			if c.server.publications[args[0].(string)] == nil {
				return nil, nil
			}
			return one(args[0], "walstream", false, true, true, false, false, false, false)
		},
	},
	{
		sql: `SELECT DISTINCT pubname::text FROM pg_publication_tables
WHERE format('%I.%I', schemaname, tablename)::regclass::oid = ANY ($1::oid[]) ORDER BY 1 LIMIT 10`,
		params: []uint32{pgtype.OIDArrayOID}, columns: columnsOf(tText),
		answer: func(c *session, _ []any) (rows [][]any, _ *failure) {
			for _, name := range slices.Sorted(maps.Keys(c.server.publications)) {
				rows = append(rows, []any{name})
			}
			return rows, nil
		},
	},
	{
		sql: "CREATE PUBLICATION ...",
		answer: func(c *session, _ []any) ([][]any, *failure) {
			return nil, c.server.createPublication(quotedName(c.statement, "CREATE PUBLICATION "))
		},
	},
	{
		sql: "DROP PUBLICATION IF EXISTS ...",
		answer: func(c *session, _ []any) ([][]any, *failure) {
			delete(c.server.publications, quotedName(c.statement, "DROP PUBLICATION IF EXISTS "))
			return nil, nil
		},
	},
	{
		sql: `SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
  SELECT format('publication %s %s %s %s %s', p.oid, p.xmin, p.pubinsert, p.pubviaroot, p.puballtables) AS line
  FROM pg_publication p WHERE p.pubname = $1
  UNION ALL
  SELECT format('table %s %s', r.oid, r.prrelid)
  FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1
  UNION ALL
  SELECT format('schema %s %s', n.oid, n.pnnspid)
  FROM pg_publication_namespace n JOIN pg_publication p ON p.oid = n.pnpubid WHERE p.pubname = $1
  UNION ALL
  SELECT format('name %s %s', t.name, coalesce(c.oid, 0)) FROM unnest($2::text[], $3::text[], $4::text[]) AS t(name, schema, relation)
  LEFT JOIN pg_namespace n ON n.nspname = t.schema LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relation
  UNION ALL
  SELECT format('not in the WAL: %s', p.oid)
  FROM unnest($3::text[], $4::text[]) AS t(schema, relation)
  JOIN pg_namespace n ON n.nspname = t.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relation,
  pg_partition_tree(c.oid) AS part JOIN pg_class p ON p.oid = part.relid
  WHERE p.relpersistence <> 'p' OR p.relkind = 'f'
  UNION ALL
  SELECT format('under a name of its own: %s', i.inhrelid)
  FROM unnest($3::text[], $4::text[]) AS t(schema, relation)
  JOIN pg_namespace n ON n.nspname = t.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.relation
  JOIN pg_inherits i ON i.inhparent = c.oid WHERE c.relkind = 'r'
) lines`,
		params: []uint32{tName, pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID}, columns: columnsOf(tText), answer: fingerprint,
	},
	{
		sql: `SELECT c.oid, c.relkind::text, c.relpersistence::text, pg_get_userbyid(c.relowner),
       pg_has_role(c.relowner, 'USAGE'),
       pr.oid IS NOT NULL OR pn.oid IS NOT NULL OR coalesce(p.puballtables, false),
       coalesce(pr.prattrs IS NOT NULL, false), coalesce(pr.prqual IS NOT NULL, false)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication p ON p.pubname = $3
LEFT JOIN pg_publication_rel pr ON pr.prpubid = p.oid AND pr.prrelid = c.oid
LEFT JOIN pg_publication_namespace pn ON pn.pnpubid = p.oid AND pn.pnnspid = n.oid
WHERE n.nspname = $1 AND c.relname = $2`,
		params: []uint32{tName, tName, tName}, columns: columnsOf(tOID, tText, tText, tName, tBool, tBool, tBool, tBool),
		answer: lookupTable,
	},
	{
		sql: `SELECT a.attname, a.atttypid, a.attnotnull, a.attgenerated::text,
       coalesce(a.attnum = ANY (pr.prattrs::int2[]), false)
FROM pg_attribute a
LEFT JOIN pg_publication p ON p.pubname = $2
LEFT JOIN pg_publication_rel pr ON pr.prpubid = p.oid AND pr.prrelid = a.attrelid
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`,
		params: []uint32{tOID, tName}, columns: columnsOf(tName, tOID, tBool, tText, tBool), answer: lookupColumns,
	},
	{
		sql: `WITH RECURSIVE tree AS (
  SELECT inhrelid, inhparent FROM pg_inherits WHERE inhparent = $1
  UNION SELECT i.inhrelid, i.inhparent FROM pg_inherits i JOIN tree ON i.inhparent = tree.inhrelid)
SELECT n.nspname, c.relname, format('%I.%I', pn.nspname, p.relname), c.relkind::text, c.relpersistence::text
FROM tree JOIN pg_class c ON c.oid = tree.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = tree.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE c.relkind = 'f' OR c.relpersistence <> 'p' OR NOT c.relispartition ORDER BY 1, 2 LIMIT 5`,
		params: []uint32{tOID}, columns: columnsOf(tName, tName, tText, tText, tText), answer: nothing,
	},
	{
		sql: `SELECT name FROM (
  SELECT format('table %s.%s', n.nspname, c.relname) AS name
  FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1 AND NOT c.oid = ANY ($2::oid[])
  UNION ALL
  SELECT format('all tables of schema %s', n.nspname)
  FROM pg_publication_namespace r JOIN pg_namespace n ON n.oid = r.pnnspid
  JOIN pg_publication p ON p.oid = r.pnpubid WHERE p.pubname = $1) carried
ORDER BY name LIMIT 10`,
		params: []uint32{tName, pgtype.OIDArrayOID}, columns: columnsOf(tText), answer: nothing,
	},
	{
		sql: `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync')::bool,
       current_setting('wal_level'), current_setting('server_encoding'), current_setting('synchronous_standby_names'),
       current_setting('max_replication_slots')::int, (SELECT count(*)::int FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT count(*)::int FROM pg_stat_replication),
       (SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'),
       (SELECT setting::int FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       coalesce((SELECT setting::int FROM pg_settings WHERE name = 'idle_replication_slot_timeout'), 0),
       coalesce(current_setting('synchronized_standby_slots', true), ''), current_setting('hot_standby_feedback')::bool,
       coalesce(current_setting('primary_slot_name', true), '')`,
		columns: columnsOf(tInt, tBool, tBool, tText, tText, tText, tInt, tInt, tInt, tInt, tInt, tInt, tInt, tText, tBool, tText), answer: settings,
	},
	{
		sql: `SELECT r.rolname, r.rolsuper,
       r.rolreplication OR r.rolsuper
         OR coalesce((SELECT pg_has_role(s.oid, 'USAGE') FROM pg_roles s WHERE s.rolname = 'rds_replication'), false),
       has_database_privilege(current_database(), 'CREATE'),
       pg_has_role('pg_read_all_stats', 'USAGE'), current_database()
FROM pg_roles r WHERE r.rolname = current_user`,
		columns: columnsOf(tName, tBool, tBool, tBool, tBool, tName),
		answer: func(c *session, _ []any) ([][]any, *failure) {
			return one(c.params["user"], false, true, true, true, c.server.cfg.Database)
		},
	},
}

func health(c *session, args []any) ([][]any, *failure) {
	slot := c.server.slots[args[0].(string)]
	if slot == nil {
		return nil, nil
	}
	pid, syncState := args[1].(int32), ""
	held := slot.holder != nil && slot.holder.pid == uint32(pid)
	if held {
		syncState = "async"
	}
	return one(c.server.flushed.String(), slot.confirmed.String(), slot.confirmed.String(), "reserved", nil, held, syncState, "", false)
}

func lookupSlot(c *session, args []any) ([][]any, *failure) {
	slot := c.server.slots[args[0].(string)]
	if slot == nil {
		return nil, nil
	}
	row := []any{
		"pgoutput", "logical", c.server.cfg.Database, false, false, false, false, false,
		slot.confirmed.String(), slot.confirmed.String(), "reserved", nil, "", nil,
		false, int32(0), nil, "", "",
	}
	if h := slot.holder; h != nil {
		copy(row[14:], []any{true, int32(h.pid), h.since, "", h.params["application_name"]})
	}
	return one(row...)
}

func dropSlot(c *session, args []any) ([][]any, *failure) {
	name := args[0].(string)
	switch slot := c.server.slots[name]; {
	case slot == nil:
		return nil, fail("42704", "replication slot %q does not exist", name)
	case slot.holder != nil:
		return nil, fail("55006", "replication slot %q is active for PID %d", name, slot.holder.pid)
	}
	delete(c.server.slots, name)
	return one("")
}

func fingerprint(c *session, args []any) ([][]any, *failure) {
	s := c.server
	lines := []string{fmt.Sprintf("name %v %d", args[1], s.cfg.Table.ID)}
	if p := s.publications[args[0].(string)]; p != nil {
		lines = append(lines, fmt.Sprintf("publication %d %d t t f", p.oid, p.xmin), fmt.Sprintf("table %d %d", p.row, s.cfg.Table.ID))
	}
	return one(strings.Join(lines, "\n"))
}

func lookupTable(c *session, args []any) ([][]any, *failure) {
	s := c.server
	if args[0] != s.cfg.Table.Namespace || args[1] != s.cfg.Table.Name {
		return nil, nil
	}
	published := s.publications[args[2].(string)] != nil
	return one(s.cfg.Table.ID, "r", "p", c.params["user"], true, published, published, false)
}

func lookupColumns(c *session, args []any) ([][]any, *failure) {
	var rows [][]any
	published := c.server.publications[args[1].(string)] != nil
	for _, column := range c.server.cfg.Table.Columns {
		rows = append(rows, []any{column.Name, column.TypeOID, true, "", published})
	}
	return rows, nil
}

func settings(c *session, _ []any) ([][]any, *failure) {
	s := c.server
	senders := 0
	for other := range s.sessions {
		if other.sender != nil {
			senders++
		}
	}
	return one(int32(s.cfg.Version), false, true, "logical", "UTF8", "", int32(10), int32(len(s.slots)), int32(10), int32(senders),
		int32(s.cfg.WALSenderTimeout/time.Millisecond), int32(-1), int32(0), "", false, "")
}

// quotedName is the identifier behind a prefix.
func quotedName(sql, prefix string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(sql, prefix+`"`), `"`)
	return name
}
