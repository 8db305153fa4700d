package snapshot

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
)

// Inserted reads the stream up to an LSN and keeps the primary keys of the rows
// that it inserts. It is pure; the frames are the stream's, in text format.
type Inserted struct {
	keys      *Keys
	tables    []Table
	from      pglogrepl.LSN
	until     pglogrepl.LSN
	assembler *decode.Assembler
	plans     map[*decode.Relation]keyPlan
	done      bool
}

// counts: the stream is published from that LSN on. What it carries of before, where
// the slot stands behind it, is dropped then, and must not be left to it.
func (i *Inserted) counts() bool { return i.assembler.Begin.CommitLSN >= i.from }

// keyPlan is where in the rows of a relation the key is.
type keyPlan struct {
	table   int // -1: none of ours
	columns []int
}

// NewInserted adds to keys what the stream inserts in transactions that were
// committed at from or later, and before until.
func NewInserted(tables []Table, keys *Keys, from, until pglogrepl.LSN) *Inserted {
	return &Inserted{
		keys: keys, tables: tables, from: from, until: until,
		assembler: decode.NewAssembler(), plans: map[*decode.Relation]keyPlan{},
	}
}

// OnFrame takes one CopyData payload. done: everything that was committed before
// the LSN has been read, and no further frame is wanted.
func (i *Inserted) OnFrame(payload []byte) (done bool, err error) {
	if i.done {
		return true, nil
	}
	frame, err := decode.ParseFrame(payload)
	if err != nil {
		return false, err
	}
	if frame.Kind == decode.FrameKeepalive {
		i.done = !i.assembler.Open() && frame.LSN >= i.until
		return i.done, nil
	}
	step, err := i.assembler.Next(frame.LSN, frame.Data)
	if err != nil {
		return false, err
	}
	switch step {
	case decode.StepBegin:
		i.done = i.assembler.Begin.CommitLSN >= i.until
	case decode.StepCommit:
		i.done = i.assembler.Commit.EndLSN >= i.until
	case decode.StepRow:
		if i.counts() {
			err = i.onRow(&i.assembler.Row)
		}
	case decode.StepNone:
	}
	return i.done, err
}

func (i *Inserted) onRow(row *decode.Row) error {
	plan, ok := i.plans[row.Relation]
	if !ok {
		var err error
		if plan, err = i.plan(row.Relation); err != nil {
			return err
		}
		i.plans[row.Relation] = plan
	}
	if plan.table < 0 {
		return nil
	}
	key := make([][]byte, len(plan.columns))
	for n, c := range plan.columns {
		if row.Values[c].Format != decode.ValueText {
			return fmt.Errorf("%s: the stream's primary key %s is not text", i.tables[plan.table], row.Relation.Columns[c].Name)
		}
		key[n] = row.Values[c].Data
	}
	return i.keys.Add(plan.table, key)
}

func (i *Inserted) plan(r *decode.Relation) (keyPlan, error) {
	for n, t := range i.tables {
		if t.Schema != r.Namespace || t.Name != r.Name {
			continue
		}
		plan := keyPlan{table: n}
		for _, name := range t.Key {
			at := columnIndex(r, name)
			if at < 0 {
				return plan, &TableError{Table: t.String(), Reason: fmt.Sprintf("the stream does not carry column %s of the primary key", name), Remedy: remedyKey}
			}
			plan.columns = append(plan.columns, at)
		}
		return plan, nil
	}
	return keyPlan{table: -1}, nil
}
