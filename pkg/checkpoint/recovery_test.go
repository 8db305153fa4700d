package checkpoint

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

var recoverable = Record{
	Pipeline: "p", SystemID: "1", Timeline: 1, Database: "d", Slot: "s", Phase: PhaseStream,
	Covered: 1000, CommitLSN: 990, XID: 7, CommitTime: time.Unix(100_000, 0).UTC(), Complete: true,
}

// What is in doubt follows from how the server's history fits the checkpoint.
func TestRecover(t *testing.T) {
	same := Server{SystemID: "1", Timeline: 1, Database: "d", Flushed: 2000}
	hour := recoverable.CommitTime.Add(-time.Hour)
	for name, c := range map[string]struct {
		record func(*Record)
		server func(*Server)
		all    bool
		want   Recovery
	}{
		"same history":        {want: Recovery{Since: hour, CommitTime: recoverable.CommitTime, XID: 7, Base: 1000}},
		"all rows":            {all: true, want: Recovery{Base: 1000}},
		"no commit published": {record: func(r *Record) { r.CommitTime = time.Time{} }, want: Recovery{Base: 1000}},
		"split":               {record: func(r *Record) { r.Ordinal = 3; r.CommitLSN = 1100 }, want: Recovery{Since: hour, CommitTime: recoverable.CommitTime, XID: 7, Base: 1101}},
		"a lost tail": {
			server: func(s *Server) { s.Timeline, s.SwitchPoint = 2, 900 },
			want:   Recovery{Since: hour, CommitTime: recoverable.CommitTime, Forked: true, Timeline: 1, Lost: 900, Base: 900},
		},
		"promoted with everything": {
			server: func(s *Server) { s.Timeline, s.SwitchPoint = 2, 1000 },
			want:   Recovery{Since: hour, CommitTime: recoverable.CommitTime, XID: 7, Base: 1000},
		},
		"unknown timeline": {server: func(s *Server) { s.Timeline, s.SwitchUnknown = 2, true }, want: Recovery{Since: hour, CommitTime: recoverable.CommitTime, Forked: true, Base: 1000}},
		"restored":         {server: func(s *Server) { s.Flushed = 500 }, want: Recovery{Since: hour, CommitTime: recoverable.CommitTime, Forked: true, Base: 1000}},
		"another server":   {server: func(s *Server) { s.SystemID = "2" }, want: Recovery{Since: hour, CommitTime: recoverable.CommitTime, Forked: true, Base: 1000}},
		"begun before": {
			record: func(r *Record) {
				*r = r.With(Edge{Page: &Page{From: 1500, Number: 3, Recovery: &Recovery{Since: hour, XID: 6, Base: 800, Read: 9, Found: 4, Left: 1}}})
			},
			server: func(s *Server) { s.Flushed = 100 }, want: Recovery{Since: hour, XID: 6, Base: 800},
		},
	} {
		t.Run(name, func(t *testing.T) {
			record, server := recoverable, same
			if c.record != nil {
				c.record(&record)
			}
			if c.server != nil {
				c.server(&server)
			}
			got := record.Recover(server, time.Hour, c.all)
			got.Earlier, got.Topics = nil, nil
			if got.Since != c.want.Since || got.CommitTime != c.want.CommitTime || got.XID != c.want.XID || got.Forked != c.want.Forked ||
				got.Timeline != c.want.Timeline || got.Lost != c.want.Lost || got.Base != c.want.Base || got.Read+got.Found+got.Left != 0 {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// The pages of a recovery have LSNs between what was published and the new slot,
// where there is room.
func TestRecoveryBase(t *testing.T) {
	for _, c := range []struct {
		base, from pglogrepl.LSN
		rows       uint64
		want       pglogrepl.LSN
	}{{1000, 2000, 10, 1000}, {1000, 2000, 500, 0}, {1000, 1000, 0, 0}, {2000, 1000, 0, 0}, {1000, 0, 0, 0}} {
		k := Recovery{Base: c.base, Expected: c.rows}
		if got := k.Begin(c.from).Page.Recovery.Base; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A recovery without its slot is refused by a start; with it, it goes on from where
// that stands, and nobody calls it a gap. Its phase comes back from the topic as it was.
func TestCompareUnmadeRecovery(t *testing.T) {
	unmade := recoverable.With(Edge{Page: &Page{Recovery: &Recovery{Base: 1000, XID: 7, Earlier: []string{"q"}}}})
	value, err := unmade.Encode()
	if err != nil {
		t.Fatal(err)
	}
	record, err := DecodeRecord(value)
	if err != nil || record.Phase != PhaseRecover || !record.Unmade() || record.Snapshot.Recovery.Base != 1000 || record.Snapshot.Recovery.Earlier[0] != "q" {
		t.Fatalf("%+v: %v", record, err)
	}
	server := Server{SystemID: "1", Timeline: 1, Database: "d", Flushed: 2000}
	_, err = Compare(&record, Slot{}, server, "s", Accept{})
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || refusal.Kind != RefuseNoSlot || !strings.Contains(refusal.Remedy, "walstream recover --slot s --pipeline p") {
		t.Errorf("%v", err)
	}
	d, err := Compare(&record, Slot{Exists: true, Confirmed: 1500}, server, "s", Accept{})
	if err != nil || d.Start.Page == nil || d.Start.Page.From != 1500 || d.Start.Covered != 1500 || d.Accepted == "" || d.Start.Page.Recovery.Base != 1000 {
		t.Errorf("%+v: %v", d, err)
	}
}

// What stops a start does not stop a recovery that compares it with the topics.
func TestCompareForARecovery(t *testing.T) {
	server := Server{SystemID: "1", Timeline: 1, Database: "d", Flushed: 2000, Rows: "new"}
	slot := Slot{Exists: true, Confirmed: 1200}
	changed := recoverable
	changed.OptionsHash = "old"
	if _, err := Compare(&changed, slot, server, "s", Accept{}); err == nil {
		t.Error("a gap was not refused")
	}
	d, err := Compare(&changed, slot, server, "s", Accept{Recover: true})
	if err != nil || d.Start.Covered != 1200 {
		t.Errorf("%+v: %v", d, err)
	}
	server.Timeline, server.SwitchPoint = 2, 900
	slot.Confirmed = 800
	d, err = Compare(&recoverable, slot, server, "s", Accept{Recover: true})
	if err != nil || d.Start.Covered != 900 {
		t.Errorf("%+v: %v", d, err)
	}
}
