package outbox

import (
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/walstream/walstream/pkg/decode"
)

// typeInfo is what the mapping knows of a column's type. Of a type that was made
// in the database (a domain, an enum, hstore) the catalogue tells what it is as
// the session begins, and the stream what it was when the row was written.
type typeInfo struct {
	base uint32 // beneath its domains; the type itself where that is not known
	name string // of the base type; empty where it is not known
}

const firstUserOID = 16384

func (m *Mapping) learnTypes(layout *decode.Relation) {
	for i := range layout.Columns {
		if c := &layout.Columns[i]; c.Base != 0 && c.TypeOID >= firstUserOID {
			m.types[c.TypeOID] = typeInfo{c.Base, c.TypeName}
		}
	}
}

// typeOf a column of the catalogue's layout, or of the stream's.
func (m *Mapping) typeOf(c *decode.Column) typeInfo {
	if c.Base == 0 && c.TypeName != "" { // the stream's
		if c.TypeSchema == "" {
			if oid, ok := builtIn(c.TypeName); ok {
				return typeInfo{oid, ""}
			}
		}
		return typeInfo{c.TypeOID, c.TypeName}
	}
	switch info, known := m.types[c.TypeOID]; {
	case known:
		return info
	case c.Base != 0:
		return typeInfo{c.Base, c.TypeName}
	}
	return typeInfo{c.TypeOID, ""}
}

// builtIn is the OID of a type of pg_catalog, of those that matter here.
func builtIn(name string) (uint32, bool) {
	t, ok := builtInTypes().TypeForName(name)
	if !ok {
		return 0, false
	}
	return t.OID, true
}

var builtInTypes = sync.OnceValue(pgtype.NewMap)

// known reports whether the mapping knows what the type is.
func (i typeInfo) known() bool { return i.base < firstUserOID || i.name != "" }

// isTextual: a text that an application writes. What other types print can look
// like an object when it is empty ({} of an int[]) and not otherwise ({1,2}): a
// consumer would see now an object and now a string. Types that are not known are
// judged by their values.
func isTextual(i typeInfo) bool {
	return isText(i.base) || !i.known() || i.base >= firstUserOID && i.name == "citext"
}

func (i typeInfo) String() string {
	if i.name != "" {
		return i.name
	}
	if t, ok := builtInTypes().TypeForOID(i.base); ok {
		return t.Name
	}
	return fmt.Sprintf("type %d::regtype", i.base)
}

// unfit says why a part cannot come from a column of a type. Types that are not
// known are judged by their values.
func unfit(p part, i typeInfo) string {
	switch {
	case !i.known():
	case p == partHeaders && spreadOf(i) == spreadUnknown:
		return "headers are spread from json, jsonb or text (of a JSON object), hstore or text[] (of pairs), not from " + i.String() +
			": name a column of such a type, or single ones by header-columns"
	case p == partPartition && !isInt(i.base):
		return "a partition is an integer, not " + i.String()
	case p == partTimestamp && !isTimestamp(i.base):
		return "a timestamp comes from timestamptz or timestamp, not from " + i.String()
	}
	return ""
}

// spreadForm is how a column holds headers.
type spreadForm int

const (
	spreadUnknown spreadForm = iota // its first byte tells
	spreadJSON
	spreadHstore
	spreadPairs
)

func spreadOf(i typeInfo) spreadForm {
	switch i.base {
	case oidTextArray, oidVarcharArray, oidBPCharArray:
		return spreadPairs
	}
	switch {
	case isJSON(i.base) || isText(i.base):
		return spreadJSON
	case i.base >= firstUserOID && i.name == "hstore":
		return spreadHstore
	case i.base >= firstUserOID && i.name == "citext":
		return spreadJSON
	}
	return spreadUnknown
}
