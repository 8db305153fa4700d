package snapshot

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

var insertedRelation = &decode.Relation{ID: 1, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd', Columns: []decode.Column{
	{Name: "payload", TypeOID: 25}, {Name: "b", TypeOID: 25}, {Name: "a", TypeOID: 25},
}}

// transactions of the stream, each with rows of the given keys (a, b).
func transaction(commit, end pglogrepl.LSN, keys ...[2]string) (frames [][]byte) {
	now := time.Unix(1, 0)
	frames = append(frames, decodetest.XLogData(commit, now, decodetest.Begin(decode.Begin{CommitLSN: commit, CommitTime: now, XID: 7})),
		decodetest.XLogData(0, now, decodetest.Relation(*insertedRelation)))
	for _, key := range keys {
		frames = append(frames, decodetest.XLogData(commit, now,
			decodetest.Insert(1, decodetest.Text("x"), decodetest.Text(key[1]), decodetest.Text(key[0]))))
	}
	return append(frames, decodetest.XLogData(end, now, decodetest.Commit(decode.Commit{CommitLSN: commit, EndLSN: end, CommitTime: now})))
}

func keyOf(a, b string) [][]byte { return [][]byte{[]byte(a), []byte(b)} }

// The stream is read up to the LSN and not beyond it, whatever says that it is
// reached; the keys are those of the table, in the key's order of columns.
func TestInserted(t *testing.T) {
	now := time.Unix(1, 0)
	tables := []Table{{Schema: "other", Name: "outbox", Key: []string{"a"}}, {Schema: "public", Name: "outbox", Key: []string{"a", "b"}}}
	first := transaction(100, 110, [2]string{"1", "x"}, [2]string{"2", "y"})
	for name, c := range map[string]struct {
		from, until pglogrepl.LSN
		after       [][]byte
		first       bool // the first transaction's keys are taken
		second      bool // the second transaction's key is taken
	}{
		"a commit that ends there":       {0, 110, nil, true, false},
		"a keepalive there":              {100, 120, [][]byte{decodetest.Keepalive(120, now, false)}, true, false},
		"a transaction that begins late": {0, 120, transaction(130, 140, [2]string{"3", "z"})[:1], true, false},
		"a transaction that ends late":   {0, 135, transaction(130, 140, [2]string{"3", "z"}), true, true},
		"a slot behind the start":        {101, 135, transaction(130, 140, [2]string{"3", "z"}), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			keys := NewKeys()
			defer keys.Close()
			i := NewInserted(tables, keys, c.from, c.until)
			frames := append(append([][]byte{decodetest.Keepalive(90, now, false)}, first...), c.after...)
			for n, frame := range frames {
				done, err := i.OnFrame(frame)
				if err != nil || done != (n == len(frames)-1) {
					t.Fatalf("frame %d of %d: done %t, error %v", n, len(frames), done, err)
				}
			}
			keys.Seal()
			for key, want := range map[[2]string]bool{{"1", "x"}: c.first, {"2", "y"}: c.first, {"x", "1"}: false, {"3", "z"}: c.second} {
				if has, err := keys.Has(1, keyOf(key[0], key[1])); has != want || err != nil {
					t.Errorf("key %v: %t, error %v", key, has, err)
				}
			}
		})
	}
}

// A keepalive inside a transaction says nothing about its rows.
func TestInsertedInsideATransaction(t *testing.T) {
	keys := NewKeys()
	defer keys.Close()
	i := NewInserted([]Table{{Schema: "public", Name: "outbox", Key: []string{"a"}}}, keys, 0, 120)
	frames := transaction(100, 110, [2]string{"1", "x"})
	for _, frame := range append(frames[:2:2], decodetest.Keepalive(120, time.Unix(1, 0), false)) {
		if done, err := i.OnFrame(frame); done || err != nil {
			t.Fatalf("done %t, error %v", done, err)
		}
	}
}

// A key that the stream does not carry, or not as text, cannot be compared: what
// could be left out by mistake would be lost.
func TestInsertedRefuses(t *testing.T) {
	keys := NewKeys()
	defer keys.Close()
	var refused *TableError
	i := NewInserted([]Table{{Schema: "public", Name: "outbox", Key: []string{"id"}}}, keys, 0, 120)
	var err error
	for _, frame := range transaction(100, 110, [2]string{"1", "x"}) {
		if _, err = i.OnFrame(frame); err != nil {
			break
		}
	}
	if !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
	i = NewInserted([]Table{{Schema: "public", Name: "outbox", Key: []string{"a"}}}, keys, 0, 120)
	frames := transaction(100, 110)
	for _, frame := range append(frames[:2:2], decodetest.XLogData(100, time.Unix(1, 0),
		decodetest.Insert(1, decodetest.Binary("x"), decodetest.Binary("x"), decodetest.Binary("x")))) {
		_, err = i.OnFrame(frame)
	}
	if err == nil {
		t.Error("a key in binary was taken")
	}
}

func TestQuery(t *testing.T) {
	table := Table{Schema: "public", Name: `odd "name"`, Key: []string{"a", "B"}, Relation: insertedRelation}
	for got, want := range map[string]string{
		table.query("", false, 5): `SELECT "payload", "b", "a" FROM "public"."odd ""name""" ORDER BY "a", "B" LIMIT 5`,
		table.query("x -- y", true, 5): `SELECT "payload", "b", "a" FROM "public"."odd ""name""" WHERE ("a", "B") > ($1, $2) AND (x -- y` +
			"\n" + `) ORDER BY "a", "B" LIMIT 5`,
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
