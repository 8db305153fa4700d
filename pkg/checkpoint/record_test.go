package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden records anew")

var setupRecord = Record{
	Pipeline: "bank.outbox_slot", SystemID: "7449857623847562387", Timeline: 3, Database: "bank",
	Slot: "outbox_slot", Publication: "outbox_pub", Delivery: "at-least-once", Phase: PhaseSetup, Version: "1.2.3",
}

var streamRecord = setupRecord.With(Edge{
	Covered: 0x16_000B3748, CommitLSN: 0x16_000B3710, XID: 733,
	CommitTime: time.Date(2026, 11, 30, 12, 34, 56, 789_012_000, time.FixedZone("", 3600)),
})

var snapshotRecord = setupRecord.With(Edge{Covered: 2*731 + 1, Page: &Page{
	From: 0x16_000B3748, Number: 731, Table: "public.outbox", After: []string{"187136", "é"}, Rows: 187_100, Where: "published_at IS NULL",
}})

// The record as it lies in Kafka. A change here is a change of format: releases
// beside this one read and write it.
func TestRecordGolden(t *testing.T) {
	for path, record := range map[string]Record{
		"testdata/record-setup.json":  setupRecord,
		"testdata/record-stream.json": streamRecord,

		"testdata/record-snapshot.json": snapshotRecord,
	} {
		encoded, err := record.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Indent(&got, encoded, "", "  "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: encoded\n%s\nwant\n%s", path, got.Bytes(), want)
		}
		decoded, err := DecodeRecord(want)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		requireRecord(t, decoded, record)
	}
}

func requireRecord(t interface {
	Helper()
	Errorf(string, ...any)
}, got, want Record,
) {
	t.Helper()
	want.Format = FormatVersion
	if !got.CommitTime.Equal(want.CommitTime) {
		t.Errorf("commit time %v, want %v", got.CommitTime, want.CommitTime)
	}
	if got.CommitTime, want.CommitTime = (time.Time{}), (time.Time{}); !reflect.DeepEqual(got, want) {
		t.Errorf("decoded\n%+v\nwant\n%+v", got, want)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return rapid.String().Draw(t, name) }
		want := Record{
			Pipeline: text("pipeline"), SystemID: text("system"), Timeline: rapid.Uint32().Draw(t, "timeline"),
			Database: text("database"), Slot: text("slot"), Publication: text("publication"), Delivery: text("delivery"),
			Phase:   rapid.SampledFrom([]Phase{PhaseSetup, PhaseStream}).Draw(t, "phase"),
			Covered: pglogrepl.LSN(rapid.Uint64().Draw(t, "covered")), CommitLSN: pglogrepl.LSN(rapid.Uint64().Draw(t, "commit")),
			Ordinal: rapid.Uint32().Draw(t, "ordinal"), Complete: rapid.Bool().Draw(t, "complete"), XID: rapid.Uint32().Draw(t, "xid"),
			CommitTime:  time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")),
			OptionsHash: text("hash"), Version: text("version"),
		}
		value, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(value)
		if err != nil {
			t.Fatalf("%v in %s", err, value)
		}
		requireRecord(t, got, want)
		if got.Edge().Covered != want.Covered || got.Edge().CommitLSN != want.CommitLSN || got.Edge().XID != want.XID {
			t.Errorf("edge %+v", got.Edge())
		}
	})
}

func TestRecordWith(t *testing.T) {
	record := setupRecord
	record.Ordinal, record.Complete = 7, false
	edge := edgeAt(0x500)
	moved := record.With(edge)
	if moved.Edge() != edge || moved.Phase != PhaseStream || moved.Ordinal != 0 || !moved.Complete {
		t.Errorf("moved %+v", moved)
	}
	if record.Phase != PhaseSetup || record.Covered != 0 {
		t.Errorf("the record itself changed: %+v", record)
	}
}

// While a snapshot is published, the edge's LSNs count pages: none of them may get
// into the record, and the last edge is that of a stream that begins.
func TestRecordWithPage(t *testing.T) {
	if snapshotRecord.Phase != PhaseSnapshot || snapshotRecord.Covered != 0x16_000B3748 || snapshotRecord.CommitLSN != 0 || snapshotRecord.XID != 0 {
		t.Errorf("%+v", snapshotRecord)
	}
	over := snapshotRecord.With(Edge{Covered: 0x16_000B3748, CommitLSN: 0x16_000B3747})
	if over.Phase != PhaseStream || over.Snapshot != nil || over.Covered != 0x16_000B3748 {
		t.Errorf("%+v", over)
	}
}

func TestDecodeRecordRefuses(t *testing.T) {
	const whole = `{"format":1,"covered":"0/10","commit_lsn":"0/8"}`
	if _, err := DecodeRecord([]byte(whole)); err != nil {
		t.Fatalf("the record that the others are made from: %v", err)
	}
	for name, test := range map[string]struct{ value, says string }{
		"empty":                  {``, "decode checkpoint"},
		"not JSON":               {`walstream`, "decode checkpoint"},
		"JSON, not an object":    {`[1]`, "decode checkpoint"},
		"cut short":              {whole[:len(whole)-1], "decode checkpoint"},
		"two records":            {whole + whole, "decode checkpoint"},
		"no format":              {`{"covered":"0/10","commit_lsn":"0/8"}`, "format 0"},
		"negative format":        {`{"format":-1,"covered":"0/10","commit_lsn":"0/8"}`, "format -1"},
		"no covered":             {`{"format":1,"commit_lsn":"0/8"}`, `covered ""`},
		"covered is no LSN":      {`{"format":1,"covered":"16","commit_lsn":"0/8"}`, `covered "16"`},
		"commit_lsn is no LSN":   {`{"format":1,"covered":"0/10","commit_lsn":"-"}`, `commit_lsn "-"`},
		"LSN with more":          {`{"format":1,"covered":"0/10x","commit_lsn":"0/8"}`, `covered "0/10x"`},
		"LSN beyond 64 bits":     {`{"format":1,"covered":"1FFFFFFFF/0","commit_lsn":"0/8"}`, `covered "1FFFFFFFF/0"`},
		"lower half too large":   {`{"format":1,"covered":"0/1FFFFFFFF","commit_lsn":"0/8"}`, `covered "0/1FFFFFFFF"`},
		"ordinal out of range":   {`{"format":1,"covered":"0/10","commit_lsn":"0/8","ordinal":4294967296}`, "ordinal"},
		"another phase":          {`{"format":1,"covered":"0/10","commit_lsn":"0/8","phase":"merge"}`, `phase "merge"`},
		"no page":                {`{"format":1,"covered":"0/10","commit_lsn":"0/8","phase":"snapshot"}`, "does not agree"},
		"a page in the stream":   {`{"format":1,"covered":"0/10","commit_lsn":"0/8","phase":"stream","snapshot":{"page":1}}`, "does not agree"},
		"commit time is no time": {`{"format":1,"covered":"0/10","commit_lsn":"0/8","commit_time":"noon"}`, "noon"},
	} {
		if record, err := DecodeRecord([]byte(test.value)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %+v, error %v; want one that says %q", name, record, err, test.says)
		}
	}
}

// A newer format is refused before anything else of it is looked at, and the
// message names the release to go back to. Fields added within a format are not
// in the way.
func TestDecodeRecordOfOtherReleases(t *testing.T) {
	_, err := DecodeRecord([]byte(`{"format":2,"covered":{"lanes":[]},"walstream_version":"9.8.7"}`))
	if !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), `format 2 by walstream "9.8.7"`) {
		t.Errorf("error %v", err)
	}
	record, err := DecodeRecord([]byte(`{"format":1,"covered":"1/10","commit_lsn":"0/8","added_later":{"x":1}}`))
	if err != nil || record.Covered != 0x1_00000010 {
		t.Errorf("%+v, error %v", record, err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, path := range []string{"testdata/record-setup.json", "testdata/record-snapshot.json", "testdata/record-stream.json"} {
		golden, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(golden)
	}
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"covered":"1/1","commit_lsn":"FFFFFFFF/FFFFFFFF","commit_time":"9999-12-31T23:59:59.999999-23:00"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		record, err := DecodeRecord(value)
		if err != nil {
			return
		}
		again, err := record.Encode()
		if err != nil {
			return // a commit time that UTC moves beyond the year 9999
		}
		back, err := DecodeRecord(again)
		if err != nil {
			t.Fatalf("%v in %s", err, again)
		}
		requireRecord(t, back, record)
	})
}
