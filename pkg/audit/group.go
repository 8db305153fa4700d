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

	bad       int64 // rows that cannot become records
	letters   int64 // rows put aside, each counted once
	lettersIn int64 // those of the range
	letter    entry // the newest
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
		if e.is(flagBad) {
			g.bad++
		}
		return nil
	case kindReplay:
		g.replayed = true
		return nil
	case kindLetter:
		return j.takeLetter(g, e)
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

// takeLetter takes a dead letter. It has an ordinal of its transaction, which so is
// not torn for it. After a crash in at-least-once delivery it may be there twice.
func (j *judge) takeLetter(g *group, e *entry) error {
	if g.letters > 0 && e.lsn == g.letter.lsn && e.ordinal == g.letter.ordinal {
		return nil
	}
	g.letters++
	g.letter = *e
	if !j.scope.holds(e.lsn) {
		return nil
	}
	g.lettersIn++
	if j.scope.byTable {
		return nil
	}
	return j.ordinals.add(ordinal{lsn: e.lsn, n: e.ordinal})
}

// finish judges the group that is complete.
func (j *judge) finish() error {
	g, r := &j.group, j.result
	switch {
	case !g.open:
		return nil
	case g.replayed && g.events == 0 && g.letters == 0:
		j.facts.complete = false // its ordinal is nowhere: a replay from the table does not know it
	}
	if g.rows == 0 {
		if !j.scope.byTable {
			r.LettersAlone += g.lettersIn
		}
		return nil
	}
	if g.rows > 1 {
		j.finishAlike(g)
		return nil
	}
	m := member{at: g.row.at, tid: uint64(g.row.by), ident: g.ident, xid: g.row.xid, owner: g.row.owner, topic: g.row.place}
	switch published := g.events > 0 || g.replayed; {
	case !published && g.letters > 0:
		return j.putAside(g, &m)
	case !published && g.bad > 0:
		r.Rows++
		r.Unpublishable++
		r.example("unpublishable", ref(&m), "")
		return nil
	case !published:
		return j.members.add(m)
	}
	if j.scope.byLSN() && g.inRange == 0 {
		return nil // it is in the topics, outside of the range
	}
	r.Rows++
	r.Found++
	if g.letters > 0 {
		r.Retried++
	}
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

// putAside judges a row that is a dead letter and nothing else: it is accounted for,
// and as far as its transaction is concerned, there.
func (j *judge) putAside(g *group, m *member) error {
	if j.scope.byLSN() && g.lettersIn == 0 {
		return nil
	}
	r := j.result
	r.Rows++
	r.PutAside++
	r.example("put aside", ref(m), "dead letter %s", j.where(g.letter.place, g.letter.at))
	j.note(m)
	if m.lsn = g.letter.lsn; g.letters > 1 {
		m.lsn = unknownLSN
	}
	return j.members.add(*m)
}

// unknownLSN of a row that is in the topics, nobody can tell by which of several
// records.
const unknownLSN = ^uint64(0)

// finishAlike judges rows that nothing tells apart: as many events and dead letters
// as rows have to be there, and which of the rows is missing cannot be said.
func (j *judge) finishAlike(g *group) {
	r := j.result
	if j.scope.byLSN() {
		found := min(g.rows, g.inRange)
		aside := min(g.rows-found, g.lettersIn)
		r.Rows, r.Found, r.PutAside, r.Shared = r.Rows+found+aside, r.Found+found, r.PutAside+aside, r.Shared+found+aside
		return
	}
	found := min(g.rows, g.events)
	aside := min(g.letters, g.rows-found)
	unpublishable := min(max(g.bad-aside, 0), g.rows-found-aside)
	r.Rows, r.Found, r.Shared = r.Rows+g.rows, r.Found+found, r.Shared+g.rows
	if g.replayed {
		return
	}
	r.PutAside, r.Unpublishable = r.PutAside+aside, r.Unpublishable+unpublishable
	there := found + aside + unpublishable
	if there == g.rows {
		return
	}
	missing := max(g.due-there, 0)
	r.NotDue += g.rows - max(there, g.due)
	f := j.topicFacts(g.row.place)
	switch {
	case f.hidden || j.facts.letters.hidden:
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
