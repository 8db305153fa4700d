package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/walstream/walstream/internal/pgtypes"
)

// columnType is the type of a column.
type columnType struct {
	sql    string   // as a column's type
	base   string   // the built-in type beneath its domains; empty for arrays and composites
	values []string // expressions
}

func plainType(k pgtypes.Kind) columnType {
	return columnType{sql: k.Name, base: k.Base(), values: k.Literals()}
}

// wholeType has long values too.
func wholeType(k pgtypes.Kind) columnType {
	t := plainType(k)
	switch k.Name {
	case "text", "bytea", "jsonb": // stored outside of the row, compressed and not
		long := "repeat('long é ', 3000)"
		noise := "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
		for _, text := range []string{long, noise} {
			switch k.Name {
			case "bytea":
				text = "convert_to(" + text + ", 'UTF8')"
			case "jsonb":
				text = "to_jsonb(" + text + ")"
			}
			t.values = append(t.values, text)
		}
	}
	return t
}

// domainOf is a domain of a domain of a type.
func domainOf(t columnType, name string) (columnType, string) {
	inner := strings.TrimSuffix(name, `"`) + ` inner"`
	ddl := fmt.Sprintf("CREATE DOMAIN %s AS %s; CREATE DOMAIN %s AS %s", inner, t.sql, name, inner)
	t.sql = name
	return t, ddl
}

// binaryKinds are those whose binary format walstream reads: with no other
// mapped, it asks for that.
var binaryKinds = []string{"bool", "bytea", "int2", "int4", "int8", "text", "varchar(20)", "char(6)", "json", "jsonb", "uuid"}

// anyType draws a type; ddl makes what it needs first, under the name given.
func anyType(r *rand.Rand, name string) (t columnType, ddl string) {
	k := pgtypes.Kinds[r.IntN(len(pgtypes.Kinds))]
	t = wholeType(k)
	switch r.IntN(7) {
	case 0: // array, of a type that may itself be quoted
		all := strings.Join(t.values, ", ")
		of := k.Name + "[]"
		values := []string{"ARRAY[" + all + ", NULL]::" + of, "'{}'::" + of, "'[-1:-1]={NULL}'::" + of, "ARRAY[[" + t.values[0] + "], [NULL]]::" + of}
		return columnType{sql: of, values: values}, ""
	case 1:
		return domainOf(t, name)
	case 2: // composite
		c := columnType{sql: name}
		for _, v := range t.values {
			c.values = append(c.values, "ROW("+v+`, 'x "y"')::`+name)
		}
		return c, fmt.Sprintf("CREATE TYPE %s AS (a %s, b text)", name, k.Name)
	}
	return t, ""
}

// oddNames are legal, and not what anybody expects.
var oddNames = []string{
	"plain", "UPPER", "Mixed Case", "select", "table", "user", "order", "from", `quo"te`, `"`, "it's", "sp ace ", " lead", "größe", "表", "😀", "a.b", "a,b",
	"a=b", "$1", "%s", "{x}", `back\slash`, "semi;colon", "--", "/*", "tab\tbed", "new\nline", "1st", "null", "true", "-", "#", "yes: no", "&amp;", "ctid_", "xmin_",
	strings.Repeat("x", 63), strings.Repeat("é", 31), strings.Repeat("y", 59) + "😀",
}

// names gives each name once.
type names struct {
	rand *rand.Rand
	used map[string]bool
}

func newNames(r *rand.Rand) *names { return &names{r, map[string]bool{}} }

func (n *names) next() string {
	for {
		name := oddNames[n.rand.IntN(len(oddNames))]
		if n.rand.IntN(3) == 0 && len(name) < 50 {
			name += fmt.Sprint(n.rand.IntN(1000))
		}
		if !n.used[name] {
			n.used[name] = true
			return name
		}
	}
}
