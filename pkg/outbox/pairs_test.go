package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

const hstoreOID, moodOID = 16500, 16501

// headersRelation is our own table with a headers column of a type of the
// database, as the catalogue tells of it.
func headersRelation(oid, base uint32, typeName string) *decode.Relation {
	r := ownRow(col{"headers", oid, nil}).Relation
	c := &r.Columns[columnIndex(r, "headers")]
	c.Base, c.TypeName = base, typeName
	return r
}

func TestSpreadPairs(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		form             spreadForm
		err              error
	}{
		{"hstore", `"a"=>"1", "b \" \\ c"=>"x, \"y\"=>z", "n"=>NULL, ""=>""`, `a="1" b " \ c="x, \"y\"=>z" n=nil =""`, spreadHstore, nil},
		{"empty hstore", ``, ``, spreadHstore, nil},
		{"hstore NULL text", `"a"=>"NULL"`, `a="NULL"`, spreadHstore, nil},
		{"hstore of ours", `"walstream-x"=>"1", "b"=>"2"`, `b="2"`, spreadHstore, nil},
		{"hstore cut", `"a"=>"1`, ``, spreadHstore, errHstore},
		{"hstore no value", `"a"`, ``, spreadHstore, errHstore},
		{"hstore no quotes", `a=>1`, ``, spreadHstore, errHstore},
		{"pairs", `{a,1,"b \" \\","x, y",n,NULL,q,"NULL","",""}`, `a="1" b " \="x, y" n=nil q="NULL" =""`, spreadPairs, nil},
		{"nested pairs", `{{a,1},{"b",2}}`, `a="1" b="2"`, spreadPairs, nil},
		{"pairs with bounds", `[0:1]={a,1}`, `a="1"`, spreadPairs, nil},
		{"no pairs", `{}`, ``, spreadPairs, nil},
		{"odd", `{a,1,b}`, ``, spreadPairs, errPairs},
		{"threes", `{{a,1,b},{c,2,d}}`, ``, spreadPairs, errPairs},
		{"NULL name", `{NULL,1}`, ``, spreadPairs, errNoName},
		{"cut", `{a,1`, ``, spreadPairs, errArray},
		{"unknown: hstore", `"a"=>"1"`, `a="1"`, spreadUnknown, nil},
		{"unknown: JSON", `{"a": 1}`, `a="1"`, spreadUnknown, nil},
		{"JSON", `{"a": 1}`, `a="1"`, spreadJSON, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mustMapping(t, own())
			var e Event
			_, err := m.spreadColumn([]byte(c.text), c.form, &e)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			var got []string
			for _, h := range e.Headers {
				value := "nil"
				if h.Value != nil {
					value = fmt.Sprintf("%q", h.Value)
				}
				got = append(got, h.Key+"="+value)
			}
			if all := strings.Join(got, " "); err == nil && all != c.want {
				t.Errorf("got  %s\nwant %s", all, c.want)
			}
		})
	}
}

// TestC41HeadersColumnTypes: what a headers column can be, told at start.
func TestC41HeadersColumnTypes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		relation   *decode.Relation
		refused    string
	}{
		{"hstore", `"a"=>"1"`, headersRelation(hstoreOID, hstoreOID, "hstore"), ""},
		{"domain of jsonb", `{"a": "1"}`, headersRelation(moodOID, pgtype.JSONBOID, "jsonb"), ""},
		{"domain of text[]", `{a,1}`, headersRelation(moodOID, pgtype.TextArrayOID, "_text"), ""},
		{"text[]", `{a,1}`, headersRelation(pgtype.TextArrayOID, 0, ""), ""},
		{"text", `{"a": "1"}`, headersRelation(pgtype.TextOID, 0, ""), ""},
		{"enum", ``, headersRelation(moodOID, moodOID, "mood"), "not from mood: name a column of such a type"},
		{"int", ``, headersRelation(pgtype.Int4OID, 0, ""), "not from int4"},
		{"int[]", ``, headersRelation(pgtype.Int4ArrayOID, 0, ""), "not from _int4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mustMapping(t, own())
			err := m.Resolve(c.relation)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), `public.outbox, column "headers" (headers-column)`) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			row := ownRow(col{"headers", c.relation.Columns[columnIndex(c.relation, "headers")].TypeOID, c.text}) // as the stream tells it: without the base
			if got := show(mustMap(t, m, row)); !strings.HasSuffix(got, ` event_type="deposited" a="1"`) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestC41Domains come out as the types beneath.
func TestC41Domains(t *testing.T) {
	for _, c := range []struct {
		base       uint32
		text, want string
	}{
		{pgtype.ByteaOID, `\x00ff`, "\x00\xff"},
		{pgtype.BoolOID, "t", "true"},
		{pgtype.BPCharOID, "ab  ", "ab"},
		{pgtype.InetOID, "10.0.0.1", "10.0.0.1/32"},
		{pgtype.Int4OID, "5", "5"},
	} {
		m := mustMapping(t, own())
		r := ownRow().Relation
		at := columnIndex(r, "payload")
		r.Columns[at].TypeOID, r.Columns[at].Base, r.Columns[at].TypeName = moodOID, c.base, "x"
		if err := m.Resolve(r); err != nil {
			t.Fatal(err)
		}
		if e := mustMap(t, m, ownRow(col{"payload", moodOID, c.text})); string(e.Value) != c.want {
			t.Errorf("domain of %d: %q, want %q", c.base, e.Value, c.want)
		}
		if m.BinaryOK() {
			t.Errorf("domain of %d: its binary format cannot be told from the stream", c.base)
		}
	}
}

// FuzzSpreadPairs: no text makes it panic, and what is written as PostgreSQL
// would write it reads back.
func FuzzSpreadPairs(f *testing.F) {
	f.Add("a", "1", true)
	f.Add(`b "\`, "x, {y}=>", false)
	f.Fuzz(func(t *testing.T, name, value string, null bool) {
		if strings.HasPrefix(name, reservedPrefix) {
			return
		}
		quote := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
		text := quote(value)
		if null {
			text = "NULL"
		}
		for form, written := range map[spreadForm]string{
			spreadHstore: quote(name) + "=>" + text, spreadPairs: "{" + quote(name) + "," + text + "}",
		} {
			m := mustMapping(t, own())
			var e Event
			if _, err := m.spreadColumn([]byte(written), form, &e); err != nil || len(e.Headers) != 1 {
				t.Fatalf("%s: %v, %q", written, err, e.Headers)
			}
			h := e.Headers[0]
			if h.Key != name || (h.Value == nil) != null || !null && string(h.Value) != value {
				t.Fatalf("%s: %q = %q", written, h.Key, h.Value)
			}
			_, _ = m.spreadColumn([]byte(name+value), form, &e)
		}
	})
}
