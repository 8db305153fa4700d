package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
)

// Bound says from where on a table has to be read to see every row of it that was
// committed at or beyond an LSN.
type Bound struct {
	Table string
	Rows  uint64 // of the buckets that were looked at: at least as many as were committed there
	// Least and Greatest id of those rows; not known where some have no integer for one.
	HasIDs          bool
	Least, Greatest int64
	// Created is the least time of the timestamp column, where all of them have one.
	HasTimes bool
	Created  time.Time
}

// UncoveredError: history does not say what was committed from LSN on.
type UncoveredError struct {
	LSN      pglogrepl.LSN // asked for; 0: a time was
	Since    time.Time     // asked for
	Earliest pglogrepl.LSN // from where on it does; 0: from nowhere
	Time     time.Time     // the least commit time that it knows of from there on; zero: none
}

func (e *UncoveredError) Error() string {
	asked := e.LSN.String()
	if e.LSN == 0 {
		asked = e.Since.UTC().Format(time.RFC3339)
	}
	if e.Earliest == 0 {
		return fmt.Sprintf("there is no history of the pipeline, so nobody knows which rows were committed from %s on", asked)
	}
	text := fmt.Sprintf("history reaches back to %s", e.Earliest)
	if !e.Time.IsZero() {
		text += fmt.Sprintf(" (%s)", e.Time.UTC().Format(time.RFC3339))
	}
	return text + ", not to " + asked
}

// Reach returns the stretch that is known without a hole, up to the end of the newest
// bucket. Buckets must be in the order of the topic.
func Reach(buckets []Bucket) (from, to pglogrepl.LSN) {
	known := chain(buckets)
	if len(known) == 0 {
		return 0, 0
	}
	newest := known[len(known)-1]
	known = known[:len(known)-1]
	slices.SortFunc(known, func(a, b Bucket) int { return cmp.Compare(b.To, a.To) })
	from = newest.From
	for i := range known {
		if known[i].To >= from {
			from = min(from, known[i].From)
		}
	}
	return from, newest.To
}

// chain leaves out what is of another server. A server that goes on with the LSNs of
// the one before, as after pg_upgrade, is no other one.
func chain(buckets []Bucket) []Bucket {
	begin := len(buckets)
	for begin > 0 {
		if begin < len(buckets) {
			before, b := &buckets[begin-1], &buckets[begin]
			if before.SystemID != b.SystemID && before.To != b.From || before.Database != b.Database {
				break
			}
		}
		begin--
	}
	return slices.Clone(buckets[begin:])
}

// beyond are the buckets that may have rows committed at or beyond lsn: a
// transaction's commit LSN is below its end.
func beyond(buckets []Bucket, lsn pglogrepl.LSN) []Bucket {
	return slices.DeleteFunc(chain(buckets), func(b Bucket) bool { return b.To <= lsn })
}

// Least returns, for each table with rows, from where on it has to be read to see all
// that was committed at or beyond lsn. Buckets must be in the order of the topic. An
// error is an *UncoveredError.
func Least(buckets []Bucket, lsn pglogrepl.LSN) ([]Bound, error) {
	from, to := Reach(buckets)
	if to == 0 || lsn < from {
		return nil, uncovered(buckets, lsn)
	}
	var sum Tally
	for _, b := range beyond(buckets, lsn) {
		sum.Merge(&b.Tally)
	}
	bounds := make([]Bound, 0, len(sum.Tables))
	for i := range sum.Tables {
		r := &sum.Tables[i]
		bound := Bound{Table: r.Table, Rows: r.Rows, HasIDs: r.HasIDs(), HasTimes: r.HasTimes()}
		if bound.HasIDs {
			bound.Least, bound.Greatest = r.Least, r.Greatest
		}
		if bound.HasTimes {
			bound.Created = r.Created
		}
		bounds = append(bounds, bound)
	}
	return bounds, nil
}

func uncovered(buckets []Bucket, lsn pglogrepl.LSN) error {
	e := &UncoveredError{LSN: lsn}
	var to pglogrepl.LSN
	if e.Earliest, to = Reach(buckets); to == 0 {
		return e
	}
	for _, b := range beyond(buckets, e.Earliest) {
		if b.First != 0 && (e.Time.IsZero() || b.FirstTime.Before(e.Time)) {
			e.Time = b.FirstTime
		}
	}
	return e
}

// Since returns the LSN at or beyond which everything was committed that has a commit
// time not before t. What lies there may be older: commit times do not rise with the
// LSN. An error is an *UncoveredError.
func Since(buckets []Bucket, t time.Time) (pglogrepl.LSN, error) {
	earliest, to := Reach(buckets)
	known := beyond(buckets, earliest)
	var oldest time.Time
	lsn := to
	for i := range known {
		b := &known[i]
		if b.First == 0 {
			continue
		}
		if oldest.IsZero() || b.FirstTime.Before(oldest) {
			oldest = b.FirstTime
		}
		if !b.LastTime.Before(t) {
			lsn = min(lsn, b.From)
		}
	}
	if to == 0 || oldest.IsZero() || t.Before(oldest) {
		return 0, &UncoveredError{Since: t, Earliest: earliest, Time: oldest}
	}
	return lsn, nil
}
