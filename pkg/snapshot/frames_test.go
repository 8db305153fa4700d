package snapshot

import (
	"bytes"
	"testing"
	"time"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// What a page is written as is what a walsender would send.
func TestFrames(t *testing.T) {
	now := time.UnixMicro(1_700_000_000_123_456)
	relation := &decode.Relation{ID: 70000, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd', Columns: []decode.Column{
		{Name: "id", TypeOID: 20, TypeMod: -1}, {Name: "payload", TypeOID: 17, TypeMod: 9}, {Name: "note", TypeOID: 25},
	}}
	w := writer{batch: new(decode.Batch)}
	w.begin(14, now)
	w.relation(relation, now)
	w.insert(14, now, relation.ID, []byte{decode.ValueText, decode.ValueBinary, decode.ValueText}, [][]byte{[]byte("1"), {0, 1}, nil})
	w.commit(14, 15, now)
	batch := w.finish()
	for n, want := range [][]byte{
		decodetest.XLogData(14, now, decodetest.Begin(decode.Begin{CommitLSN: 14, CommitTime: now})),
		decodetest.XLogData(0, now, decodetest.Relation(*relation)),
		decodetest.XLogData(14, now, decodetest.Insert(relation.ID, decodetest.Text("1"), decodetest.Binary("\x00\x01"), decodetest.Null())),
		decodetest.XLogData(15, now, decodetest.Commit(decode.Commit{CommitLSN: 14, EndLSN: 15, CommitTime: now})),
	} {
		got, ok := batch.Next()
		if !ok || !bytes.Equal(got, want) {
			t.Errorf("frame %d: %t\n%x, want\n%x", n, ok, got, want)
		}
	}
	if _, more := batch.Next(); more {
		t.Error("more frames than were written")
	}
}
