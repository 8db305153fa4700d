package recovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Report of a recovery, or of a look at what it would do.
type Report struct {
	Pipeline string `json:"pipeline"`
	Slot     string `json:"slot"`
	// Executed: rows were published. Else Published is how many would be.
	Executed bool   `json:"executed"`
	Refused  string `json:"refused,omitempty"` // what a start says to it
	SlotNow  string `json:"slot_state"`
	NewSlot  bool   `json:"new_slot"` // the slot is made anew

	Checkpoint Place   `json:"checkpoint"`
	Server     Place   `json:"server"`
	Switch     string  `json:"timeline_left_at,omitempty"` // where the server's history left the checkpoint's
	Window     Window  `json:"window"`
	Tables     []Table `json:"tables"`

	Topics []TopicRead `json:"topics"`

	Read      uint64 `json:"rows_read"`      // of the window
	Found     uint64 `json:"rows_found"`     // in the topics, or put aside as dead letters
	Aside     uint64 `json:"rows_put_aside"` // of these: dead letters alone
	Left      uint64 `json:"rows_left_to_stream"`
	Published uint64 `json:"rows_published"`
	Reused    uint64 `json:"ids_in_use_again"` // of the published: the topics hold their id with another value
	Lost      uint64 `json:"events_lost"`      // of a tail that the server has lost: in the topics, and in no row

	PublishedIDs []string `json:"published_ids,omitempty"` // the first of them
	ReusedIDs    []string `json:"reused_ids,omitempty"`
	LostIDs      []string `json:"lost_ids,omitempty"`

	NotCovered []string `json:"not_covered,omitempty"` // what could not be, and why
	Seconds    float64  `json:"seconds"`
}

// Place is where one side stands.
type Place struct {
	LSN        string    `json:"lsn"`
	CommitTime time.Time `json:"commit_time,omitzero"` // of the last commit published
	Timeline   uint32    `json:"timeline"`
	SystemID   string    `json:"system_identifier"`
	Phase      string    `json:"phase,omitempty"`
}

// Window of rows that are in doubt.
type Window struct {
	All         bool      `json:"all_rows"`
	Since       time.Time `json:"since,omitzero"`
	AfterXID    uint32    `json:"after_xid,omitempty"`
	LateCommits bool      `json:"late_commits_known"` // the server keeps the times of commits
	// StreamFrom is where the stream takes over; empty: where the new slot begins.
	StreamFrom string `json:"stream_from,omitempty"`
}

// Table that was read.
type Table struct {
	Table   string `json:"table"`
	Time    string `json:"time_column,omitempty"` // empty: none, so all rows are in doubt
	Outside uint64 `json:"rows_outside"`          // of the window: not compared
}

// Fill takes in what the judge has found.
func (r *Report) Fill(j *Judge) {
	c := &j.counts
	r.Read, r.Found, r.Aside, r.Left, r.Reused = c.Read, c.Found, c.Aside, c.Left, c.Reused
	r.Published = c.Read - c.Found - c.Left
	r.PublishedIDs, r.ReusedIDs = j.Missing, j.Reused
	r.Topics = j.topics.read
	r.Lost = uint64(len(j.published.lost)) + j.published.lostMore
	r.LostIDs = slices.Sorted(maps.Values(j.published.lost))
	r.LostIDs = r.LostIDs[:min(len(r.LostIDs), named)]
	r.Window.All, r.Window.Since, r.Window.AfterXID, r.Window.LateCommits = c.Since.IsZero(), c.Since, c.XID, j.LateKnown && !c.Since.IsZero()
	r.NotCovered = j.notCovered()
}

// AddTable says what of a table is in the window.
func (r *Report) AddTable(j *Judge, n int, outside uint64) {
	t := &j.tables[n]
	r.Tables = append(r.Tables, Table{Table: t.String(), Time: t.time, Outside: outside})
}

// notCovered says what no comparison can tell.
func (j *Judge) notCovered() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	doubt, bounded := &j.counts, false
	for i := range j.tables {
		t := &j.tables[i]
		switch {
		case doubt.Since.IsZero():
		case t.time == "":
			add("%s has no column that says when a row was made (timestamp-column, created_at): all its rows are in doubt, and one whose record the topics have forgotten is sent again", t)
		default:
			bounded = true
		}
	}
	since := doubt.Since.UTC().Format(time.RFC3339)
	switch {
	case !bounded:
	case j.LateKnown:
		add("rows made before %s are compared when they were committed after the checkpoint: the server keeps the times of commits", since)
	case doubt.XID != 0:
		add("rows made before %s are compared when their transaction first wrote after that of the last commit published (xid %d): one that had written before, and was open for longer than the window, is not: --window or --all-rows reach further back", since, doubt.XID)
	default:
		add("rows made before %s are not compared, and a transaction that was open for longer than the window may have left some: --window or --all-rows reach further back", since)
	}
	add("rows that were deleted or pruned before they were published are in no table any more")
	for _, t := range j.topics.read {
		switch {
		case t.Missing:
			add("topic %s does not exist: all rows in doubt that go there are published", t.Topic)
		case t.Compacted:
			add("topic %s is compacted: a row whose record was replaced by a newer one of its key is published again", t.Topic)
		case t.Cut && t.Oldest.IsZero():
			add("topic %s has forgotten all records of a partition: rows in doubt that were published there are sent again", t.Topic)
		case t.Cut:
			add("topic %s has forgotten records from before %s: rows in doubt that were published before are sent again", t.Topic, t.Oldest.UTC().Format(time.RFC3339))
		}
		if t.Hidden {
			add("an open transaction hides the end of topic %s", t.Topic)
		}
	}
	if n := j.topics.Unnamed; n > 0 {
		add("%s records of this pipeline have no event id: rows that they stand for are sent again", comma(n))
	}
	if j.topics.unread != "" {
		add("the dead letters could not be read, and rows that were put aside are sent again: %s", j.topics.unread)
	}
	if doubt.Forked && j.topics.letters > 0 {
		add("of another history, dead letters do not count: rows that were put aside are decided on again")
	}
	if doubt.Forked && doubt.Lost == 0 {
		add("where the server's history left that of the checkpoint is not known: events that it has lost cannot be named")
	}
	if doubt.Reused > 0 && !doubt.Forked {
		add("%s rows have an id that the topics hold with another value, though the server's history is that of the checkpoint: were they updated after they were published? --trust-ids leaves them out", comma(doubt.Reused))
	}
	return notes
}

func comma(n uint64) string { return humanize.Comma(int64(n)) }

// JSON is one line.
func (r *Report) JSON() ([]byte, error) { return json.Marshal(r) }

// Text is the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("recovery of pipeline %s, slot %s\n", r.Pipeline, r.Slot)
	if r.Refused != "" {
		say("  a start says    %s", r.Refused)
	}
	say("  slot            %s", r.SlotNow+map[bool]string{true: "; it is made anew"}[r.NewSlot])
	say("  checkpoint      %s", r.Checkpoint)
	say("  server          %s", r.Server)
	if r.Switch != "" {
		say("                  its history left that of the checkpoint at %s", r.Switch)
	}
	switch {
	case r.Window.All:
		say("  rows in doubt   all")
	default:
		say("  rows in doubt   made from %s on%s", r.Window.Since.UTC().Format(time.RFC3339), r.late())
	}
	stream := "where the new slot begins"
	if r.Window.StreamFrom != "" {
		stream = r.Window.StreamFrom
	}
	say("  stream          takes over at %s", stream)
	for _, t := range r.Tables {
		by := "by " + t.Time
		if t.Time == "" {
			by = "no time column"
		}
		say("  table           %s (%s): %s rows outside of the window", t.Table, by, comma(t.Outside))
	}
	for _, t := range r.Topics {
		if !t.Missing {
			say("  topic           %s: %d partitions, %s records read, %s events", t.Topic, t.Partitions, comma(t.Records), comma(t.Events))
		}
	}
	b.WriteByte('\n')
	r.writeNumbers(&b)
	if len(r.NotCovered) > 0 {
		say("\nnot covered:")
		for _, note := range r.NotCovered {
			say("  %s", note)
		}
	}
	return b.String()
}

func (r *Report) writeNumbers(b *strings.Builder) {
	published := "to be published"
	if r.Executed {
		published = "published"
	}
	for _, l := range []struct {
		what   string
		n      uint64
		always bool
	}{
		{"rows read", r.Read, true},
		{"found in the topics", r.Found, true},
		{"of them put aside as dead letters", r.Aside, false},
		{"left to the stream", r.Left, true},
		{published, r.Published, true},
		{"of them with an id in use again", r.Reused, false},
		{"events that the server has lost", r.Lost, r.Switch != ""},
	} {
		if l.always || l.n > 0 {
			fmt.Fprintf(b, "  %-34s %14s\n", l.what, comma(l.n))
		}
	}
	for _, list := range []struct {
		what string
		ids  []string
		of   uint64
	}{{published, r.PublishedIDs, r.Published}, {"ids in use again", r.ReusedIDs, r.Reused}, {"events without a row", r.LostIDs, r.Lost}} {
		if len(list.ids) > 0 {
			fmt.Fprintf(b, "\n%s, %d of %s:\n  %s\n", list.what, len(list.ids), comma(list.of), strings.Join(list.ids, "\n  "))
		}
	}
}

func (r *Report) late() string {
	switch {
	case r.Window.LateCommits:
		return ", or committed after the checkpoint"
	case r.Window.AfterXID != 0:
		return fmt.Sprintf(", or by transactions that first wrote after xid %d", r.Window.AfterXID)
	}
	return ""
}

func (p Place) String() string {
	text := fmt.Sprintf("%s, timeline %d, system %s", p.LSN, p.Timeline, p.SystemID)
	if !p.CommitTime.IsZero() {
		text += ", last commit of " + p.CommitTime.UTC().Format(time.RFC3339)
	}
	if p.Phase != "" && p.Phase != string(checkpoint.PhaseStream) {
		text += ", phase " + p.Phase
	}
	if p.LSN == "" {
		return "none"
	}
	return text
}
