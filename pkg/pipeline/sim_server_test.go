package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// simRow is one row of the outbox. Its number is unique over all histories of a
// simulation, and rises in commit order: what is published of a key must rise.
type simRow struct {
	number int
	key    string
}

type simTx struct {
	first, commit, end pglogrepl.LSN
	xid                uint32
	at                 time.Time
	rows               []simRow
	given, old, doubt  bool // up: an operator took a gap upon himself; old: from before the slot; doubt: a recovery publishes it
}

// simServer is a PostgreSQL: its WAL, one slot, and what may befall them.
type simServer struct {
	s        *sim
	txs      []*simTx
	end      pglogrepl.LSN // of the WAL
	xid      uint32
	timeline uint32
	left     map[uint32]pglogrepl.LSN // where the history left earlier timelines
	slot     pglogrepl.LSN            // confirmed_flush_lsn
	sender   *simWalsender            // who holds the slot
	copied   *simServer               // a copy of the disk
	restored bool
	history  int // another one after a restore or a promotion
	deleted  map[int]bool
	verified int // txs before this one are known to be published, and below the slot
}

func (v *simServer) commit(rows int) {
	s := v.s
	tx := &simTx{xid: v.xid, at: s.now.Add(time.Duration(s.rnd.IntN(2_000_000)-1_000_000) * time.Microsecond)}
	v.xid++
	// It may have begun long ago: its first record lies anywhere before.
	tx.first = v.end - pglogrepl.LSN(s.rnd.IntN(int(min(v.end, 100))))
	v.end += pglogrepl.LSN(s.rnd.IntN(20))
	tx.commit = v.end
	v.end += pglogrepl.LSN(1 + s.rnd.IntN(8))
	tx.end = v.end
	for range rows {
		s.rows++
		s.poison.fate(s.rows)
		tx.rows = append(tx.rows, simRow{number: s.rows, key: fmt.Sprint("k", s.rnd.IntN(s.keys))})
		s.source[s.rows] = tx
	}
	v.txs = append(v.txs, tx)
	s.say("server: transaction %s..%s xid %d, rows %v", tx.commit, tx.end, tx.xid, tx.rows)
}

// copyDisk keeps a copy to come back to.
func (v *simServer) copyDisk() {
	c := *v
	c.txs, c.sender, c.copied, c.deleted = slices.Clone(v.txs), nil, nil, maps.Clone(v.deleted)
	v.copied = &c
	v.s.say("server: disk copied, WAL ends at %s", v.end)
}

// restore is the copy at work again: the same identifier, timeline and xids.
// Before anybody looks, some transactions may have taken the places of lost ones,
// and the WAL may have grown beyond what it was.
func (v *simServer) restore() {
	c, before := v.copied, v.end
	v.txs, v.end, v.xid, v.slot = slices.Clone(c.txs), c.end, c.xid, c.slot
	v.restored, v.deleted = true, maps.Clone(c.deleted)
	v.anew()
	v.s.say("server: restored, WAL ends at %s, slot %s", v.end, v.slot)
	for range v.s.rnd.IntN(3) {
		v.commit(1)
	}
	if v.s.rnd.IntN(2) == 0 {
		v.end = max(v.end, before+pglogrepl.LSN(v.s.rnd.IntN(20)))
	}
}

// promote is a standby that takes over with the WAL up to somewhere.
func (v *simServer) promote() {
	rnd := v.s.rnd
	lowest := v.left[v.timeline-1]
	at := v.end - pglogrepl.LSN(rnd.IntN(60))
	at = max(at, lowest, 1)
	for len(v.txs) > 0 && v.txs[len(v.txs)-1].end > at {
		at = min(at, v.txs[len(v.txs)-1].commit) // a history ends between two records
		v.txs = v.txs[:len(v.txs)-1]
	}
	v.left[v.timeline] = at
	v.timeline++
	v.end = at
	v.slot = min(v.slot, at)
	v.slot -= min(v.slot-1, pglogrepl.LSN(rnd.IntN(30))) // it was synchronized a moment ago
	v.anew()
	v.s.say("server: promoted to timeline %d at %s, slot %s", v.timeline, at, v.slot)
}

// anew is another history.
func (v *simServer) anew() {
	v.history++
	v.verified, v.s.broker.known = 0, 0
	v.disconnect()
}

// meddle is somebody who moves the slot.
func (v *simServer) meddle() {
	if v.end > v.slot {
		v.slot += 1 + pglogrepl.LSN(v.s.rnd.IntN(int(v.end-v.slot)))
		v.s.say("server: somebody moved the slot to %s", v.slot)
	}
}

func (v *simServer) disconnect() {
	if v.sender != nil {
		v.sender.dead = true
		v.sender = nil
	}
}

// simWalsender is one replication connection.
type simWalsender struct {
	server    *simServer
	owner     *simInstance
	history   int // of the server, when it was connected
	dead      bool
	socket    [][]byte // read by the kernel, when it died
	described bool
	next      int // transaction to send
	queue     [][]byte
	sent      pglogrepl.LSN
	start     pglogrepl.LSN // the slot's position when it was taken
	alsoLegal pglogrepl.LSN // what the checkpoint of the start covers
	legal     map[pglogrepl.LSN]bool
}

// connect takes the slot, which must be free.
func (v *simServer) connect(owner *simInstance) *simWalsender {
	w := &simWalsender{server: v, owner: owner, history: v.history, sent: v.slot, start: v.slot, legal: map[pglogrepl.LSN]bool{v.slot: true}}
	w.next, _ = slices.BinarySearchFunc(v.txs, v.slot, func(tx *simTx, lsn pglogrepl.LSN) int { return int(tx.commit) - int(lsn) })
	v.sender = w
	return w
}

// buffer is what a paused instance will find in its socket.
func (w *simWalsender) buffer(n int) {
	for ; n > 0; n-- {
		payload, ok := w.frame()
		if !ok || w.server.s.rnd.IntN(8) == 0 {
			w.buffered(payload, ok)
			payload, ok = w.keepalive(w.server.s.rnd, false)
		}
		w.buffered(payload, ok)
	}
}

func (w *simWalsender) buffered(payload []byte, ok bool) {
	if ok {
		w.socket = append(w.socket, payload)
	}
}

var errDisconnected = errors.New("the connection is gone")

// frame is the next piece of the stream.
func (w *simWalsender) frame() (payload []byte, ok bool) {
	if w.dead {
		if len(w.socket) == 0 {
			return nil, false
		}
		payload, w.socket = w.socket[0], w.socket[1:]
		return payload, true
	}
	if len(w.queue) == 0 && w.next < len(w.server.txs) {
		w.queue = w.encode(w.server.txs[w.next])
		w.next++
	}
	if len(w.queue) == 0 {
		return nil, false
	}
	payload = w.queue[0]
	if w.queue = w.queue[1:]; len(w.queue) == 0 {
		w.sent = max(w.sent, w.server.txs[w.next-1].end)
		w.legal[w.sent] = true
	}
	return payload, true
}

func (w *simWalsender) encode(tx *simTx) (frames [][]byte) {
	now := w.server.s.now
	frames = append(frames, beginFrame(tx.first, now, decode.Begin{CommitLSN: tx.commit, CommitTime: tx.at, XID: tx.xid}))
	if !w.described {
		w.described = true
		frames = append(frames, relationFrame(now, outboxTable))
	}
	for _, row := range tx.rows {
		frames = append(frames, insertFrame(tx.first, now, row.key, w.server.s.poison.value(row.number)))
	}
	return append(frames, commitFrame(now, decode.Commit{CommitLSN: tx.commit, EndLSN: tx.end, CommitTime: tx.at}))
}

// keepalive says that everything up to some LSN was sent. Between transactions
// that is true of its LSN; within one, what it names counts for nothing.
func (w *simWalsender) keepalive(rnd *rand.Rand, newest bool) (payload []byte, ok bool) {
	if w.dead {
		return nil, false
	}
	low, high := w.sent, w.server.end
	inside := len(w.queue) > 0
	if !inside && w.next < len(w.server.txs) {
		high = w.server.txs[w.next].commit
	}
	lsn := high
	if !newest && high > low {
		lsn = low + pglogrepl.LSN(rnd.IntN(int(high-low)+1))
	}
	if !inside {
		w.sent = max(w.sent, lsn)
		w.legal[lsn] = true
	}
	w.server.s.say("keepalive %s, inside a transaction: %v", lsn, inside)
	return decodetest.Keepalive(lsn, w.server.s.now, rnd.IntN(3) == 0), true
}

// SendStatus moves the slot, and checks that it may.
func (w *simWalsender) SendStatus(received, confirmed pglogrepl.LSN, _ bool) error {
	v, s := w.server, w.server.s
	if w.dead {
		if s.rnd.IntN(4) > 0 {
			return nil // nobody has noticed yet
		}
		return errDisconnected
	}
	s.say("status received %s, confirmed %s", received, confirmed)
	if received < confirmed {
		s.fail("confirmed %s beyond received %s", confirmed, received)
	}
	if covered := s.broker.newest().Covered; confirmed > covered && confirmed != w.start {
		s.fail("confirmed %s beyond the durable checkpoint %s", confirmed, covered)
	}
	if !w.legal[confirmed] && confirmed != w.alsoLegal {
		s.fail("confirmed %s: no commit's end, no keepalive", confirmed)
	}
	if oldest := w.owner.sink.common().oldest(); oldest != 0 && oldest < confirmed {
		s.fail("confirmed %s with a row of transaction %s unacknowledged", confirmed, oldest)
	}
	for v.verified < len(v.txs) && v.txs[v.verified].commit < confirmed {
		for _, row := range v.txs[v.verified].rows {
			if !s.broker.visible(row) && !v.txs[v.verified].given && !v.txs[v.verified].old && !v.txs[v.verified].doubt {
				s.fail("confirmed %s: row %d of transaction %s is lost", confirmed, row.number, v.txs[v.verified].commit)
			}
		}
		v.verified++
	}
	v.slot = max(v.slot, confirmed)
	return nil
}
