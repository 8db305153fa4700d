package audit

import "github.com/jackc/pglogrepl"

// judgeOrder: within a key and a partition, events first appear in the order of
// their positions. A key that stands in several partitions has no order that
// could be judged across them.
func (j *judge) judgeOrder() error {
	r := j.result
	var newest appearance // the latest position so far
	begun, several := false, false
	return j.appearances.each(func(a *appearance) error {
		switch {
		case !begun || a.key != newest.key:
			begun, several, newest = true, false, *a
			return nil
		case a.place != newest.place:
			if !several {
				several = true
				r.Moved++
			}
			newest = *a
			return nil
		case a.timeline < newest.timeline:
			// Another server, restored or upgraded: its positions begin anew.
			r.Histories++
			newest = *a
			return nil
		}
		if a.later(&newest) < 0 {
			r.Reordered++
			r.example("reordered", nil, "%s (position %s#%d) stands behind %s (position %s#%d) of the same key",
				j.where(a.place, a.at), pglogrepl.LSN(a.lsn), a.ordinal, j.where(newest.place, newest.at), pglogrepl.LSN(newest.lsn), newest.ordinal)
			return nil
		}
		newest = *a
		return nil
	})
}

// transaction is what the table shows of one: the rows with its xid.
type transaction struct {
	xid     uint32
	lsn     uint64 // of a row found; 0: none was
	mixed   bool   // rows found have different commit LSNs: a later update put the xid there
	missing int64
	example member
}

// judgeRows: rows without a record are missing, unless that can be explained; and
// a transaction that has such rows beside others is torn.
func (j *judge) judgeRows() error {
	var t transaction
	if err := j.members.each(func(m *member) error {
		if m.xid != t.xid {
			if err := j.finishTransaction(&t); err != nil {
				return err
			}
			t = transaction{xid: m.xid}
		}
		switch {
		case m.lsn == 0:
			if j.judgeMissing(m) {
				t.missing++
				t.example = *m
			}
		case m.lsn == unknownLSN:
		default:
			t.mixed = t.mixed || t.lsn != 0 && t.lsn != m.lsn
			t.lsn = m.lsn
		}
		return nil
	}); err != nil {
		return err
	}
	return j.finishTransaction(&t)
}

func (j *judge) finishTransaction(t *transaction) error {
	switch {
	case t.mixed:
		j.result.Updated++
		return nil
	case t.lsn == 0 || t.missing == 0:
		return nil
	}
	j.result.Torn++
	j.result.example("torn", ref(&t.example), "of transaction %d (commit %s) some rows are in the topics and %d are not, among them",
		t.xid, pglogrepl.LSN(t.lsn), t.missing)
	return j.ordinals.add(ordinal{lsn: t.lsn})
}

// judgeMissing counts a row that is not in the topics, and tells whether it ought
// to be.
func (j *judge) judgeMissing(m *member) bool {
	r, found := j.result, j.found[m.owner]
	if j.scope.byLSN() && (found == nil || m.at == 0 || m.at < found.least || m.at > found.most) {
		return false // nothing says that its LSN is in the range
	}
	r.Rows++
	f := j.topicFacts(m.topic)
	switch {
	case !j.facts.due.due(m.xid):
		r.NotDue++
		return false
	case f.hidden || j.facts.letters.hidden:
		r.Hidden++
		return false
	case j.forgotten(f, m.owner, m.at):
		r.Forgotten++
		return false
	}
	r.Missing++
	if found != nil && m.at != 0 && m.at < found.least {
		r.Older++
	}
	r.example("missing", ref(m), "")
	return true
}

// forgotten tells whether a row's record may be among those that a topic has
// forgotten. Where the range has a lower bound, it is the user's word that it is
// not.
func (j *judge) forgotten(f topicFacts, owner uint32, at int64) bool {
	if f.compacted {
		return true
	}
	if !f.forgets || j.scope.claimed {
		return false
	}
	return !j.timed[owner] || at == 0 || f.younger == 0 || at <= f.younger
}

// judgeOrdinals: the events of one commit LSN are numbered from 1 on, so a number
// that is not there is an event that is not there, unless it belongs elsewhere: to
// another table of the publication, a topic that was not read, or a past that was
// forgotten.
func (j *judge) judgeOrdinals() error {
	r := j.result
	var last ordinal
	var seen uint32
	told := false
	finish := func() {
		switch {
		case last.lsn == 0 || last.n == seen || told || last.lsn >= uint64(j.facts.covered):
		case j.facts.complete:
			r.Torn++
			r.example("torn", nil, "of the transaction with commit %s events 1 to %d ought to be in the topics, and %d of them are",
				pglogrepl.LSN(last.lsn), last.n, seen)
		default:
			r.Holes++
		}
	}
	if err := j.ordinals.each(func(o *ordinal) error {
		if o.lsn != last.lsn {
			finish()
			last, seen, told = ordinal{lsn: o.lsn}, 0, false
		}
		switch {
		case o.n == 0:
			told = true
		case o.n != last.n:
			last.n = o.n
			seen++
		}
		return nil
	}); err != nil {
		return err
	}
	finish()
	return nil
}
