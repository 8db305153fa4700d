package outbox_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/pgtypes"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

// noColumn are types of the catalogue that no application has in a table: they
// cannot be put in.
var noColumn = []string{
	"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "gtsvector",
}

// typeColumn is a column of the table of all types.
type typeColumn struct {
	name, sqlType string
	base          string   // of the type itself, and of its domain
	values        []string // SQL expressions
	noBinary      bool     // the server cannot send it in binary
}

// typeColumns of each type: itself, array, composite, domain. A new release may
// know an infinite interval.
func typeColumns(infinities bool) (schema string, columns []typeColumn) {
	for i, c := range pgtypes.Kinds {
		name := fmt.Sprintf("v%d", i)
		if c.Name == "interval" && infinities {
			c.Values = append(slices.Clone(c.Values), "infinity", "-infinity")
		}
		single := c.Literals()
		var composite []string
		for _, literal := range single {
			composite = append(composite, "ROW("+literal+", 'x \"y\"')::c_"+name)
		}
		all := strings.Join(single, ", ")
		arrays := []string{
			"ARRAY[" + all + ", NULL]::" + c.Name + "[]", "'{}'", "ARRAY[[" + single[0] + "], [NULL]]::" + c.Name + "[]", `('[-1:-1]={NULL}')`,
		}
		none := c.Name == "aclitem"
		schema += fmt.Sprintf("CREATE DOMAIN d_%[1]s AS %[2]s; CREATE TYPE c_%[1]s AS (a %[2]s, b text);\n", name, c.Name)
		columns = append(columns,
			typeColumn{name, c.Name, c.Name, single, none}, typeColumn{name + "_array", c.Name + "[]", "", arrays, none},
			typeColumn{name + "_composite", "c_" + name, "", composite, none}, typeColumn{name + "_domain", "d_" + name, c.Name, single, none})
	}
	return schema, columns
}

// TestC38C41EveryType: text == binary == col::text, for every type, whatever the
// database's settings; and where the binary format is not ours, it is refused
// rather than misread.
func TestC38C41EveryType(t *testing.T) {
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			dsn := testenv.SharedPostgres(t, major).CreateDatabase(t)
			conn := connect(t, dsn)
			for _, setting := range []string{
				"datestyle = 'German, DMY'", "intervalstyle = 'sql_standard'", "timezone = 'Asia/Kolkata'", "bytea_output = 'escape'", "extra_float_digits = -3",
			} {
				exec(t, conn, "ALTER DATABASE "+pgx.Identifier{conn.Config().Database}.Sanitize()+" SET "+setting)
			}
			conn = connect(t, dsn)
			testEveryType(t, conn, major)
		})
	}
}

func testEveryType(t *testing.T, conn *pgx.Conn, major int) {
	allTypesAreListed(t, conn)
	exec(t, conn, pgtypes.Shared)
	schema, columns := typeColumns(major >= 17)
	exec(t, conn, schema)
	rows := fillTypes(t, conn, columns)

	layouts, err := replication.Layouts(t.Context(), conn, "types_pub", []replication.PublishedTable{{Schema: "public", Name: "types"}})
	if err != nil {
		t.Fatal(err)
	}
	text, binary := decodeSlot(t, conn, "types_pub", false), decodeSlot(t, conn, "types_binary_pub", true)
	if len(text) != rows || len(binary) != rows {
		t.Fatalf("%d rows in text, %d in binary, of %d", len(text), len(binary), rows)
	}
	inBinary := 0
	for _, c := range columns {
		mapping, err := outbox.NewMapping([]outbox.MappingConfig{{
			Schema: "public", Table: "types", Topic: "t", KeyColumn: c.name, ValueColumn: c.name, HeaderColumns: []string{"h=" + c.name}, IDColumn: "seq",
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := mapping.Resolve(layouts...); err != nil {
			t.Fatal(err)
		}
		want := textOf(t, conn, c)
		for i := range want {
			checkParts(t, mapping, text[i], c, "text", want[i])
			if mapping.BinaryOK() {
				checkParts(t, mapping, binary[i], c, "binary", want[i])
				continue
			}
			if c.noBinary {
				continue
			}
			var e outbox.Event
			if _, err := mapping.Map(binary[i], &e); want[i] != nil && !errors.Is(err, outbox.ErrTextNeeded) && !bytes.Equal(e.Key, want[i]) {
				t.Errorf("%s in binary, though it must not be asked for, became %q: %v", c.sqlType, e.Key, err)
			}
		}
		if mapping.BinaryOK() {
			inBinary++
		}
	}
	if inBinary < 13 {
		t.Errorf("only %d columns may be asked for in binary", inBinary)
	}
	settingsCount(t, conn)
}

// checkParts: key, value and header are the text.
func checkParts(t *testing.T, mapping *outbox.Mapping, row *decode.Row, c typeColumn, format string, want []byte) {
	t.Helper()
	var e outbox.Event
	if _, err := mapping.Map(row, &e); err != nil {
		t.Errorf("%s in %s, row %s: %v", c.sqlType, format, e.RowID, err)
		return
	}
	for part, got := range map[string][]byte{"key": e.Key, "value": e.Value, "header": e.Headers[3].Value} {
		if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s in %s, row %s, %s: got %.200q, want %.200q", c.sqlType, format, e.RowID, part, got, want)
		}
	}
}

// allTypesAreListed: a type that a new release brings is to be thought of.
func allTypesAreListed(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT typname::text FROM pg_type
		WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm') AND typsubscript::text <> 'array_subscript_handler'
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, c := range pgtypes.Kinds {
		listed = append(listed, strings.Trim(c.Base(), `"`))
	}
	if len(names) < 60 {
		t.Fatalf("the catalogue has %d types", len(names))
	}
	for _, name := range names {
		if !slices.Contains(listed, name) && !slices.Contains(noColumn, name) {
			t.Errorf("type %s is not tried", name)
		}
	}
}

// fillTypes makes the table, its publication and slot, and a row for each value;
// the last row is all NULL.
func fillTypes(t *testing.T, conn *pgx.Conn, columns []typeColumn) (rows int) {
	t.Helper()
	create, inBinary := "CREATE TABLE types (seq bigserial", []string{"seq"}
	for _, c := range columns {
		create += ", " + c.name + " " + c.sqlType
		rows = max(rows, len(c.values)+1)
		if !c.noBinary {
			inBinary = append(inBinary, c.name)
		}
	}
	exec(t, conn, create+")")
	exec(t, conn, `CREATE PUBLICATION types_pub FOR TABLE types WITH (publish = 'insert')`)
	exec(t, conn, `CREATE PUBLICATION types_binary_pub FOR TABLE types (`+strings.Join(inBinary, ", ")+`) WITH (publish = 'insert')`)
	exec(t, conn, `SELECT pg_create_logical_replication_slot('`+typesSlot(conn)+`', 'pgoutput')`)
	t.Cleanup(func() { _, _ = conn.Exec(t.Context(), `SELECT pg_drop_replication_slot('`+typesSlot(conn)+`')`) })
	for i := range rows {
		var names, values []string
		for _, c := range columns {
			if i < len(c.values) {
				names, values = append(names, c.name), append(values, c.values[i])
			}
		}
		if len(names) == 0 {
			exec(t, conn, "INSERT INTO types DEFAULT VALUES")
			continue
		}
		exec(t, conn, "INSERT INTO types ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
	}
	return rows
}

func typesSlot(conn *pgx.Conn) string {
	return "t_" + conn.Config().Database[max(0, len(conn.Config().Database)-20):]
}

// decodeSlot returns the slot's rows, which it does not move.
func decodeSlot(t *testing.T, conn *pgx.Conn, publication string, binary bool) (rows []*decode.Row) {
	t.Helper()
	result, err := conn.Query(t.Context(), fmt.Sprintf(`SELECT data FROM pg_logical_slot_peek_binary_changes('%s', NULL, NULL,
		'proto_version', '1', 'publication_names', '%s', 'binary', '%v')`, typesSlot(conn), publication, binary))
	if err != nil {
		t.Fatal(err)
	}
	messages, err := pgx.CollectRows(result, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	assembler := decode.NewAssembler()
	for _, message := range messages {
		step, err := assembler.Next(1, message)
		if err != nil {
			t.Fatal(err)
		}
		if step == decode.StepRow {
			row, begin := assembler.Row, *assembler.Row.Begin
			row.Begin, row.Values = &begin, slices.Clone(row.Values)
			rows = append(rows, &row)
		}
	}
	return rows
}

// textOf is col::text of all rows. Two types are not compared with it: a bytea is
// its bytes, and xml what its own output is.
func textOf(t *testing.T, conn *pgx.Conn, c typeColumn) [][]byte {
	t.Helper()
	expression := c.name + "::text"
	switch c.base {
	case "bytea":
		expression = "encode(" + c.name + ", 'hex')"
	case "xml":
		expression = c.name
	}
	rows, err := conn.Query(t.Context(), `SELECT `+expression+` FROM types ORDER BY seq`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]byte, error) { return bytes.Clone(row.RawValues()[0]), nil })
	if err != nil {
		t.Fatalf("%s: %v", c.sqlType, err)
	}
	for i, text := range texts {
		if text != nil {
			texts[i] = append([]byte{}, text...)
		}
		if c.base == "bytea" && text != nil {
			if texts[i], err = hex.AppendDecode([]byte{}, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	return texts
}

// settingsCount proves that the session's settings are in force, and not only the
// same on both sides.
func settingsCount(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for expression, want := range map[string]string{
		"timestamptz '2026-03-04 05:06:07.5+02'": "2026-03-04 03:06:07.5+00",
		"interval '1 year -2 days 03:04:05'":     "1 year -2 days +03:04:05",
		"float8 '0.30000000000000004'":           "0.30000000000000004",
		`'\x00ff'::bytea`:                        `\x00ff`,
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT ("+expression+")::text").Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", expression, got, err, want)
		}
	}
}
