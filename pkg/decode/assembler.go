package decode

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Step is what one message meant to the stream of transactions.
type Step byte

const (
	// StepNone: the message only told of layouts, or is of a known kind that is
	// not published; it is counted.
	StepNone Step = iota
	StepBegin
	StepRow
	StepCommit
)

// Row is one inserted row. It and its bytes live until the next call of Next.
type Row struct {
	Position Position
	Relation *Relation
	Values   []Value // one for each column of Relation
	Begin    *Begin  // the transaction it belongs to
}

// Skipped counts the messages that are known and deliberately not published.
// The publication asks for inserts only; these come from publications that
// somebody else made.
type Skipped struct {
	Updates, Deletes, Truncates, Messages uint64
}

// Assembler turns pgoutput messages into Begin, Row and Commit and keeps the
// layouts of the relations. It checks that commit LSNs rise, that a Commit
// agrees with its Begin, that rows stand inside a transaction and that their
// relation is known.
//
// Begin, Row and Commit are overwritten by the next message.
type Assembler struct {
	Begin   Begin
	Row     Row
	Commit  Commit
	Skipped Skipped

	open      bool
	lastLSN   pglogrepl.LSN // commit LSN of the newest transaction begun
	relations map[uint32]*Relation
	types     map[uint32]typeName // sent before the relations that have columns of them
}

// NewAssembler returns an Assembler for one replication session: layouts and
// order begin anew with each.
func NewAssembler() *Assembler {
	a := &Assembler{relations: make(map[uint32]*Relation), types: make(map[uint32]typeName)}
	a.Row.Begin = &a.Begin
	return a
}

// Open reports whether a transaction has begun and not ended.
func (a *Assembler) Open() bool { return a.open }

// Next takes one pgoutput message. What it returns says which of Begin, Row and
// Commit holds something new. An error is permanent and of type *Error.
func (a *Assembler) Next(lsn pglogrepl.LSN, message []byte) (Step, error) {
	c := cursor{data: message}
	kind := c.byte()
	step, reason := a.next(kind, &c)
	if reason == "" && c.bad {
		reason = "message ends too early or has a malformed value"
	}
	if reason == "" && c.rest() > 0 {
		reason = fmt.Sprintf("%d bytes left over", c.rest())
	}
	if reason != "" {
		return StepNone, &Error{LSN: lsn, Kind: kind, Offset: c.pos, Reason: reason}
	}
	return step, nil
}

func (a *Assembler) next(kind byte, c *cursor) (step Step, reason string) {
	switch kind {
	case KindInsert:
		return a.insert(c)
	case KindBegin:
		return a.begin(c)
	case KindCommit:
		return a.commit(c)
	case KindRelation:
		if r := parseRelation(c); !c.bad {
			a.nameTypes(r)
			a.relations[r.ID] = r
		}
	case KindType:
		if oid, name := parseType(c); !c.bad {
			a.types[oid] = name
		}
	case KindUpdate:
		a.Skipped.Updates++
		c.take(c.rest())
	case KindDelete:
		a.Skipped.Deletes++
		c.take(c.rest())
	case KindTruncate:
		a.Skipped.Truncates++
		c.take(c.rest())
	case KindMessage:
		a.Skipped.Messages++
		c.take(c.rest())
	case KindOrigin:
		c.take(c.rest())
	default:
		return StepNone, "unknown kind of message: the server speaks a protocol this version does not know"
	}
	return StepNone, ""
}

// nameTypes of a layout that was just read.
func (a *Assembler) nameTypes(r *Relation) {
	for i := range r.Columns {
		column := &r.Columns[i]
		name := a.types[column.TypeOID]
		column.TypeSchema, column.TypeName = name.schema, name.name
	}
}

func (a *Assembler) begin(c *cursor) (Step, string) {
	b := parseBegin(c)
	switch {
	case c.bad:
		return StepNone, ""
	case a.open:
		return StepNone, fmt.Sprintf("transaction %s begins inside transaction %s", b.CommitLSN, a.Begin.CommitLSN)
	case b.CommitLSN == 0:
		return StepNone, "transaction without a commit LSN"
	case b.CommitLSN <= a.lastLSN:
		return StepNone, fmt.Sprintf("commit LSN %s follows %s: commit LSNs must rise", b.CommitLSN, a.lastLSN)
	}
	a.Begin, a.open, a.lastLSN = b, true, b.CommitLSN
	a.Row.Position = Position{CommitLSN: b.CommitLSN}
	return StepBegin, ""
}

func (a *Assembler) insert(c *cursor) (Step, string) {
	id, tag := c.uint32(), c.byte()
	if c.bad {
		return StepNone, ""
	}
	if !a.open {
		return StepNone, "row outside a transaction"
	}
	if tag != 'N' {
		return StepNone, fmt.Sprintf("insert without a new tuple (tag %q)", tag)
	}
	relation := a.relations[id]
	if relation == nil {
		return StepNone, fmt.Sprintf("row of relation %d, which the stream has not described", id)
	}
	a.Row.Values = parseTuple(c, a.Row.Values[:0])
	if c.bad {
		return StepNone, ""
	}
	if len(a.Row.Values) != len(relation.Columns) {
		return StepNone, fmt.Sprintf("row with %d columns for relation %s.%s with %d",
			len(a.Row.Values), relation.Namespace, relation.Name, len(relation.Columns))
	}
	a.Row.Relation = relation
	a.Row.Position.Ordinal++
	return StepRow, ""
}

func (a *Assembler) commit(c *cursor) (Step, string) {
	m := parseCommit(c)
	switch {
	case c.bad:
		return StepNone, ""
	case !a.open:
		return StepNone, fmt.Sprintf("commit %s without a begin", m.CommitLSN)
	case m.CommitLSN != a.Begin.CommitLSN:
		return StepNone, fmt.Sprintf("commit %s ends a transaction that began as %s", m.CommitLSN, a.Begin.CommitLSN)
	case m.EndLSN <= m.CommitLSN:
		return StepNone, fmt.Sprintf("end LSN %s is not beyond commit LSN %s", m.EndLSN, m.CommitLSN)
	}
	a.Commit, a.open = m, false
	return StepCommit, ""
}
