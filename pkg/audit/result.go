package audit

import (
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Verdict of an audit.
type Verdict string

const (
	// Clean: everything asked for was judged, and nothing is wrong. Rows that were
	// put aside are accounted for.
	Clean Verdict = "clean"
	// Difference: table and topics differ where they must not.
	Difference Verdict = "difference"
	// Undecided: nothing is wrong with what could be judged, and not everything
	// could: rows are not due yet, or the topics no longer have what to look for.
	Undecided Verdict = "undecided"
)

// Result of an audit.
type Result struct {
	Verdict  Verdict     `json:"verdict"`
	Pipeline string      `json:"pipeline"`
	Delivery string      `json:"delivery"` // by the checkpoint
	Range    string      `json:"range"`
	Topics   []TopicRead `json:"topics"`

	Rows    int64 `json:"rows"`    // of the table, in the range
	Found   int64 `json:"found"`   // rows that are in the topics
	Records int64 `json:"records"` // events of the range in the topics, each counted once
	// PutAside are rows that are dead letters, and not in the topics: accounted for,
	// and for somebody to look at.
	PutAside int64 `json:"put_aside"`

	// What must be 0.
	Missing   int64 `json:"missing"`   // rows due that are not in the topics
	Reordered int64 `json:"reordered"` // first appearances behind a later position of their key
	Torn      int64 `json:"torn"`      // transactions of which some events are in the topics and some are not
	// Duplicates are records of an event that had appeared before. Of these,
	// those explained by a restart in at-least-once delivery are allowed.
	Duplicates        int64 `json:"duplicates"`
	DuplicatesAllowed int64 `json:"duplicates_allowed"`
	Altered           int64 `json:"altered"`       // records with another topic, key or value than the row has now
	Unpublishable     int64 `json:"unpublishable"` // rows that cannot become a record

	// What could not be judged.
	NotDue    int64 `json:"not_due"`   // rows not found that may have been committed after the checkpoint
	Forgotten int64 `json:"forgotten"` // rows not found that are older than what the topics still have
	Hidden    int64 `json:"hidden"`    // rows not found that an open transaction may hide
	Holes     int64 `json:"holes"`     // transactions with ordinals of which nothing proves that they belong to these topics

	// What is not wrong.
	Retried      int64 `json:"retried"`          // of the found: rows that were put aside too, and published after all
	LettersAlone int64 `json:"letters_alone"`    // dead letters that no row in the table is known to belong to
	WithoutRow   int64 `json:"without_row"`      // events whose row is no longer in the table
	Since        int64 `json:"since"`            // events committed after the table was read
	Older        int64 `json:"missing_older"`    // of the missing: rows older than any row found
	Reused       int64 `json:"reused_ids"`       // events with the id of an earlier event and another content
	Moved        int64 `json:"keys_moved"`       // keys in more than one partition: no order to be judged across
	Shared       int64 `json:"rows_alike"`       // rows that nothing tells apart: judged by their number
	Updated      int64 `json:"updated_together"` // transactions of the table that changed rows after their insert
	Histories    int64 `json:"histories"`        // times that the positions of a key went back to an earlier timeline
	Foreign      int64 `json:"foreign_records"`  // records that are not walstream's
	OtherRecords int64 `json:"other_pipelines"`  // records of other pipelines
	Replayed     int64 `json:"replayed"`         // records of walstream replay, or dead-letters retry

	Examples []string `json:"examples,omitempty"`
	Notes    []string `json:"notes,omitempty"`

	Covered pglogrepl.LSN `json:"-"` // of the checkpoint
	Until   pglogrepl.LSN `json:"-"` // the WAL's end when the table was read
	Spilled int64         `json:"spilled_bytes"`
	Seconds float64       `json:"seconds"`

	shown    map[string]int
	examples []example
	list     bool     // every missing row is kept for Config.Missing
	missing  []rowRef // at most MostListed
}

// example of something wrong; row is looked up when all is judged.
type example struct {
	kind, text string
	row        *rowRef
}

// rowRef is how a row is found again.
type rowRef struct {
	owner uint32
	tid   uint64
	ident ident
}

// examplesKept of each kind: enough to begin looking.
const examplesKept = 5

func (r *Result) example(kind string, row *rowRef, format string, args ...any) {
	if r.list && kind == "missing" && row != nil && len(r.missing) < MostListed {
		r.missing = append(r.missing, *row)
	}
	if r.shown == nil {
		r.shown = map[string]int{}
	}
	if r.shown[kind]++; r.shown[kind] <= examplesKept {
		r.examples = append(r.examples, example{kind: kind, text: fmt.Sprintf(format, args...), row: row})
	}
}

// Unexplained are the duplicates that nothing allows.
func (r *Result) Unexplained() int64 { return r.Duplicates - r.DuplicatesAllowed }

// decide sums the numbers up.
func (r *Result) decide() {
	switch {
	case r.Missing+r.Reordered+r.Torn+r.Unexplained()+r.Altered+r.Unpublishable > 0:
		r.Verdict = Difference
	case r.NotDue+r.Forgotten+r.Hidden > 0:
		r.Verdict = Undecided
	default:
		r.Verdict = Clean
	}
}
