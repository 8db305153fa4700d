package decode_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// outboxTable is the relation the tables below speak of.
var outboxTable = decode.Relation{
	ID: 16400, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd',
	Columns: []decode.Column{
		{Name: "id", TypeOID: 20, TypeMod: -1, Key: true},
		{Name: "größe", TypeOID: 1043, TypeMod: 68},
		{Name: "payload", TypeOID: 17, TypeMod: -1},
	},
}

func begin(commit pglogrepl.LSN) []byte {
	return decodetest.Begin(decode.Begin{CommitLSN: commit, CommitTime: at, XID: uint32(commit)})
}

func commit(lsn, end pglogrepl.LSN) []byte {
	return decodetest.Commit(decode.Commit{CommitLSN: lsn, EndLSN: end, CommitTime: at})
}

func row(values ...decode.Value) []byte { return decodetest.Insert(outboxTable.ID, values...) }

func threeNulls() []byte { return row(decodetest.Null(), decodetest.Null(), decodetest.Null()) }

// feed gives messages to an assembler and returns the steps up to the first error.
func feed(a *decode.Assembler, messages ...[]byte) (steps []decode.Step, err error) {
	for _, m := range messages {
		step, err := a.Next(42, m)
		if err != nil {
			return steps, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func TestAssemblerTransactions(t *testing.T) {
	a := decode.NewAssembler()
	if _, err := feed(a, decodetest.Relation(outboxTable)); err != nil {
		t.Fatal(err)
	}
	for tx := range pglogrepl.LSN(3) {
		lsn := 100 + 10*tx
		steps, err := feed(a, begin(lsn))
		if err != nil || steps[0] != decode.StepBegin || !a.Open() {
			t.Fatalf("begin: %v, %v", steps, err)
		}
		if want := (decode.Begin{CommitLSN: lsn, XID: uint32(lsn), CommitTime: a.Begin.CommitTime}); a.Begin != want || !a.Begin.CommitTime.Equal(at) {
			t.Errorf("begin %+v", a.Begin)
		}
		for n := range uint32(3) {
			steps, err := feed(a, row(decodetest.Text("7"), decodetest.Null(), decodetest.Binary("\x00\xff")))
			if err != nil || steps[0] != decode.StepRow {
				t.Fatalf("row: %v, %v", steps, err)
			}
			if want := (decode.Position{CommitLSN: lsn, Ordinal: n + 1}); a.Row.Position != want {
				t.Errorf("position %v, want %v", a.Row.Position, want)
			}
			if a.Row.Begin.CommitLSN != lsn || !reflect.DeepEqual(*a.Row.Relation, outboxTable) {
				t.Errorf("row of %+v in %+v", a.Row.Relation, a.Row.Begin)
			}
		}
		steps, err = feed(a, commit(lsn, lsn+5))
		if err != nil || steps[0] != decode.StepCommit || a.Open() {
			t.Fatalf("commit: %v, %v", steps, err)
		}
		if a.Commit.CommitLSN != lsn || a.Commit.EndLSN != lsn+5 || !a.Commit.CommitTime.Equal(at) {
			t.Errorf("commit %+v", a.Commit)
		}
	}
}

func TestAssemblerValues(t *testing.T) {
	a := decode.NewAssembler()
	message := row(decodetest.Text(""), decodetest.Null(), decodetest.Binary("abc"))
	if _, err := feed(a, decodetest.Relation(outboxTable), begin(1), message); err != nil {
		t.Fatal(err)
	}
	v := a.Row.Values
	if len(v) != 3 {
		t.Fatalf("%d values", len(v))
	}
	// An empty value and NULL are told apart by the format, and by Data too.
	if v[0].Null() || v[0].Format != decode.ValueText || v[0].Data == nil || len(v[0].Data) != 0 {
		t.Errorf("empty text is %+v", v[0])
	}
	if !v[1].Null() || v[1].Data != nil {
		t.Errorf("NULL is %+v", v[1])
	}
	if v[2].Null() || v[2].Format != decode.ValueBinary || string(v[2].Data) != "abc" {
		t.Errorf("binary is %+v", v[2])
	}
	// The data aliases the message and cannot grow into what follows it.
	if &v[2].Data[0] != &message[len(message)-3] || cap(v[2].Data) != 3 {
		t.Error("the value does not alias its message")
	}
}

// A relation may change in the middle of a transaction: rows follow the newest
// layout, and rows read before keep theirs.
func TestAssemblerRelationChange(t *testing.T) {
	a := decode.NewAssembler()
	narrow := outboxTable
	narrow.Columns = outboxTable.Columns[:1]
	if _, err := feed(a, begin(1), decodetest.Relation(narrow), row(decodetest.Text("1"))); err != nil {
		t.Fatal(err)
	}
	before := a.Row.Relation
	if _, err := feed(a, decodetest.Relation(outboxTable), threeNulls()); err != nil {
		t.Fatal(err)
	}
	if len(before.Columns) != 1 || len(a.Row.Relation.Columns) != 3 || a.Row.Position.Ordinal != 2 {
		t.Errorf("before %+v, after %+v, row %v", before, a.Row.Relation, a.Row.Position)
	}
	if _, err := feed(a, row(decodetest.Text("1"))); err == nil || !strings.Contains(err.Error(), "row with 1 columns for relation public.outbox with 3") {
		t.Errorf("row of the old layout: %v", err)
	}
}

// Kinds that are known and not published are counted, wherever they stand.
func TestAssemblerSkips(t *testing.T) {
	a := decode.NewAssembler()
	steps, err := feed(a,
		[]byte("M outside a transaction"), begin(1),
		[]byte("U..."), []byte("U"), []byte("U"), []byte("D.."), []byte("D"), []byte("T..."), []byte("M"), []byte("O"), []byte("Y\x00\x00\x40\x01\x00int4\x00"),
		commit(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	if want := (decode.Skipped{Updates: 3, Deletes: 2, Truncates: 1, Messages: 2}); a.Skipped != want {
		t.Errorf("skipped %+v, want %+v", a.Skipped, want)
	}
	for i, step := range steps[2 : len(steps)-1] {
		if step != decode.StepNone {
			t.Errorf("message %d is step %d", i, step)
		}
	}
}

func TestAssemblerRefuses(t *testing.T) {
	relation := decodetest.Relation(outboxTable)
	unchanged := row(decodetest.Null(), decode.Value{Format: decode.ValueUnchanged}, decodetest.Null())
	for _, test := range []struct {
		name     string
		messages [][]byte // the last one is refused
		reason   string
	}{
		{"empty message", [][]byte{{}}, "unknown kind"},
		{"unknown kind", [][]byte{[]byte("Z")}, "unknown kind"},
		{"streamed transaction of protocol 2", [][]byte{[]byte("S\x00\x00\x00\x01\x01")}, "unknown kind"},
		{"begin in a transaction", [][]byte{begin(5), begin(6)}, "transaction 0/6 begins inside transaction 0/5"},
		{"begin at LSN 0", [][]byte{begin(0)}, "without a commit LSN"},
		{"commit LSN again", [][]byte{begin(5), commit(5, 6), begin(5)}, "commit LSN 0/5 follows 0/5"},
		{"commit LSN falls", [][]byte{begin(5), commit(5, 6), begin(4)}, "commit LSN 0/4 follows 0/5"},
		{"commit without begin", [][]byte{commit(5, 6)}, "commit 0/5 without a begin"},
		{"second commit", [][]byte{begin(5), commit(5, 6), commit(5, 6)}, "commit 0/5 without a begin"},
		{"commit of another", [][]byte{begin(5), commit(6, 7)}, "commit 0/6 ends a transaction that began as 0/5"},
		{"end LSN is the commit LSN", [][]byte{begin(5), commit(5, 5)}, "end LSN 0/5 is not beyond"},
		{"end LSN below", [][]byte{begin(5), commit(5, 4)}, "end LSN 0/4 is not beyond"},
		{"row outside a transaction", [][]byte{relation, threeNulls()}, "row outside a transaction"},
		{"row after the commit", [][]byte{relation, begin(5), commit(5, 6), threeNulls()}, "row outside a transaction"},
		{"row of an unknown relation", [][]byte{begin(5), threeNulls()}, "row of relation 16400"},
		{"too few columns", [][]byte{relation, begin(5), row(decodetest.Null())}, "row with 1 columns"},
		{"too many columns", [][]byte{relation, begin(5), row(make4()...)}, "row with 4 columns"},
		{"old tuple in an insert", [][]byte{relation, begin(5), replace(threeNulls(), 5, 'O')}, `tag 'O'`},
		{"value of unknown format", [][]byte{relation, begin(5), replace(threeNulls(), 8, 'x')}, "malformed"},
		{"unchanged value in an insert", [][]byte{relation, begin(5), unchanged}, "malformed"},
		{"negative length", [][]byte{relation, begin(5), append(replace(threeNulls()[:9], 8, 't'), 0xff, 0xff, 0xff, 0xff)}, "ends too early"},
		{"begin with more", [][]byte{append(begin(5), 0)}, "1 bytes left over"},
		{"commit with more", [][]byte{begin(5), append(commit(5, 6), 0, 0)}, "2 bytes left over"},
		{"relation with more", [][]byte{append(relation, 0)}, "1 bytes left over"},
		{"row with more", [][]byte{relation, begin(5), append(threeNulls(), 'n')}, "1 bytes left over"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := decode.NewAssembler()
			last := len(test.messages) - 1
			if _, err := feed(a, test.messages[:last]...); err != nil {
				t.Fatalf("refused too early: %v", err)
			}
			_, err := a.Next(0x1_00000042, test.messages[last])
			var refused *decode.Error
			if !errors.As(err, &refused) {
				t.Fatalf("error %v, want a *decode.Error", err)
			}
			if !strings.Contains(refused.Reason, test.reason) {
				t.Errorf("reason %q, want one with %q", refused.Reason, test.reason)
			}
			if refused.LSN != 0x1_00000042 || refused.Offset > len(test.messages[last]) || !strings.Contains(err.Error(), "1/42") {
				t.Errorf("error does not say where: %v", err)
			}
		})
	}
}

func make4() []decode.Value {
	return []decode.Value{decodetest.Null(), decodetest.Null(), decodetest.Null(), decodetest.Null()}
}

func replace(b []byte, i int, with byte) []byte {
	b = append([]byte(nil), b...)
	b[i] = with
	return b
}

// Every prefix of a message is refused, never read as a shorter one.
func TestAssemblerRefusesTruncated(t *testing.T) {
	full := row(decodetest.Text("12345"), decodetest.Null(), decodetest.Binary("67890"))
	for _, test := range []struct {
		before [][]byte
		whole  []byte
	}{
		{nil, begin(5)},
		{[][]byte{begin(5)}, commit(5, 6)},
		{nil, decodetest.Relation(outboxTable)},
		{[][]byte{decodetest.Relation(outboxTable), begin(5)}, full},
	} {
		for n := range test.whole {
			a := decode.NewAssembler()
			if _, err := feed(a, test.before...); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Next(1, test.whole[:n:n]); err == nil {
				t.Errorf("%d of %d bytes of %q were accepted", n, len(test.whole), test.whole[0])
			}
		}
	}
}

// A length that a message merely claims costs no memory.
func TestClaimedLengthsCostNothing(t *testing.T) {
	const limit = 16 << 10
	relation := decodetest.Relation(outboxTable)
	for name, message := range map[string][]byte{
		"columns of a relation": replace(replace(decodetest.Relation(decode.Relation{ID: 1}), 8, 0xff), 9, 0xff),
		"bytes of a value":      append(replace(threeNulls()[:9], 8, 't'), 0x7f, 0xff, 0xff, 0xff),
		"columns of a row":      append(row()[:6], 0xff, 0xff),
	} {
		a := decode.NewAssembler()
		if _, err := feed(a, relation, begin(5)); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := a.Next(1, message)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > limit {
			t.Errorf("%s: %d bytes allocated for a message of %d", name, grown, len(message))
		}
	}
}

func ExampleAssembler() {
	a := decode.NewAssembler()
	for _, message := range [][]byte{
		decodetest.Begin(decode.Begin{CommitLSN: 0x16B3748, XID: 733}),
		decodetest.Relation(decode.Relation{ID: 1, Namespace: "public", Name: "outbox", Columns: []decode.Column{{Name: "payload"}}}),
		decodetest.Insert(1, decodetest.Text("hello")),
		decodetest.Commit(decode.Commit{CommitLSN: 0x16B3748, EndLSN: 0x16B3778}),
	} {
		step, err := a.Next(0, message)
		switch {
		case err != nil:
			fmt.Println(err)
		case step == decode.StepBegin:
			fmt.Println("begin", a.Begin.XID)
		case step == decode.StepRow:
			fmt.Printf("row %s of %s.%s: %s\n", a.Row.Position, a.Row.Relation.Namespace, a.Row.Relation.Name, a.Row.Values[0].Data)
		case step == decode.StepCommit:
			fmt.Println("commit, safe to confirm once acknowledged:", a.Commit.EndLSN)
		}
	}
	// Output:
	// begin 733
	// row 0/16B3748#1 of public.outbox: hello
	// commit, safe to confirm once acknowledged: 0/16B3778
}

// TestAssemblerNamesTypes: what the stream says of a type holds for the layouts
// that follow, until it says otherwise.
func TestAssemblerNamesTypes(t *testing.T) {
	a := decode.NewAssembler()
	relation := outboxTable
	relation.Columns = []decode.Column{{Name: "id", TypeOID: 20, TypeMod: -1}, {Name: "payload", TypeOID: 0x4001, TypeMod: -1}}
	insert := row(decodetest.Null(), decodetest.Null())
	for _, c := range []struct{ message, schema, name string }{
		{"Y\x00\x00\x40\x01\x00bytea\x00", "", "bytea"},
		{"Y\x00\x00\x40\x02public\x00other\x00", "", "bytea"},
		{"Y\x00\x00\x40\x01public\x00hstore\x00", "public", "hstore"},
	} {
		if _, err := feed(a, []byte(c.message), decodetest.Relation(relation)); err != nil {
			t.Fatal(err)
		}
		if !a.Open() {
			if _, err := feed(a, begin(5)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := feed(a, insert); err != nil {
			t.Fatal(err)
		}
		id, payload := a.Row.Relation.Columns[0], a.Row.Relation.Columns[1]
		if id.TypeName != "" || payload.TypeSchema != c.schema || payload.TypeName != c.name {
			t.Errorf("after %q: %+v, %+v", c.message, id, payload)
		}
	}
	for _, bad := range []string{"Y", "Y\x00\x00\x40\x01", "Y\x00\x00\x40\x01\x00bytea", "Y\x00\x00\x40\x01\x00bytea\x00more"} {
		if _, err := feed(a, []byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
