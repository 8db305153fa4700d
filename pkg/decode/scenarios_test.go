package decode_test

import "strings"

// The table most scenarios write to: columns of the types outbox tables have.
const (
	createOutbox = `CREATE TABLE outbox (id bigserial PRIMARY KEY, event_id uuid, topic text, key bytea, payload jsonb,` +
		` amount numeric(12,2), done boolean, tags text[], created_at timestamptz)`
	publishOutbox = `CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`
	publishAll    = `CREATE PUBLICATION pub FOR ALL TABLES`
	fullRow       = `INSERT INTO outbox (event_id, topic, key, payload, amount, done, tags, created_at) VALUES` +
		` ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'orders', '\x00ff6b', '{"n": 1}', 12.50, true, '{a,"b c"}', '2026-11-30 12:00:00.123456+00')`
	createSmall = `CREATE TABLE small (id int PRIMARY KEY, v text)`
)

func insertSmall(id, v string) string { return `INSERT INTO small VALUES (` + id + `, '` + v + `')` }

var scenarios = []scenario{
	{name: "insert, text", setup: []string{createOutbox, publishOutbox}, do: do(fullRow)},
	{name: "insert, binary", setup: []string{createOutbox, publishOutbox}, do: do(fullRow), binary: true},
	{
		name:  "rows of one statement",
		setup: []string{createSmall, publishAll},
		do:    do(`INSERT INTO small VALUES (1, 'one'), (2, 'two'), (3, 'three')`),
	},
	{
		name:  "COPY",
		setup: []string{createSmall, publishAll},
		do:    []step{{sql: `COPY small FROM STDIN`, copy: "1\tone\n2\t\\N\n3\t\n"}},
	},
	{
		name:  "NULL, empty, default",
		setup: []string{`CREATE TABLE t (a text, b bytea, c int DEFAULT 7, d text[])`, publishAll},
		do:    do(`INSERT INTO t (a, b) VALUES (NULL, NULL)`, `INSERT INTO t VALUES ('', '', 0, '{}')`, `INSERT INTO t DEFAULT VALUES`),
	},
	{name: "a row without columns", setup: []string{`CREATE TABLE t ()`, publishAll}, do: do(`INSERT INTO t DEFAULT VALUES`)},
	{
		name:  "subtransactions",
		setup: []string{createSmall, publishAll},
		do: do(`BEGIN`, insertSmall("1", "kept"), `SAVEPOINT s`, insertSmall("2", "undone"), `ROLLBACK TO s`,
			insertSmall("3", "kept too"), `RELEASE s`, `SAVEPOINT u`, insertSmall("4", "released"), `RELEASE u`, `COMMIT`),
	},
	{
		name:  "rollback",
		setup: []string{createSmall, publishAll},
		do:    do(`BEGIN`, insertSmall("1", "undone"), `ROLLBACK`, insertSmall("2", "after")),
	},
	{
		name:  "begun first, committed last",
		setup: []string{createSmall, publishAll},
		do: []step{
			{session: "a", sql: `BEGIN`},
			{session: "a", sql: insertSmall("1", "early")},
			{session: "b", sql: insertSmall("2", "between")},
			{session: "a", sql: insertSmall("3", "late")},
			{session: "a", sql: `COMMIT`},
		},
	},
	{
		name: "enum and domain",
		setup: []string{
			`CREATE TYPE mood AS ENUM ('calm', 'keen')`, `CREATE DOMAIN posint AS int CHECK (VALUE > 0)`,
			`CREATE TABLE t (m mood, p posint)`, publishAll,
		},
		do: do(`INSERT INTO t VALUES ('keen', 7)`),
	},
	{
		name:  "unicode names",
		setup: []string{`CREATE SCHEMA "Größe"`, `CREATE TABLE "Größe"."таблица ""x""" ("schlüssel 🔑" text, "値" text)`, publishAll},
		do:    do(`INSERT INTO "Größe"."таблица ""x""" VALUES ('ключ 🔑', E'line\nbreak')`),
	},
	{
		name: "partitions via root, with a column list",
		setup: []string{
			`CREATE TABLE outbox (id int, secret text, payload text) PARTITION BY RANGE (id)`,
			`CREATE TABLE outbox_1 (payload text, id int, secret text)`, // columns in another order
			`ALTER TABLE outbox ATTACH PARTITION outbox_1 FOR VALUES FROM (0) TO (10)`,
			`CREATE TABLE outbox_2 PARTITION OF outbox DEFAULT`,
			`CREATE PUBLICATION pub FOR TABLE outbox (id, payload) WITH (publish = 'insert', publish_via_partition_root = true)`,
		},
		do: do(`INSERT INTO outbox VALUES (1, 'hidden', 'first'), (11, 'hidden', 'second')`),
	},
	{
		name:  "table altered in a transaction",
		setup: []string{createSmall, publishAll},
		do: do(`BEGIN`, insertSmall("1", "narrow"), `ALTER TABLE small ADD COLUMN extra text DEFAULT 'e'`,
			`INSERT INTO small VALUES (2, 'wide', 'x')`, `ALTER TABLE small DROP COLUMN v`, `INSERT INTO small VALUES (3, 'y')`, `COMMIT`),
	},
	{
		name: "update and delete",
		setup: []string{
			createSmall, `CREATE TABLE "full" (id int, v text, big text)`, `ALTER TABLE "full" REPLICA IDENTITY FULL`,
			`ALTER TABLE small ADD COLUMN big text`, `ALTER TABLE small ALTER COLUMN big SET STORAGE EXTERNAL`,
			`INSERT INTO small VALUES (1, 'a', repeat('x', 3000)), (2, 'b', NULL)`, `INSERT INTO "full" VALUES (1, 'a', NULL)`, publishAll,
		},
		do: do(`UPDATE small SET v = 'unchanged big' WHERE id = 1`, `UPDATE small SET id = 3 WHERE id = 2`,
			`UPDATE "full" SET v = 'b'`, `DELETE FROM small WHERE id = 1`, `DELETE FROM "full"`, insertSmall("9", "an insert among them")),
	},
	{
		name: "a large value inserted, then copied by a statement",
		setup: []string{
			`CREATE TABLE t (id int, big text)`, `ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL`, publishAll,
		},
		do: do(`INSERT INTO t VALUES (1, '`+strings.Repeat("0123456789", 210)+`')`, `INSERT INTO t SELECT 2, big FROM t`),
	},
	{
		name:  "truncate",
		setup: []string{createSmall, `CREATE TABLE other (id int REFERENCES small)`, publishAll},
		do:    do(insertSmall("1", "gone"), `TRUNCATE small RESTART IDENTITY CASCADE`),
	},
	{
		name:  "logical messages",
		setup: []string{createSmall, publishAll},
		do: do(`SELECT pg_logical_emit_message(false, 'walstream', 'outside')`,
			`BEGIN`, `SELECT pg_logical_emit_message(true, 'walstream', 'inside')`, insertSmall("1", "with it"), `COMMIT`),
	},
	{
		name:  "origin",
		setup: []string{createSmall, publishAll, `SELECT pg_replication_origin_create('upstream')`},
		do: do(`SELECT pg_replication_origin_session_setup('upstream')`, `BEGIN`,
			`SELECT pg_replication_origin_xact_setup('0/ABCDEF', '2026-11-30 12:00:00+00')`, insertSmall("1", "replicated"), `COMMIT`,
			`SELECT pg_replication_origin_session_reset()`, `SELECT pg_replication_origin_drop('upstream')`),
	},
	{
		name:       "idle outbox on a busy server",
		setup:      []string{createSmall, createOutbox, publishOutbox},
		do:         do(insertSmall("1", "not published"), insertSmall("2", "not published")),
		keepalives: true,
	},
}
