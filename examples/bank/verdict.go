package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// Verdict is what the demo ends with. Committed is Published and Missing;
// Duplicates are records beyond the first of an event.
type Verdict struct {
	Committed  int64   `json:"committed"`
	Published  int64   `json:"published"`
	Missing    int64   `json:"missing"`
	Duplicates int64   `json:"duplicates"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`

	// Unknown records carry an event that nobody committed.
	Unknown int64 `json:"-"`
	// Disordered events arrived behind a later one of their account, or on
	// another partition than the account's others.
	Disordered int64 `json:"-"`
}

// fault is nil when every committed event was published once and in order.
func (v Verdict) fault() error {
	var faults []error
	for _, f := range []struct {
		count int64
		what  string
	}{
		{v.Missing, "committed events are missing"},
		{v.Duplicates, "records are duplicates"},
		{v.Unknown, "records carry an event that nobody committed"},
		{v.Disordered, "events are out of their account's order"},
	} {
		if f.count > 0 {
			faults = append(faults, fmt.Errorf("%d %s", f.count, f.what))
		}
	}
	return errors.Join(faults...)
}

// tally compares committed events with records.
type tally struct {
	records  map[pgtype.UUID]int // of each committed event
	accounts map[string]progress
	verdict  Verdict
}

// progress is how far an account's deposits have been read.
type progress struct {
	partition int32
	number    int64
}

func newTally() *tally {
	return &tally{records: make(map[pgtype.UUID]int), accounts: make(map[string]progress)}
}

// commit adds an event of the outbox; all of them come before the first record.
func (t *tally) commit(event pgtype.UUID) { t.records[event] = 0 }

// record adds a record. Those of a partition come in their order.
func (t *tally) record(eventID string, partition int32, value []byte) {
	var id pgtype.UUID
	err := id.Scan(eventID)
	count, committed := t.records[id]
	if err != nil || !committed {
		t.verdict.Unknown++
		return
	}
	if t.records[id]++; count > 0 {
		t.verdict.Duplicates++
		return // order is that of first appearances
	}
	var event deposited
	if json.Unmarshal(value, &event) != nil || event.Number == 0 {
		return // somebody's own INSERT: not one of a row of numbers
	}
	last, known := t.accounts[event.Account]
	if known && (partition != last.partition || event.Number < last.number) {
		t.verdict.Disordered++
		return
	}
	t.accounts[event.Account] = progress{partition, event.Number}
}

// result counts.
func (t *tally) result() Verdict {
	v := t.verdict
	for _, records := range t.records {
		v.Committed++
		if records == 0 {
			v.Missing++
		}
	}
	v.Published = v.Committed - v.Missing
	return v
}
