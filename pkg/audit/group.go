package audit

// group is what has one ident: rows, most often one, and the records of their
// events. An event is a position: records of the same one are copies.
type group struct {
	open      bool
	row       entry // the first
	rows, due int64
	first     entry // record of the first event
	last      entry // newest record
	events    int64
	inRange   int64
	copies    []entry // of the event of last, but for last
	matched   bool    // an event has the row's content
	replayed  bool
	ident     ident
}

// mostCopies of one event are compared with each other; an event that has more
// has been found guilty.
const mostCopies = 64

func (j *judge) take(e *entry) error {
	g := &j.group
	if !g.open || e.ident != g.ident {
		if err := j.finish(); err != nil {
			return err
		}
		*g = group{open: true, ident: e.ident, copies: g.copies[:0]}
	}
	switch e.kind {
	case kindRow:
		if g.rows++; g.rows == 1 {
			g.row = *e
		}
		if j.facts.due.due(e.xid) {
			g.due++
		}
		return nil
	case kindReplay:
		g.replayed = true
		return nil
	case kindRecord:
	}
	judged := j.scope.holds(e.lsn) && (!j.scope.byTable || g.rows > 0)
	if g.events > 0 && e.lsn == g.last.lsn && e.ordinal == g.last.ordinal {
		if judged {
			j.duplicate(g, e)
		}
		if len(g.copies) < mostCopies {
			g.copies = append(g.copies, g.last)
		}
		g.last = *e
		return nil
	}
	g.copies = g.copies[:0]
	err := j.event(g, e, judged)
	g.last = *e
	return err
}

// event takes the first record of an event.
func (j *judge) event(g *group, e *entry, judged bool) error {
	r := j.result
	again := g.events > 0 && e.is(flagOwnID)
	if g.events++; g.events == 1 {
		g.first = *e
	}
	g.matched = g.matched || g.rows > 0 && e.digest == g.row.digest
	if !judged {
		return nil
	}
	g.inRange++
	if again && e.digest == g.first.digest {
		r.Duplicates++
		r.example("duplicate", nil, "%s has event id and content of %s, at another position", j.where(e.place, e.at), j.where(g.first.place, g.first.at))
		return nil
	}
	if again {
		r.Reused++
	}
	r.Records++
	switch {
	case g.events <= g.rows:
	case e.lsn >= uint64(j.facts.until):
		r.Since++
	default:
		r.WithoutRow++
	}
	if !j.scope.byTable {
		if err := j.ordinals.add(ordinal{lsn: e.lsn, n: e.ordinal}); err != nil {
			return err
		}
	}
	if !e.is(flagKeyed) {
		return nil // no key, no order
	}
	return j.appearances.add(appearance{key: e.key, at: e.at, lsn: e.lsn, place: e.place, timeline: e.timeline, ordinal: e.ordinal})
}

// duplicate judges a further copy of an event. No instance of walstream writes a
// row twice; each has a producer id of its own in at-least-once delivery, and in
// exactly-once, in Kafka transactions, nobody writes one again.
func (j *judge) duplicate(g *group, e *entry) {
	j.result.Duplicates++
	for _, earlier := range append(g.copies, g.last) {
		if earlier.by == e.by || earlier.is(flagTransactional) && e.is(flagTransactional) {
			j.result.example("duplicate", nil, "%s repeats %s (producers %d and %d)",
				j.where(e.place, e.at), j.where(earlier.place, earlier.at), e.by, earlier.by)
			return
		}
	}
	j.result.DuplicatesAllowed++
}

// finish judges the group that is complete.
func (j *judge) finish() error {
	g, r := &j.group, j.result
	if !g.open || g.rows == 0 {
		return nil
	}
	if g.rows > 1 {
		j.finishAlike(g)
		return nil
	}
	m := member{at: g.row.at, tid: uint64(g.row.by), ident: g.ident, xid: g.row.xid, owner: g.row.owner, topic: g.row.place}
	if g.events == 0 && !g.replayed {
		return j.members.add(m)
	}
	if j.scope.byLSN() && g.inRange == 0 {
		return nil // it is in the topics, outside of the range
	}
	r.Rows++
	r.Found++
	j.note(&m)
	m.lsn = unknownLSN
	if g.events == 1 {
		m.lsn = g.first.lsn
	}
	if g.events > 0 && !g.matched {
		r.Altered++
		r.example("altered", ref(&m), "%s has not the content that the row has now", j.where(g.first.place, g.first.at))
	}
	return j.members.add(m)
}

// unknownLSN of a row that is in the topics, nobody can tell by which of several
// records.
const unknownLSN = ^uint64(0)

// finishAlike judges rows that nothing tells apart: as many events as rows have
// to be there, and which of the rows is missing cannot be said.
func (j *judge) finishAlike(g *group) {
	r := j.result
	if j.scope.byLSN() {
		found := min(g.rows, g.inRange)
		r.Rows, r.Found, r.Shared = r.Rows+found, r.Found+found, r.Shared+found
		return
	}
	r.Rows, r.Found, r.Shared = r.Rows+g.rows, r.Found+min(g.rows, g.events), r.Shared+g.rows
	if g.events >= g.rows || g.replayed {
		return
	}
	missing := max(g.due-g.events, 0)
	r.NotDue += g.rows - max(g.events, g.due)
	f := j.topicFacts(g.row.place)
	switch {
	case f.hidden:
		r.Hidden += missing
	case j.forgotten(f, g.row.owner, 0):
		r.Forgotten += missing
	case missing > 0:
		r.Missing += missing
		r.example("missing", &rowRef{g.row.owner, uint64(g.row.by), g.ident}, "%d of %d rows alike, one of them", missing, g.rows)
	}
}

// note where the rows that are in the topics begin and end.
func (j *judge) note(m *member) {
	if m.at == 0 {
		return
	}
	found := j.found[m.owner]
	if found == nil {
		found = &rowRange{least: m.at, most: m.at}
		j.found[m.owner] = found
	}
	found.least, found.most = min(found.least, m.at), max(found.most, m.at)
}

func ref(m *member) *rowRef { return &rowRef{owner: m.owner, tid: m.tid, ident: m.ident} }
