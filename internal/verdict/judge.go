package verdict

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sort"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
)

// Row is a committed row of the outbox table.
type Row struct {
	ID  string // of the event; unique
	Key string // of its record
	// Seq rises among the rows of a key in the order of their commits.
	Seq int64
	// Digest of the record's value.
	Digest uint64
}

// Record is a record of a topic.
type Record struct {
	ID, Key  string
	Digest   uint64
	Position decode.Position
	Place    Place
	Offset   int64
	// Producer id it was written under.
	Producer int64
}

// Place is a partition of a topic.
type Place struct {
	Topic     string
	Partition int32
}

// Restart is what was found when an instance had ended and before the next one
// started: copies of a row on both sides of it are lawful behind its checkpoint.
type Restart struct {
	// Checkpoint is the commit LSN of the newest durable checkpoint; 0 without one.
	Checkpoint pglogrepl.LSN
	// Ends are the offsets of the next record of each partition. Something of the
	// ended instance lies below them, or all of it has arrived.
	Ends map[Place]int64
}

// Result of Judge.
type Result struct {
	Committed  int // rows
	Published  int // rows that arrived
	Missing    int // rows that did not
	Foreign    int // records of no committed row: aborted, or somebody else's
	Duplicates int // records of a row that had arrived before
	// BeforeCheckpoint are the duplicates that no restart excuses.
	BeforeCheckpoint int
	Reordered        int // first appearances behind a later one of their key, or in another partition
	Altered          int // records with another key or value than their row's, or a position that changed
	// FirstSeen counts the rows that first appear before the ends read at the
	// first restart, between those of the first and the second, and so on.
	FirstSeen []int
	// Examples of what is wrong, a few of each kind.
	Examples []string

	examples map[string]int
}

// Err says what is wrong; nil when nothing is.
func (r *Result) Err() error {
	var faults []error
	for _, fault := range []struct {
		count int
		what  string
	}{
		{r.Missing, "committed rows are missing"},
		{r.Foreign, "records belong to no committed row"},
		{r.BeforeCheckpoint, "duplicates are not explained by a restart and its checkpoint"},
		{r.Reordered, "rows are out of order within their key"},
		{r.Altered, "records differ from their row"},
	} {
		if fault.count > 0 {
			faults = append(faults, fmt.Errorf("%d %s", fault.count, fault.what))
		}
	}
	return errors.Join(faults...)
}

// PublishedBefore counts the rows that lay before the ends read at restart i.
func (r *Result) PublishedBefore(i int) int {
	total := 0
	for _, n := range r.FirstSeen[:i+1] {
		total += n
	}
	return total
}

// Judge compares. The records of a partition are in the order of their offsets,
// the restarts in the order of time.
func Judge(rows []Row, records []Record, restarts []Restart) *Result {
	j := judge{
		restarts: restarts,
		result:   &Result{Committed: len(rows), FirstSeen: make([]int, len(restarts)+1)},
		rows:     make(map[string]*arrival, len(rows)),
		keys:     map[string]*latest{},
		born:     generations(records, restarts),
	}
	for i := range rows {
		j.rows[rows[i].ID] = &arrival{row: &rows[i]}
	}
	for i := range records {
		j.take(&records[i])
	}
	for i := range rows {
		if len(j.rows[rows[i].ID].copies) == 0 {
			j.result.Missing++
			j.example("missing", "row %s (key %q, %d)", rows[i].ID, rows[i].Key, rows[i].Seq)
		}
	}
	return j.result
}

type judge struct {
	restarts []Restart
	result   *Result
	rows     map[string]*arrival
	keys     map[string]*latest
	born     map[int64]int
}

// arrival is a row and what arrived of it.
type arrival struct {
	row    *Row
	copies []*Record
}

// latest is the last first appearance of a key.
type latest struct {
	seq   int64
	place Place
}

func (j *judge) take(r *Record) {
	a := j.rows[r.ID]
	if a == nil {
		j.result.Foreign++
		j.example("foreign", "%s has event id %q", r, r.ID)
		return
	}
	before := a.copies
	a.copies = append(a.copies, r)
	if r.Key != a.row.Key || r.Digest != a.row.Digest || (len(before) > 0 && r.Position != before[0].Position) {
		j.result.Altered++
		j.example("altered", "%s of row %s (key %q, row's key %q)", r, r.ID, r.Key, a.row.Key)
	}
	if len(before) > 0 {
		j.again(before, r)
		return
	}
	j.result.Published++
	j.result.FirstSeen[behind(r, j.restarts)]++
	last := j.keys[a.row.Key]
	if last == nil {
		j.keys[a.row.Key] = &latest{a.row.Seq, r.Place}
		return
	}
	if a.row.Seq <= last.seq || r.Place != last.place {
		j.result.Reordered++
		j.example("reordered", "%s of row %s is number %d of key %q, behind number %d in %v", r, r.ID, a.row.Seq, a.row.Key, last.seq, last.place)
		return
	}
	last.seq = a.row.Seq
}

// again judges a further copy by the one before. The younger of their instances
// started after restart last, and must not repeat what the checkpoint covered
// then. It need not be the one that wrote the later copy: what the elder had in a
// socket when it ended may come after. No instance writes a row twice.
func (j *judge) again(before []*Record, r *Record) {
	j.result.Duplicates++
	previous := before[len(before)-1]
	for _, b := range before {
		if j.born[b.Producer] == j.born[r.Producer] {
			j.result.BeforeCheckpoint++
			j.example("duplicate", "%s repeats %s of row %s without a restart between them", r, b, r.ID)
			return
		}
	}
	last := max(j.born[previous.Producer], j.born[r.Producer]) - 1
	if r.Position.CommitLSN <= j.restarts[last].Checkpoint {
		j.result.BeforeCheckpoint++
		j.example("duplicate", "%s repeats %s of row %s, which the checkpoint at %s covered", r, previous, r.ID, j.restarts[last].Checkpoint)
	}
}

// generations returns for each producer id how many restarts came before its
// instance: the fewest that any of its records lies behind. (A record that was
// in a socket at the kill may lie behind one more.)
func generations(records []Record, restarts []Restart) map[int64]int {
	born := map[int64]int{}
	for i := range records {
		r := &records[i]
		n := behind(r, restarts)
		if fewest, known := born[r.Producer]; !known || n < fewest {
			born[r.Producer] = n
		}
	}
	return born
}

// behind counts the restarts before whose ends the record does not lie.
func behind(r *Record, restarts []Restart) int {
	return sort.Search(len(restarts), func(i int) bool { return restarts[i].Ends[r.Place] > r.Offset })
}

// examplesKept of each kind: enough to begin looking.
const examplesKept = 5

func (j *judge) example(kind, format string, args ...any) {
	r := j.result
	if r.examples == nil {
		r.examples = map[string]int{}
	}
	if r.examples[kind]++; r.examples[kind] <= examplesKept {
		r.Examples = append(r.Examples, kind+": "+fmt.Sprintf(format, args...))
	}
}

func (r *Record) String() string {
	return fmt.Sprintf("%s/%d@%d (position %s, producer %d)", r.Place.Topic, r.Place.Partition, r.Offset, r.Position, r.Producer)
}

var seed = maphash.MakeSeed()

// Digest of a value, good within this process.
func Digest(value []byte) uint64 { return maphash.Bytes(seed, value) }
