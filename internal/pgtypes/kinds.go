package pgtypes

import "strings"

// Kind is a type and literals of it, its extremes among them.
type Kind struct {
	Name   string
	Values []string // without their quotes
}

// Kinds are all built-in types that a column can have, and those that Shared makes.
var Kinds = []Kind{
	{"bool", []string{"true", "false"}},
	{"bytea", []string{"", `\x00`, `\x00ff275c`, `\xdeadbeef`}},
	{`"char"`, []string{"a", "", `\377`}},
	{"name", []string{"n a", strings.Repeat("é", 31)}},
	{"int2", []string{"-32768", "0", "32767"}},
	{"int4", []string{"-2147483648", "0", "2147483647"}},
	{"int8", []string{"-9223372036854775808", "0", "9223372036854775807"}},
	{"float4", []string{"NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e+38", "0.1", "-0"}},
	{"float8", []string{"NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e+308", "0.30000000000000004", "-0"}},
	{"numeric", []string{"NaN", "Infinity", "-Infinity", "1e131071", "-1e-16383", "1.50", "-0.00", "0"}},
	{"numeric(10,2)", []string{"1.5", "-99999999.99"}},
	{"money", []string{"-92233720368547758.08", "92233720368547758.07", "0"}},
	{"text", []string{"", "é€\n😀", `"quoted" \ {a,b}`, "NULL", "null"}},
	{"varchar(20)", []string{"a b ", "", "größe"}},
	{"char(6)", []string{"ab", " a ", ""}},
	{"bpchar", []string{"ab  ", ""}},
	{"json", []string{`{"n":12345678901234567890.0001,  "a":1,"a":2,"s":"<>&\u2028"}`, "null", " [ ] "}},
	{"jsonb", []string{`{"n":12345678901234567890.0001,"b":9007199254740993,"f":1.0}`, "null", "{}", `"x"`}},
	{"jsonpath", []string{`$.a[*] ? (@ > 1)`}},
	{"xml", []string{"<a b=\"1\">é</a>", "", `<?xml version="1.0" encoding="UTF-8"?><a/>`}},
	{"uuid", []string{"0F8FAD5B-D9CB-469F-A165-70867728950E", "00000000-0000-0000-0000-000000000000"}},
	{"date", []string{"4713-11-24 BC", "0044-03-15 BC", "5874897-12-31", "infinity", "-infinity", "2026-03-04"}},
	{"time", []string{"00:00", "24:00:00", "23:59:59.999999"}},
	{"timetz", []string{"23:59:59.999999-15:59", "24:00:00+15:59:59", "12:00+05:30"}},
	{"timestamp", []string{"4713-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999", "infinity", "-infinity", "2026-03-04 05:06:07"}},
	{"timestamptz", []string{"4713-11-24 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00", "infinity", "-infinity", "2026-03-04 05:06:07.5+02"}},
	{"interval", []string{"178000000 years", "-178000000 years", "1 year -2 days 03:04:05.000001", "-00:00:00.000001", "0"}},
	{"bit(5)", []string{"10110"}},
	{"varbit", []string{"", "1", "1010101010101"}},
	{"inet", []string{"192.168.0.1", "192.168.0.1/24", "::1", "2001:db8::1/64", "::ffff:1.2.3.4"}},
	{"cidr", []string{"10.0.0.0/8", "192.168.0.1", "2001:db8::/32"}},
	{"macaddr", []string{"08:00:2b:01:02:03"}},
	{"macaddr8", []string{"08:00:2b:01:02:03:04:05"}},
	{"point", []string{"(1e-300,NaN)", "(-0,Infinity)"}},
	{"line", []string{"{1,2,3}"}},
	{"lseg", []string{"[(0,0),(1,1)]"}},
	{"box", []string{"(1,1),(0,0)"}},
	{"path", []string{"((0,0),(1,1))", "[(0,0),(1,1)]"}},
	{"polygon", []string{"((0,0),(1,0),(1,1))"}},
	{"circle", []string{"<(0,0),1.5>", "<(0,0),Infinity>"}},
	{"tsvector", []string{"'a':1A 'b c':2,3 'it''s'", ""}},
	{"tsquery", []string{"a & !( b | 'c d':*A )"}},
	{"int4range", []string{"empty", "[1,10)", "(,)"}},
	{"int8range", []string{"[-9223372036854775808,9223372036854775807)"}},
	{"numrange", []string{"[1.50,)", "empty"}},
	{"tsrange", []string{`["2026-03-04 05:06:07",infinity]`}},
	{"tstzrange", []string{`[-infinity,"2026-03-04 05:06:07+02")`, "(,)"}},
	{"daterange", []string{"[0044-03-15 BC,5874897-12-31)"}},
	{"int4multirange", []string{"{}", "{[1,3),[5,8)}"}},
	{"int8multirange", []string{"{(,)}"}},
	{"nummultirange", []string{"{[1.5,2.5]}", "{}"}},
	{"tsmultirange", []string{`{["2026-03-04 05:06:07",infinity]}`}},
	{"tstzmultirange", []string{`{[-infinity,"2026-03-04 05:06:07+02")}`}},
	{"datemultirange", []string{"{[2026-03-04,2026-03-05)}"}},
	{"oid", []string{"0", "4294967295"}},
	{"xid", []string{"0", "4294967295"}},
	{"xid8", []string{"18446744073709551615"}},
	{"cid", []string{"4294967295"}},
	{"tid", []string{"(4294967295,65535)"}},
	{"pg_lsn", []string{"0/0", "FFFFFFFF/FFFFFFFF"}},
	{"pg_snapshot", []string{"10:20:10,14"}},
	{"txid_snapshot", []string{"10:20:10,14"}},
	{"refcursor", []string{"c 1"}},
	{"aclitem", []string{"=r/postgres"}},
	{"oidvector", []string{"1 2 3"}},
	{"int2vector", []string{"1 -2 3"}},
	{"regclass", []string{"pg_class", "-", "pg_catalog.pg_class"}},
	{"regproc", []string{"now"}},
	{"regprocedure", []string{"abs(int4)"}},
	{"regoper", []string{"||/"}},
	{"regoperator", []string{"+(int4,int4)"}},
	{"regtype", []string{"timestamptz", "int4[]"}},
	{"regrole", []string{"-"}},
	{"regnamespace", []string{"pg_catalog"}},
	{"regconfig", []string{"simple"}},
	{"regdictionary", []string{"simple"}},
	{"regcollation", []string{`"C"`}},
	{"public.mood", []string{"sad", `it's "ok"`}},
	{"public.hstore", []string{`"a"=>"1", "b c"=>NULL`, ""}},
	{"public.citext", []string{"Größe", ""}},
	{"public.doc_of_doc", []string{`{"a": 1}`}},
	{"public.pair", []string{`(5,"a \"b\" c")`, `(,)`}},
}

// Shared makes what Kinds has of schema public, once in a database.
const Shared = `
CREATE EXTENSION hstore SCHEMA public; CREATE EXTENSION citext SCHEMA public;
CREATE TYPE public.mood AS ENUM ('sad', 'it''s "ok"');
CREATE TYPE public.pair AS (n int, t text);
CREATE DOMAIN public.doc AS jsonb; CREATE DOMAIN public.doc_of_doc AS public.doc;`

// Named is one of Kinds.
func Named(name string) Kind {
	for _, k := range Kinds {
		if k.Name == name {
			return k
		}
	}
	panic("pgtypes: bug: no kind " + name)
}

// Base is the name without what is in brackets behind it; of a domain, that of
// the type beneath.
func (k Kind) Base() string {
	if k.Name == "public.doc_of_doc" {
		return "jsonb"
	}
	base, _, _ := strings.Cut(k.Name, "(")
	return base
}

// Literals are the values as expressions.
func (k Kind) Literals() []string {
	all := make([]string, len(k.Values))
	for i, v := range k.Values {
		all[i] = Literal(v) + "::" + k.Name
	}
	return all
}

// Literal is a text in SQL.
func Literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
