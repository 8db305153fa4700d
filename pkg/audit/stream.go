package audit

import (
	"cmp"
	"encoding/binary"
)

// appearance is where an event stands in a topic for the first time.
type appearance struct {
	key      uint64 // of topic and key
	at       int64  // offset
	lsn      uint64
	place    uint32
	timeline uint32
	ordinal  uint32
}

// later compares positions; the timeline names the history they belong to.
func (a *appearance) later(b *appearance) int {
	return cmp.Or(cmp.Compare(a.timeline, b.timeline), cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.ordinal, b.ordinal))
}

// appearanceCodec orders by key, and then as a consumer reads.
var appearanceCodec = codec[appearance]{
	size: 3*8 + 3*4,
	put: func(b []byte, a *appearance) {
		binary.LittleEndian.PutUint64(b, a.key)
		binary.LittleEndian.PutUint64(b[8:], uint64(a.at))
		binary.LittleEndian.PutUint64(b[16:], a.lsn)
		binary.LittleEndian.PutUint32(b[24:], a.place)
		binary.LittleEndian.PutUint32(b[28:], a.timeline)
		binary.LittleEndian.PutUint32(b[32:], a.ordinal)
	},
	get: func(b []byte, a *appearance) {
		*a = appearance{
			key: binary.LittleEndian.Uint64(b), at: int64(binary.LittleEndian.Uint64(b[8:])), lsn: binary.LittleEndian.Uint64(b[16:]),
			place: binary.LittleEndian.Uint32(b[24:]), timeline: binary.LittleEndian.Uint32(b[28:]), ordinal: binary.LittleEndian.Uint32(b[32:]),
		}
	},
	compare: func(a, b appearance) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.place, b.place), cmp.Compare(a.at, b.at))
	},
}

// member is a row, and what became of it: the members of a transaction are those
// of one xid.
type member struct {
	lsn   uint64 // commit LSN of its record; 0: it has none
	at    int64
	tid   uint64
	ident ident
	xid   uint32
	owner uint32
	topic uint32
}

var memberCodec = codec[member]{
	size: 5*8 + 3*4,
	put: func(b []byte, m *member) {
		for i, v := range [5]uint64{m.lsn, uint64(m.at), m.tid, m.ident[0], m.ident[1]} {
			binary.LittleEndian.PutUint64(b[8*i:], v)
		}
		for i, v := range [3]uint32{m.xid, m.owner, m.topic} {
			binary.LittleEndian.PutUint32(b[40+4*i:], v)
		}
	},
	get: func(b []byte, m *member) {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		half := func(i int) uint32 { return binary.LittleEndian.Uint32(b[40+4*i:]) }
		*m = member{lsn: word(0), at: int64(word(1)), tid: word(2), ident: ident{word(3), word(4)}, xid: half(0), owner: half(1), topic: half(2)}
	},
	compare: func(a, b member) int {
		return cmp.Or(cmp.Compare(a.xid, b.xid), cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.at, b.at))
	},
}

// ordinal of a record in its transaction. 0 stands for none: it says that the
// table has told already that the transaction is torn.
type ordinal struct {
	lsn uint64
	n   uint32
}

var ordinalCodec = codec[ordinal]{
	size: 12,
	put: func(b []byte, o *ordinal) {
		binary.LittleEndian.PutUint64(b, o.lsn)
		binary.LittleEndian.PutUint32(b[8:], o.n)
	},
	get: func(b []byte, o *ordinal) {
		*o = ordinal{lsn: binary.LittleEndian.Uint64(b), n: binary.LittleEndian.Uint32(b[8:])}
	},
	compare: func(a, b ordinal) int { return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.n, b.n)) },
}
