package audit

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
)

// ident is what a row and its record have in common: a hash of the event id, or
// of the content where the table has no event id. 128 bits: among 100 million of
// them two are equal by chance once in 10^22 audits.
type ident [2]uint64

func (a ident) compare(b ident) int {
	if c := cmp.Compare(a[0], b[0]); c != 0 {
		return c
	}
	return cmp.Compare(a[1], b[1])
}

// kind of an entry. Rows stand before records among those of one ident.
type kind uint32

const (
	kindRow kind = iota
	kindRecord
	kindReplay // a record that was published again on purpose
	kindLetter // a dead letter
)

// flags of an entry.
const (
	flagOwnID         = 1 << iota // ident is of an event id, not of the content
	flagKeyed                     // the record has a key
	flagTransactional             // it was written in a Kafka transaction
	flagBad                       // the row cannot become a record
)

// entry is a row or a record, as far as it is judged.
type entry struct {
	ident    ident
	digest   uint64 // of topic, key and value
	key      uint64 // record: of topic and key
	lsn      uint64 // record: its transaction's commit LSN
	at       int64  // record: offset; row: where it stands in the order of times or ids
	by       int64  // record: producer id; row: ctid
	kind     kind
	flags    uint32
	place    uint32 // record: partition; row: topic
	ordinal  uint32 // record
	timeline uint32 // record
	owner    uint32 // row: its table
	xid      uint32 // row: xmin
}

func (e *entry) is(flag uint32) bool { return e.flags&flag != 0 }

// entryCodec orders by ident, rows first, then records by position and place.
var entryCodec = codec[entry]{
	size: 7*8 + 7*4,
	put: func(b []byte, e *entry) {
		for i, v := range [7]uint64{e.ident[0], e.ident[1], e.digest, e.key, e.lsn, uint64(e.at), uint64(e.by)} {
			binary.LittleEndian.PutUint64(b[8*i:], v)
		}
		for i, v := range [7]uint32{uint32(e.kind), e.flags, e.place, e.ordinal, e.timeline, e.owner, e.xid} {
			binary.LittleEndian.PutUint32(b[56+4*i:], v)
		}
	},
	get: func(b []byte, e *entry) {
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		half := func(i int) uint32 { return binary.LittleEndian.Uint32(b[56+4*i:]) }
		*e = entry{
			ident: ident{word(0), word(1)}, digest: word(2), key: word(3), lsn: word(4), at: int64(word(5)), by: int64(word(6)),
			kind: kind(half(0)), flags: half(1), place: half(2), ordinal: half(3), timeline: half(4), owner: half(5), xid: half(6),
		}
	},
	compare: func(a, b entry) int {
		return cmp.Or(a.ident.compare(b.ident), cmp.Compare(a.kind, b.kind), cmp.Compare(a.lsn, b.lsn),
			cmp.Compare(a.ordinal, b.ordinal), cmp.Compare(a.place, b.place), cmp.Compare(a.at, b.at))
	},
}

// hasher makes idents and digests, good within one audit.
type hasher struct{ seeds [2]maphash.Seed }

func newHasher() *hasher { return &hasher{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}} }

// parts hashes what belongs together so that no two lists of parts run into the
// same bytes. A nil part is not an empty one.
func (h *hasher) parts(seed int, parts ...[]byte) uint64 {
	var m maphash.Hash
	m.SetSeed(h.seeds[seed])
	var length [8]byte
	for _, part := range parts {
		n := uint64(len(part))
		if part == nil {
			n = 1<<64 - 1
		}
		binary.LittleEndian.PutUint64(length[:], n)
		_, _ = m.Write(length[:]) // never fails
		_, _ = m.Write(part)
	}
	return m.Sum64()
}

func (h *hasher) ident(parts ...[]byte) ident {
	return ident{h.parts(0, parts...), h.parts(1, parts...)}
}
