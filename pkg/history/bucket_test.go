package history

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bucket of one table, with ids from least to greatest.
func bucket(system string, from, to pglogrepl.LSN, least, greatest int64, at time.Time) Bucket {
	b := Bucket{Pipeline: "app.events", SystemID: system, Timeline: 1, Database: "app", From: from, To: to}
	b.Commit(from+1, at)
	b.Add(&Row{Table: "public.outbox", ID: least, Numbered: true, Bytes: 10})
	b.Commit(to-1, at.Add(time.Second))
	b.Add(&Row{Table: "public.outbox", ID: greatest, Numbered: true, Bytes: 10})
	return b
}

func TestBucketComesBackAsItWasWritten(t *testing.T) {
	b := bucket("7", 0x1_00000010, 0x1_00000090, -3, 9_007_199_254_740_993, noon)
	b.Add(&Row{Table: "public.other", Created: noon.Add(-time.Hour), Timed: true, Bytes: 7})
	b.Version = "v1"
	value, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(value)
	if err != nil || !reflect.DeepEqual(got, b) {
		t.Fatalf("%v\nwrote %+v\nread  %+v\n%s", err, b, got, value)
	}
	open := &Open{From: b.From, Tally: b.Tally}
	text, err := json.Marshal(open)
	if err != nil {
		t.Fatal(err)
	}
	var back Open
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, open) {
		t.Fatalf("%v\nwrote %+v\nread  %+v\n%s", err, open, &back, text)
	}
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	good := bucket("7", 0x10, 0x90, 1, 2, noon)
	value, _ := good.Encode()
	for _, c := range []struct{ name, old, with, want string }{
		{"newer", `"format":1`, `"format":2`, "newer format"},
		{"none", `"format":1`, `"form":1`, "no history of walstream"},
		{"lsn", `"to":"0/90"`, `"to":"0/90 "`, `to "0/90 "`},
		{"empty", `"to":"0/90"`, `"to":"0/10"`, "ends at 0/10"},
		{"rows", `"rows":2,"bytes"`, `"rows":3,"bytes"`, "3 rows, and 2"},
		{"ids", `"least_id":1`, `"least_id":5`, "contradicts itself"},
		{"not json", `{`, `[`, "decode history"},
	} {
		changed := strings.Replace(string(value), c.old, c.with, 1)
		if changed == string(value) {
			t.Fatalf("%s: %s has no %s", c.name, value, c.old)
		}
		if _, err := Decode([]byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := Decode([]byte(strings.Replace(string(value), `"format":1`, `"format":2`, 1))); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer format is no ErrNewerFormat: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	b := bucket("7", 0x10, 0x90, 1, 2, noon)
	value, _ := b.Encode()
	f.Add(value)
	f.Add([]byte(`{"format":1,"from":"0/1","to":"0/2","rows":0,"bytes":0}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		b, err := Decode(value)
		if err != nil {
			return
		}
		again, err := b.Encode()
		if err != nil {
			t.Skip(err) // a time that JSON cannot write
		}
		if c, err := Decode(again); err != nil || !reflect.DeepEqual(b.Tables, c.Tables) || b.From != c.From || b.To != c.To {
			t.Fatalf("%v: %+v came back as %+v", err, b, c)
		}
	})
}
