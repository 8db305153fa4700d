package audit

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// rangeText says what was asked for.
func (c *Config) rangeText() string {
	var parts []string
	add := func(what, from, to string) {
		switch {
		case from != "" && to != "":
			parts = append(parts, what+" "+from+" to "+to)
		case from != "":
			parts = append(parts, what+" from "+from+" on")
		case to != "":
			parts = append(parts, what+" up to "+to)
		}
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	add("ids", c.FromID, c.ToID)
	add("times", moment(c.FromTime), moment(c.ToTime))
	from, to := "", ""
	if c.FromLSN != 0 {
		from = c.FromLSN.String()
	}
	if c.ToLSN != 0 {
		to = c.ToLSN.String()
	}
	add("commit LSNs", from, to)
	if len(parts) == 0 {
		return "all rows"
	}
	return strings.Join(parts, ", ")
}

// notes say what could be checked on the table at hand, and what not.
func (a *audit) notes(r *Result, p progressOf, why string) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, s := range a.tables.sources {
		if s.columns.EventID != "" {
			add("rows of %s are matched by event id, column %s", s.plain, s.columns.EventID)
		} else {
			add("%s has no event id: its rows are matched by topic, key and value; of rows alike in these only the number is checked", s.plain)
		}
		if !s.timed {
			add("%s has no time that is known (--time-column): where topics forget, rows that are missing cannot be told from older ones", s.plain)
		}
	}
	if a.judge.scope.byLSN() {
		add("a row that is not in the topics has no LSN: it counts when its id or time lies among those of the rows found")
	}
	switch {
	case !p.covered && p.below != 0:
		add("the checkpoint, at %s, did not come to cover %s: rows not found are due only where the slot's catalog_xmin says so", r.Covered, r.Until)
	case !p.covered:
		add("the checkpoint, at %s, did not come to cover %s, and there is no slot: of rows not found nothing can be said", r.Covered, r.Until)
	}
	if !p.covered && !p.active {
		add("nobody reads the slot: walstream does not run")
	}
	switch {
	case a.judge.scope.byTable:
		add("torn transactions are told by the rows of the range that share an xid (xmin)")
	case why == "":
		add("torn transactions are told by the rows that share an xid (xmin), and by ordinals that are not in the topics")
	default:
		add("torn transactions are told by the rows that share an xid (xmin), not by ordinals that are not in the topics: %s", why)
	}
	return append(notes, lettersNotes(r, a.letters)...)
}

// lettersNotes say what the dead letters could tell, and what they could not.
func lettersNotes(r *Result, f lettersFacts) (notes []string) {
	switch {
	case f.unread != "":
		notes = append(notes, "the dead letters could not be read, and rows that were put aside count as missing: "+f.unread)
	case f.forgotten:
		notes = append(notes, "topic "+f.topic+" has forgotten dead letters: rows whose letters are gone count as missing")
	}
	if f.hidden {
		notes = append(notes, "a transaction that is still open hides the end of topic "+f.topic)
	}
	if r.Missing > 0 {
		notes = append(notes, `rows left out on purpose (--on-poison skip, walstream skip) leave no trace in Kafka and are among the missing: `+
			`walstream's log has them, "a row cannot become a record" with action skip`)
	}
	return notes
}

// line of the table.
type line struct {
	what   string
	number int64
	always bool
	remark string
}

func (r *Result) lines() []line {
	duplicates := ""
	switch {
	case r.Duplicates > 0 && r.Unexplained() == 0:
		duplicates = "all explained by restarts in at-least-once delivery"
	case r.DuplicatesAllowed > 0:
		duplicates = fmt.Sprintf("%s of them explained by restarts in at-least-once delivery", comma(r.DuplicatesAllowed))
	}
	older := ""
	switch {
	case r.Older > 0:
		older = fmt.Sprintf("%s of them older than any row found: from before the first start? --from-id or --from-time leave them out", comma(r.Older))
	}
	return []line{
		{"rows", r.Rows, true, r.Range},
		{"found", r.Found, true, ""},
		{"put aside", r.PutAside, false, "dead letters: walstream dead-letters list, retry"},
		{"", 0, true, ""},
		{"missing", r.Missing, true, older},
		{"duplicates", r.Duplicates, true, duplicates},
		{"reordered", r.Reordered, true, ""},
		{"torn transactions", r.Torn, true, ""},
		{"altered", r.Altered, true, ""},
		{"unpublishable rows", r.Unpublishable, false, "they fit no record"},
		{"not due yet", r.NotDue, false, "not found, and perhaps committed after the checkpoint"},
		{"forgotten", r.Forgotten, false, "not found, and perhaps among what the topics have forgotten"},
		{"hidden", r.Hidden, false, "not found, and an open transaction may hide them"},
		{"", 0, true, ""},
		{"events in the topics", r.Records, true, ""},
		{"published after all", r.Retried, false, "rows that are dead letters too: retried, and as they should be"},
		{"letters without a row", r.LettersAlone, false, "dead letters whose row was deleted, or that are not whole: not wrong"},
		{"no longer in the table", r.WithoutRow, false, "events whose row was deleted: not wrong"},
		{"committed since", r.Since, false, "after the table was read"},
		{"ids in use again", r.Reused, false, "events with an earlier event's id and another content"},
		{"keys that moved", r.Moved, false, "in more than one partition: no order to be checked across"},
		{"rows alike", r.Shared, false, "nothing tells them apart: checked by their number"},
		{"updated together", r.Updated, false, "transactions whose rows share an xid by a later update: not checked for being torn"},
		{"unproven holes", r.Holes, false, "transactions with ordinals that may belong elsewhere"},
		{"earlier timelines", r.Histories, false, "positions of a key that begin anew: another server"},
		{"replayed", r.Replayed, false, "records of walstream replay, or dead-letters retry: their rows are there, and they are neither duplicates nor out of order"},
		{"of other pipelines", r.OtherRecords, false, "records"},
		{"not walstream's", r.Foreign, false, "records without a position"},
	}
}

func comma(n int64) string { return humanize.Comma(n) }

// Table is the result for people.
func (r *Result) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "audit of pipeline %s (%s)\n\n", r.Pipeline, r.Delivery)
	for _, t := range r.Topics {
		if t.Missing {
			fmt.Fprintf(&b, "  topic %s does not exist\n", t.Topic)
			continue
		}
		fmt.Fprintf(&b, "  topic %s: %d partitions, %s records\n", t.Topic, t.Partitions, comma(t.Records))
	}
	if len(r.Topics) > 0 {
		b.WriteByte('\n')
	}
	for _, l := range r.lines() {
		switch {
		case l.what == "":
			b.WriteByte('\n')
		case l.always || l.number > 0:
			b.WriteString(strings.TrimRight(fmt.Sprintf("  %-24s %15s   %s", l.what, comma(l.number), l.remark), " ") + "\n")
		}
	}
	for _, list := range [][]string{r.Examples, r.Notes} {
		if len(list) > 0 {
			b.WriteByte('\n')
		}
		for _, text := range list {
			b.WriteString("  - " + text + "\n")
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.sentence())
	return b.String()
}

func (r *Result) sentence() string {
	switch r.Verdict {
	case Clean:
		if r.PutAside > 0 {
			return fmt.Sprintf("clean, but for %s put aside: everything else that was asked for is in the topics, once, in order and whole", rowsOf(r.PutAside))
		}
		return "clean: everything that was asked for is in the topics, once, in order and whole"
	case Difference:
		return "difference: the topics are not what the table says"
	case Undecided:
		return "undecided: nothing is wrong with what could be checked, and not everything could"
	}
	return string(r.Verdict)
}

func rowsOf(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return comma(n) + " rows"
}

// JSON is the result as one line.
func (r *Result) JSON() ([]byte, error) {
	type plain Result
	return json.Marshal(struct {
		*plain
		Covered string `json:"covered_lsn"`
		Until   string `json:"until_lsn"`
	}{(*plain)(r), r.Covered.String(), r.Until.String()})
}
