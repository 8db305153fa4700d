package history

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// Row is what counts of a published row.
type Row struct {
	Table    string // with its schema
	ID       int64  // of the id column
	Numbered bool   // it has one, and that is an integer
	Created  time.Time
	Timed    bool // Created is that of the timestamp column
	Bytes    int
}

// Range is what the rows of one table have in common.
type Range struct {
	Table string `json:"table"`
	Rows  uint64 `json:"rows"`
	// Least and Greatest id, of the rows that have an integer for one.
	Numbered uint64 `json:"numbered,omitempty"`
	Least    int64  `json:"least_id,omitempty"`
	Greatest int64  `json:"greatest_id,omitempty"`
	// Created is the least time of the timestamp column, of the rows that have one.
	Timed   uint64    `json:"timed,omitempty"`
	Created time.Time `json:"least_created_at,omitzero"`
}

// HasIDs reports that Least and Greatest are those of all rows.
func (r *Range) HasIDs() bool { return r.Numbered == r.Rows }

// HasTimes reports that Created is not later than that of any row.
func (r *Range) HasTimes() bool { return r.Timed == r.Rows }

// add allocates nothing.
func (r *Range) add(row *Row) {
	if row.Numbered {
		if r.Numbered == 0 {
			r.Least, r.Greatest = row.ID, row.ID
		}
		r.Least, r.Greatest = min(r.Least, row.ID), max(r.Greatest, row.ID)
		r.Numbered++
	}
	if row.Timed {
		if r.Timed == 0 || row.Created.Before(r.Created) {
			r.Created = row.Created
		}
		r.Timed++
	}
	r.Rows++
}

// merge adds what another range of the same table has.
func (r *Range) merge(o *Range) {
	if o.Numbered > 0 {
		if r.Numbered == 0 {
			r.Least, r.Greatest = o.Least, o.Greatest
		}
		r.Least, r.Greatest = min(r.Least, o.Least), max(r.Greatest, o.Greatest)
	}
	if o.Timed > 0 && (r.Timed == 0 || o.Created.Before(r.Created)) {
		r.Created = o.Created
	}
	r.Rows, r.Numbered, r.Timed = r.Rows+o.Rows, r.Numbered+o.Numbered, r.Timed+o.Timed
}

// Tally is the sum over rows, of any number of transactions and tables.
type Tally struct {
	// First and Last commit LSN of the transactions with rows; 0: there is none.
	First, Last pglogrepl.LSN
	// FirstTime and LastTime are their least and greatest commit time.
	FirstTime, LastTime time.Time
	Bytes               uint64
	Tables              []Range
}

// Rows of all tables.
func (t *Tally) Rows() (rows uint64) {
	for i := range t.Tables {
		rows += t.Tables[i].Rows
	}
	return rows
}

// Commit counts the transaction that the next rows are of.
func (t *Tally) Commit(lsn pglogrepl.LSN, at time.Time) {
	if t.First == 0 {
		t.First, t.FirstTime, t.LastTime = lsn, at, at
	}
	t.Last = lsn
	if at.Before(t.FirstTime) {
		t.FirstTime = at
	}
	if at.After(t.LastTime) {
		t.LastTime = at
	}
}

// Add counts a row.
func (t *Tally) Add(row *Row) {
	t.Bytes += uint64(row.Bytes)
	t.of(row.Table).add(row)
}

// of is the table's range. Tables are few, and mostly there is one.
func (t *Tally) of(table string) *Range {
	for i := range t.Tables {
		if t.Tables[i].Table == table {
			return &t.Tables[i]
		}
	}
	t.Tables = append(t.Tables, Range{Table: table})
	return &t.Tables[len(t.Tables)-1]
}

// AddRange counts the rows of a range.
func (t *Tally) AddRange(r *Range) { t.of(r.Table).merge(r) }

// Merge adds what comes behind.
func (t *Tally) Merge(o *Tally) {
	if o.First != 0 {
		t.Commit(o.First, o.FirstTime)
		t.Commit(o.Last, o.LastTime)
	}
	t.Bytes += o.Bytes
	for i := range o.Tables {
		t.AddRange(&o.Tables[i])
	}
}

// Open is the bucket that is being filled: what is published behind From, up to the
// edge of the checkpoint that it stands in.
type Open struct {
	From pglogrepl.LSN
	Tally
}
