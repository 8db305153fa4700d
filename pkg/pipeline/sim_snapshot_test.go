package pipeline

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/snapshot"
)

// simSnapshots is a world in which the outbox held rows before the slot was made,
// and rows are deleted. Its own source of chance: what else a seed does stays as it
// is.
type simSnapshots struct {
	rnd   *rand.Rand
	wants bool // the first start publishes the rows from before the slot
	// deleted rows, also those that a restored server has back.
	deleted map[int]bool
	answers *rand.Rand // of operators who would rather recover than give rows up
}

// recovers: the operator answers so.
func (s *simSnapshots) recovers() bool { return s.answers.IntN(2) == 0 }

// recover turns the start into that of a recovery: rows of the gap are in doubt, and
// no checkpoint says of them that they are published before it is over.
func (i *simInstance) recover(record checkpoint.Record, decision checkpoint.Decision) checkpoint.Decision {
	doubt := record.Recover(i.identity(record), 0, true)
	doubt.Expected = uint64(len(i.s.server.table()))
	i.s.say("%s: recovers what lies between %s and %s", i, record.Covered, decision.Start.Covered)
	for _, tx := range i.s.server.txs {
		tx.doubt = tx.doubt || tx.commit >= record.Covered && tx.commit < decision.Start.Covered
	}
	i.accepted = true
	i.s.Recoveries++
	decision.Start, decision.Accepted = doubt.Begin(decision.Start.Covered), "recover"
	return decision
}

func newSimSnapshots(seed uint64) simSnapshots {
	rnd := rand.New(rand.NewPCG(seed, 2))
	return simSnapshots{rnd: rnd, deleted: map[int]bool{}, wants: rnd.IntN(3) == 0, answers: rand.New(rand.NewPCG(seed, 3))}
}

// oldRows are there before the slot.
func (s *sim) oldRows() {
	if !s.snapshots.wants {
		return
	}
	for range s.snapshots.rnd.IntN(8) {
		s.server.commit(1 + s.snapshots.rnd.IntN(4))
	}
	for _, tx := range s.server.txs {
		tx.old = true
	}
}

// remove deletes a row, old or new; the stream carries it all the same.
func (v *simServer) remove() {
	if rows := v.table(); len(rows) > 0 {
		row := rows[v.s.snapshots.rnd.IntN(len(rows))]
		v.deleted[row.number], v.s.snapshots.deleted[row.number] = true, true
		v.s.say("server: row %d deleted", row.number)
	}
}

// table as it is now, in the order of its primary key, which is the number.
func (v *simServer) table() (rows []simRow) {
	for _, tx := range v.txs {
		for _, row := range tx.rows {
			if !v.deleted[row.number] {
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b simRow) int { return cmp.Compare(a.number, b.number) })
	return rows
}

// simPages are what an instance publishes of a table: the model of snapshot.Source.
type simPages struct {
	page  checkpoint.Page
	rows  []simRow // left to read
	keys  *snapshot.Keys
	pages map[pglogrepl.LSN]*checkpoint.Page
	queue [][]byte
	over  bool
	base  pglogrepl.LSN // where the pages' LSNs begin
}

// collect fixes a state of the table and reads the stream up to the WAL's end.
func (i *simInstance) collect() error {
	s, page := i.s, i.decision.Start.Page
	if i.sender.history != s.server.history {
		return errDisconnected // the table is another server's
	}
	p := &simPages{page: *page, keys: snapshot.NewKeys(), pages: map[pglogrepl.LSN]*checkpoint.Page{}}
	p.rows = slices.DeleteFunc(s.server.table(), func(r simRow) bool { return len(page.After) > 0 && fmt.Sprintf("%09d", r.number) <= page.After[0] })
	until := s.server.end
	s.say("%s: snapshot of rows %v, the stream is read up to %s", i, p.rows, until)
	inserted := snapshot.NewInserted([]snapshot.Table{{Schema: "public", Name: "outbox", Key: []string{"value"}}}, p.keys, page.From, until)
	for {
		payload, ok := i.sender.frame()
		if !ok {
			payload, ok = i.sender.keepalive(s.rnd, true)
		}
		if !ok {
			return errDisconnected
		}
		done, err := inserted.OnFrame(payload)
		if err != nil {
			s.fail("%s: %v", i, err)
		}
		if done {
			break
		}
		if err := i.between(); err != nil {
			return err
		}
	}
	p.keys.Seal()
	if page.Recovery != nil { // read behind the state of the table
		p.rows = slices.DeleteFunc(p.rows, s.broker.visible)
		p.base = page.Recovery.Base
	}
	i.pages = p
	s.Snapshots++
	return i.between()
}

// frame of the snapshot's stream.
func (i *simInstance) pageFrame() (payload []byte, ok bool) {
	p := i.pages
	if len(p.queue) == 0 && !p.over {
		i.nextPage()
	}
	if len(p.queue) == 0 {
		return nil, false
	}
	payload, p.queue = p.queue[0], p.queue[1:]
	return payload, true
}

func (i *simInstance) nextPage() {
	p, s := i.pages, i.s
	var rows []simRow
	for most := 1 + s.rnd.IntN(3); len(p.rows) > 0 && len(rows) < most; p.rows = p.rows[1:] {
		row := p.rows[0]
		carried, err := p.keys.Has(0, [][]byte{[]byte(s.poison.value(row.number))})
		if err != nil {
			s.fail("%v", err)
		}
		if !carried {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		p.over = true
		p.queue = i.encodePage(p.page.From-1, p.page.From, nil)
		return
	}
	last := rows[len(rows)-1].number
	p.page.Number++
	p.page.After, p.page.Rows = []string{fmt.Sprintf("%09d", last)}, p.page.Rows+uint64(len(rows))
	page := p.page
	commit := p.base + 2*pglogrepl.LSN(page.Number)
	if commit+1 >= page.From-1 {
		s.fail("%s: page %d has no LSN before %s", i, page.Number, page.From)
	}
	p.pages[commit] = &page
	p.queue = i.encodePage(commit, commit+1, rows)
	s.say("%s: page %d is rows %v", i, page.Number, rows)
}

func (i *simInstance) encodePage(commit, end pglogrepl.LSN, rows []simRow) (frames [][]byte) {
	now := i.s.now
	frames = append(frames, beginFrame(commit, now, decode.Begin{CommitLSN: commit, CommitTime: now}), relationFrame(now, outboxTable))
	for _, row := range rows {
		frames = append(frames, insertFrame(commit, now, row.key, i.s.poison.value(row.number)))
	}
	return append(frames, commitFrame(now, decode.Commit{CommitLSN: commit, EndLSN: end, CommitTime: now}))
}

// streamPages instead of the stream.
func (i *simInstance) streamPages() (cfg CoreConfig) {
	p := i.pages
	number := p.page.Number
	page := p.page
	start := checkpoint.Edge{Covered: p.base + 2*pglogrepl.LSN(number) + 1, Page: &page}
	return CoreConfig{
		Start: start, SlotConfirmed: start.Covered, Source: nowhere{}, Until: page.From - 1, Held: i.slot.Confirmed,
		Page: func(commit pglogrepl.LSN) *checkpoint.Page { return p.pages[commit] },
	}
}

func (i *simInstance) snapshotOver() bool {
	return i.pages != nil && i.core.Reached() && i.core.Drained()
}
