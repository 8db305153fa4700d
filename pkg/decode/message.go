package decode

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Kinds of pgoutput message, protocol version 1 (which later servers still
// speak when asked for it).
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
const (
	KindBegin    = 'B'
	KindCommit   = 'C'
	KindOrigin   = 'O'
	KindRelation = 'R'
	KindType     = 'Y'
	KindInsert   = 'I'
	KindUpdate   = 'U'
	KindDelete   = 'D'
	KindTruncate = 'T'
	KindMessage  = 'M'
)

// Begin opens a transaction. CommitLSN is already known, so rows can be placed
// in order before the Commit is read.
type Begin struct {
	CommitLSN  pglogrepl.LSN
	CommitTime time.Time
	XID        uint32
}

// Commit ends a transaction. EndLSN is what may be confirmed: confirming
// CommitLSN itself brings the transaction back at the next start.
type Commit struct {
	CommitLSN  pglogrepl.LSN
	EndLSN     pglogrepl.LSN
	CommitTime time.Time
}

// Column of a relation as the stream describes it.
type Column struct {
	Name    string
	TypeOID uint32
	TypeMod int32
	Key     bool // part of the replica identity

	// Base is the type beneath its domains: known of layouts from the catalogue
	// only.
	Base uint32
	// TypeName is the name of the type beneath its domains. The stream tells it of
	// types that were made in the database, with TypeSchema, which is empty for
	// pg_catalog.
	TypeSchema, TypeName string
}

// Relation is the layout of the rows that follow it, valid until the next one
// of the same ID. It is never changed after it was made.
type Relation struct {
	ID              uint32
	Namespace       string // schema; empty means pg_catalog
	Name            string
	ReplicaIdentity byte
	Columns         []Column
}

// Column formats in a tuple.
const (
	ValueNull      = 'n'
	ValueUnchanged = 'u' // an unchanged TOASTed value, not sent; only in updates
	ValueText      = 't'
	ValueBinary    = 'b'
)

// Value is one column of a row. Data aliases the frame it came in.
type Value struct {
	Format byte
	Data   []byte
}

// Null reports whether the value is SQL NULL.
func (v Value) Null() bool { return v.Format == ValueNull }

func parseBegin(c *cursor) Begin {
	return Begin{
		CommitLSN:  pglogrepl.LSN(c.uint64()),
		CommitTime: pgTime(int64(c.uint64())),
		XID:        c.uint32(),
	}
}

func parseCommit(c *cursor) Commit {
	c.byte() // flags, unused
	return Commit{
		CommitLSN:  pglogrepl.LSN(c.uint64()),
		EndLSN:     pglogrepl.LSN(c.uint64()),
		CommitTime: pgTime(int64(c.uint64())),
	}
}

// minColumnSize is what a column description takes at least (flags, an empty
// name, type, modifier); it keeps a false count from asking for memory.
const minColumnSize = 1 + 1 + 4 + 4

func parseRelation(c *cursor) *Relation {
	r := &Relation{ID: c.uint32(), Namespace: c.string(), Name: c.string(), ReplicaIdentity: c.byte()}
	n := int(c.uint16())
	if n > c.rest()/minColumnSize {
		c.bad = true
		return r
	}
	r.Columns = make([]Column, n)
	for i := range r.Columns {
		flags := c.byte()
		r.Columns[i] = Column{Key: flags&1 != 0, Name: c.string(), TypeOID: c.uint32(), TypeMod: int32(c.uint32())}
	}
	return r
}

// typeName is what the stream calls a type: a domain by the name of the type
// beneath it.
// https://github.com/postgres/postgres/blob/master/src/backend/replication/logical/proto.c (logicalrep_write_typ)
type typeName struct{ schema, name string }

func parseType(c *cursor) (oid uint32, name typeName) {
	oid = c.uint32()
	return oid, typeName{c.string(), c.string()}
}

// parseTuple appends the columns of one inserted tuple to values. A ValueUnchanged
// is malformed here: an insert carries all of its values, and a row published
// with an empty one in place of a value not sent would be a loss.
func parseTuple(c *cursor, values []Value) []Value {
	n := int(c.uint16())
	for range n {
		v := Value{Format: c.byte()}
		switch v.Format {
		case ValueNull:
		case ValueText, ValueBinary:
			v.Data = c.take(int(int32(c.uint32())))
		default:
			c.bad = true
		}
		if c.bad {
			return values
		}
		values = append(values, v)
	}
	return values
}
