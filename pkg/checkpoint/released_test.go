package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// released are records as they lie in Kafka, byte for byte, of each format that ever
// went out, in testdata/released/<format>/<name>.json. Nothing writes them anew: a
// format that changes gets a number, a directory, and a table of its own here.
var released = map[int]map[string]Record{1: {
	"setup":    releasedRecord("exactly-once", Edge{}, PhaseSetup),
	"snapshot": releasedRecord("exactly-once", Edge{Page: &Page{From: 0x1_50000028, Number: 3, Table: "public.outbox", After: []string{"3000"}, Rows: 3000, Where: "id > 7"}}, PhaseSnapshot),
	"stream":   releasedRecord("exactly-once", Edge{Covered: 0x1_500003C0, CommitLSN: 0x1_50000390, XID: 733, CommitTime: releasedTime}, PhaseStream),
	"idle":     releasedRecord("at-least-once", Edge{Covered: 0x1_60000028, CommitLSN: 0x1_50000390, XID: 733, CommitTime: releasedTime}, PhaseStream),
	"split":    releasedRecord("exactly-once", Edge{Covered: 0x1_500003C0, CommitLSN: 0x1_58000000, XID: 734, CommitTime: releasedTime, Ordinal: 150_000}, PhaseStream),
	// After --accept-lost-tail: a position without a transaction that proves it.
	"lost-tail": releasedRecord("exactly-once", Edge{Covered: 0x1_4FFFFFF8, CommitLSN: 0x1_500003C0}, PhaseStream),
}}

var releasedTime = time.Date(2026, 11, 30, 11, 34, 56, 789_012_000, time.UTC)

func releasedRecord(delivery string, edge Edge, phase Phase) Record {
	r := Record{
		Pipeline: "bank.bank_outbox_slot", SystemID: "7449857623847562387", Timeline: 3, Database: "bank", Slot: "bank_outbox_slot",
		Publication: "bank_outbox_pub", Delivery: delivery, Phase: PhaseSetup, OptionsHash: "9d5ed678fe57bcca", Version: "v0.1.0",
	}
	if phase != PhaseSetup {
		r = r.With(edge)
	}
	return r
}

// Every record of a format that is to be read is read as what it meant, and can be
// written on from there. This format and the one before have to be; those further
// back are as long as they stand here.
func TestReleasedFormats(t *testing.T) {
	for _, format := range []int{FormatVersion - 1, FormatVersion} {
		if format > 0 && len(released[format]) == 0 {
			t.Errorf("there are no records of format %d", format)
		}
	}
	files := 0
	for format, records := range released {
		for name, want := range records {
			files++
			value, err := os.ReadFile(filepath.Join("testdata", "released", fmt.Sprint(format), name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeRecord(value)
			if err != nil {
				t.Errorf("format %d, %s: %v", format, name, err)
				continue
			}
			if got.Format != format {
				t.Errorf("format %d, %s says that it is of format %d", format, name, got.Format)
			}
			got.Format = FormatVersion // requireRecord's
			requireRecord(t, got, want)
			again, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := DecodeRecord(again); err != nil {
				t.Errorf("format %d, %s, written anew: %v", format, name, err)
			} else {
				requireRecord(t, back, want)
			}
		}
	}
	if found, err := filepath.Glob("testdata/released/*/*.json"); err != nil || len(found) != files {
		t.Errorf("%d files, %d of them are looked at, error %v", len(found), files, err)
	}
}
