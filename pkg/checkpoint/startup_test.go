package checkpoint

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

const mib = 1 << 20

// streaming is a checkpoint at 0/A00000 (10 MiB) of a pipeline at work.
func streaming() *Record {
	return &Record{
		Pipeline: "bank.outbox", SystemID: "7001", Timeline: 3, Database: "bank", Slot: "outbox_slot",
		Phase: PhaseStream, Covered: 10 * mib, CommitLSN: 10*mib - 48, XID: 733, CommitTime: epoch, Complete: true,
	}
}

func settingUp() *Record {
	r := streaming()
	r.Phase, r.Covered, r.CommitLSN, r.XID, r.Complete = PhaseSetup, 0, 0, 0, false
	return r
}

// situation is what a start finds.
type situation struct {
	record *Record
	slot   Slot
	server Server
}

// healthy is the checkpoint a little ahead of the slot, as every crash leaves it.
func healthy() situation {
	return situation{
		record: streaming(),
		slot:   Slot{Exists: true, Confirmed: 9 * mib},
		server: Server{SystemID: "7001", Timeline: 3, Database: "bank", Flushed: 20 * mib},
	}
}

func (s situation) compare(accept Accept) (Decision, error) {
	return Compare(s.record, s.slot, s.server, "outbox_slot", accept)
}

// moved: the server went on from the checkpoint's on another timeline.
func (s situation) moved() bool {
	return s.record != nil && s.record.SystemID == s.server.SystemID && s.record.Timeline != s.server.Timeline
}

func with(change func(*situation)) situation {
	s := healthy()
	change(&s)
	return s
}

func TestCompareStarts(t *testing.T) {
	edge := streaming().Edge()
	for name, test := range map[string]struct {
		situation
		want Decision
	}{
		"nothing anywhere":              {with(func(s *situation) { s.record, s.slot = nil, Slot{} }), Decision{Verdict: Fresh}},
		"checkpoint ahead of slot":      {healthy(), Decision{Verdict: Continue, Start: edge}},
		"checkpoint and slot are level": {with(func(s *situation) { s.slot.Confirmed = 10 * mib }), Decision{Verdict: Continue, Start: edge}},
		"checkpoint at the WAL's end":   {with(func(s *situation) { s.server.Flushed = 10 * mib }), Decision{Verdict: Continue, Start: edge}},
		"promoted behind the checkpoint": {
			with(func(s *situation) { s.server.Timeline, s.server.SwitchPoint = 4, 10*mib }), Decision{Verdict: Continue, Start: edge, Moved: true},
		},
		"promoted far behind it": {
			with(func(s *situation) { s.server.Timeline, s.server.SwitchPoint = 5, 15*mib }), Decision{Verdict: Continue, Start: edge, Moved: true},
		},
		"promoted before an idle position, behind all that was published": {
			with(func(s *situation) {
				s.record.CommitLSN = 6 * mib
				s.server.Timeline, s.server.SwitchPoint, s.slot.Confirmed, s.server.Flushed = 4, 7*mib, 6*mib, 8*mib
			}),
			Decision{Verdict: Continue, Start: Edge{Covered: 7 * mib, CommitLSN: 6 * mib, XID: 733, CommitTime: epoch}, Moved: true},
		},
		"promoted under the stream from a standby server": {
			with(func(s *situation) {
				s.record.InRecovery = true
				s.server.Timeline, s.server.SwitchPoint = 4, 7*mib
			}),
			Decision{Verdict: Continue, Start: edge, Moved: true},
		},
		"promoted behind a transaction that was published in part": {
			with(func(s *situation) {
				s.record.CommitLSN, s.record.Ordinal, s.record.Complete = 12*mib, 500, false
				s.server.Timeline, s.server.SwitchPoint = 4, 12*mib+48
			}),
			Decision{Verdict: Continue, Start: Edge{Covered: 10 * mib, CommitLSN: 12 * mib, XID: 733, CommitTime: epoch, Ordinal: 500}, Moved: true},
		},
		"set-up cut short before the slot": {
			with(func(s *situation) { s.record, s.slot = settingUp(), Slot{} }), Decision{Verdict: Fresh},
		},
		"set-up cut short after the slot": {
			with(func(s *situation) { s.record = settingUp() }), Decision{Verdict: Continue, Start: Edge{Covered: 9 * mib}},
		},
		"set-up on a server promoted since": {
			with(func(s *situation) { s.record, s.server.Timeline, s.server.SwitchUnknown = settingUp(), 9, true }),
			Decision{Verdict: Continue, Start: Edge{Covered: 9 * mib}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.compare(Accept{})
			if err != nil || got != test.want {
				t.Errorf("%+v, error %v; want %+v", got, err, test.want)
			}
		})
	}
}

// refusals are all that Compare stops on: what it says, and what lets it go on.
var refusals = []struct {
	name string
	situation
	kind   RefusalKind
	found  []string // the gap and its ends
	remedy []string
	accept *Accept // the answer that fits; nil: there is none
	start  Edge    // where it then starts
	says   string  // Accepted
}{
	{
		name:      "another slot",
		situation: with(func(s *situation) { s.record.Slot = "other_slot" }),
		kind:      RefuseOtherPipeline, found: []string{`pipeline "bank.outbox"`, `slot "other_slot"`, `not for slot "outbox_slot"`},
		remedy: []string{"--pipeline"},
	},
	{
		name:      "another database",
		situation: with(func(s *situation) { s.server.Database = "shop" }),
		kind:      RefuseOtherPipeline, found: []string{`database "bank"`, `of database "shop"`}, remedy: []string{"--pipeline"},
	},
	{
		name:      "another server",
		situation: with(func(s *situation) { s.server.SystemID = "7002" }),
		kind:      RefuseOtherServer, found: []string{"7001", "7002"}, remedy: []string{"--accept-server=7002"},
		accept: &Accept{Server: "7002"}, start: Edge{Covered: 9 * mib}, says: "accept-server=7002",
	},
	{
		name: "another server, whose slot stepped on in pg_upgrade",
		situation: with(func(s *situation) {
			s.server.SystemID, s.server.Timeline, s.server.SwitchUnknown, s.slot.Confirmed = "7002", 1, true, 12*mib
		}),
		kind: RefuseOtherServer, found: []string{"7001", "7002"}, remedy: []string{"--accept-server=7002"},
		accept: &Accept{Server: "7002"}, start: Edge{Covered: 12 * mib}, says: "accept-server=7002",
	},
	{
		name: "another server, whose LSNs are lower",
		situation: with(func(s *situation) {
			s.server.SystemID, s.server.Flushed, s.slot.Confirmed = "7002", 2*mib, 1*mib
		}),
		kind: RefuseOtherServer, found: []string{"7001", "7002"}, remedy: []string{"--accept-server=7002"},
		accept: &Accept{Server: "7002"}, start: Edge{Covered: 1 * mib}, says: "accept-server=7002",
	},
	{
		name:      "another server in set-up",
		situation: with(func(s *situation) { s.record, s.server.SystemID = settingUp(), "7002" }),
		kind:      RefuseOtherServer, found: []string{"7001", "7002"}, remedy: []string{"--accept-server=7002"},
		accept: &Accept{Server: "7002"}, start: Edge{Covered: 9 * mib}, says: "accept-server=7002",
	},
	{
		name:      "a slot without checkpoint",
		situation: with(func(s *situation) { s.record = nil }),
		kind:      RefuseNoCheckpoint, found: []string{`slot "outbox_slot" exists at 0/900000`}, remedy: []string{"--adopt-slot=0/900000", "drop the slot"},
		accept: &Accept{AdoptSlot: 9 * mib}, start: Edge{Covered: 9 * mib}, says: "adopt-slot=0/900000",
	},
	{
		name:      "an invalidated slot without checkpoint",
		situation: with(func(s *situation) { s.record, s.slot.Invalidated = nil, "wal_removed" }),
		kind:      RefuseSlotLost, found: []string{"wal_removed", "no checkpoint"}, remedy: []string{"pg_drop_replication_slot('outbox_slot')"},
	},
	{
		name:      "an invalidated slot in set-up",
		situation: with(func(s *situation) { s.record, s.slot.Invalidated = settingUp(), "idle_timeout" }),
		kind:      RefuseSlotLost, found: []string{"idle_timeout", "before anything was published"}, remedy: []string{"pg_drop_replication_slot('outbox_slot')"},
	},
	{
		name:      "a checkpoint without slot",
		situation: with(func(s *situation) { s.slot = Slot{} }),
		kind:      RefuseNoSlot, found: []string{"checkpoint stands at 0/A00000", "last commit 0/9FFFD0", `slot "outbox_slot" does not exist`},
		remedy: []string{"from the outbox table", "--pipeline", "new slot"},
	},
	{
		name:      "an invalidated slot",
		situation: with(func(s *situation) { s.slot.Invalidated = "wal_removed" }),
		kind:      RefuseSlotLost, found: []string{"wal_removed", "checkpoint at 0/A00000", "last confirmed at 0/900000"},
		remedy: []string{"from the outbox table", "--pipeline", "new slot"},
	},
	{
		name:      "a slot ahead",
		situation: with(func(s *situation) { s.slot.Confirmed = 13 * mib }),
		kind:      RefuseGap, found: []string{"is at 0/D00000", "checkpoint at 0/A00000", "3.0 MiB"}, remedy: []string{"--accept-gap=0/A00000..0/D00000"},
		accept: &Accept{GapFrom: 10 * mib, GapTo: 13 * mib}, start: Edge{Covered: 13 * mib}, says: "accept-gap=0/A00000..0/D00000",
	},
	{
		name:      "a slot ahead by one byte",
		situation: with(func(s *situation) { s.slot.Confirmed = 10*mib + 1 }),
		kind:      RefuseGap, found: []string{"0/A00001", "0/A00000", "1 B"}, remedy: []string{"--accept-gap=0/A00000..0/A00001"},
		accept: &Accept{GapFrom: 10 * mib, GapTo: 10*mib + 1}, start: Edge{Covered: 10*mib + 1}, says: "accept-gap=0/A00000..0/A00001",
	},
	{
		name:      "a server restored from an older state",
		situation: with(func(s *situation) { s.server.Flushed = 10*mib - 2048; s.slot.Confirmed = 8 * mib }),
		kind:      RefuseRestored, found: []string{"checkpoint stands at 0/A00000", "WAL ends at 0/9FF800", "2.0 KiB"}, remedy: []string{"--pipeline"},
	},
	{
		name: "a promotion that lost the tail",
		situation: with(func(s *situation) {
			s.server.Timeline, s.server.SwitchPoint, s.slot.Confirmed = 4, 7*mib, 6*mib
		}),
		kind: RefuseTimeline, found: []string{"left timeline 3 at 0/700000", "checkpoint at 0/A00000", "3.0 MiB"},
		remedy: []string{"--accept-lost-tail=0/700000"},
		accept: &Accept{LostTail: 7 * mib}, start: Edge{Covered: 7 * mib, CommitLSN: 7 * mib}, says: "accept-lost-tail=0/700000",
	},
	{
		name: "a promotion that lost the tail, and WAL that ends before the checkpoint",
		situation: with(func(s *situation) {
			s.server.Timeline, s.server.SwitchPoint, s.server.Flushed, s.slot.Confirmed = 4, 7*mib, 8*mib, 7*mib
		}),
		kind: RefuseTimeline, found: []string{"0/700000", "0/A00000"}, remedy: []string{"--accept-lost-tail=0/700000"},
		accept: &Accept{LostTail: 7 * mib}, start: Edge{Covered: 7 * mib, CommitLSN: 7 * mib}, says: "accept-lost-tail=0/700000",
	},
	{
		name: "a standby promoted inside the part of a transaction that was published",
		situation: with(func(s *situation) {
			s.record.CommitLSN, s.record.Ordinal, s.record.Complete = 12*mib, 500, false
			s.server.Timeline, s.server.SwitchPoint = 4, 11*mib
		}),
		kind: RefuseTimeline, found: []string{"left timeline 3 at 0/B00000", "0/C00001", "1.0 MiB"}, remedy: []string{"tell the consumers", "--accept-lost-tail=0/B00000"},
		accept: &Accept{LostTail: 11 * mib}, start: Edge{Covered: 11 * mib, CommitLSN: 11 * mib}, says: "accept-lost-tail=0/B00000",
	},
	{
		name: "a server restored to before a transaction that was published in part",
		situation: with(func(s *situation) {
			s.record.CommitLSN, s.record.Ordinal, s.record.Complete = 12*mib, 500, false
			s.server.Flushed = 12 * mib
		}),
		kind: RefuseRestored, found: []string{"0/C00001", "WAL ends at 0/C00000"}, remedy: []string{"--pipeline"},
	},
	{
		name: "a slot moved up to a transaction that was published in part",
		situation: with(func(s *situation) {
			s.record.CommitLSN, s.record.Ordinal, s.record.Complete = 12*mib, 500, false
			s.slot.Confirmed = 12 * mib
		}),
		kind: RefuseGap, found: []string{"0/C00000", "0/A00000"}, remedy: []string{"--accept-gap=0/A00000..0/C00000"},
		accept: &Accept{GapFrom: 10 * mib, GapTo: 12 * mib}, says: "accept-gap=0/A00000..0/C00000",
		start: Edge{Covered: 12 * mib, CommitLSN: 12 * mib, XID: 733, CommitTime: epoch, Ordinal: 500},
	},
	{
		name: "a slot moved beyond a transaction that was published in part",
		situation: with(func(s *situation) {
			s.record.CommitLSN, s.record.Ordinal, s.record.Complete = 12*mib, 500, false
			s.slot.Confirmed = 12*mib + 1
		}),
		kind: RefuseGap, found: []string{"0/C00001", "0/A00000"}, remedy: []string{"--accept-gap=0/A00000..0/C00001"},
		accept: &Accept{GapFrom: 10 * mib, GapTo: 12*mib + 1}, says: "accept-gap=0/A00000..0/C00001",
		start: Edge{Covered: 12*mib + 1},
	},
	{
		name:      "a timeline nobody knows",
		situation: with(func(s *situation) { s.server.Timeline, s.server.SwitchUnknown = 4, true }),
		kind:      RefuseTimeline, found: []string{"timeline 3", "timeline 4"}, remedy: []string{"connect to the server of the checkpoint"},
	},
	{
		name:      "an old primary that is back",
		situation: with(func(s *situation) { s.server.Timeline, s.server.SwitchUnknown = 2, true }),
		kind:      RefuseOldPrimary, found: []string{"timeline 3 at 0/A00000", "on timeline 2"}, remedy: []string{"stop it", "address"},
	},
	{
		name:      "an old primary that is back, without the slot",
		situation: with(func(s *situation) { s.server.Timeline, s.server.SwitchUnknown, s.slot = 2, true, Slot{} }),
		kind:      RefuseOldPrimary, found: []string{"on timeline 2"}, remedy: []string{"stop it"},
	},
	{
		name: "a promotion that lost nothing published, and a slot beyond it",
		situation: with(func(s *situation) {
			s.record.CommitLSN = 6 * mib
			s.server.Timeline, s.server.SwitchPoint, s.slot.Confirmed = 4, 7*mib, 8*mib
		}),
		kind: RefuseGap, found: []string{"is at 0/800000", "checkpoint at 0/700000"}, remedy: []string{"--accept-gap=0/700000..0/800000"},
		accept: &Accept{GapFrom: 7 * mib, GapTo: 8 * mib}, start: Edge{Covered: 8 * mib}, says: "accept-gap=0/700000..0/800000",
	},
}

// namedFlags finds the settings that a remedy names with a value.
var namedFlags = regexp.MustCompile(`--(adopt-slot|accept-[a-z-]+)=([0-9A-F/.]+)`)

func TestCompareRefuses(t *testing.T) {
	for _, test := range refusals {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.compare(Accept{})
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("error %v, want a *Refusal", err)
			}
			if refusal.Kind != test.kind {
				t.Errorf("kind %q, want %q", refusal.Kind, test.kind)
			}
			requireWords(t, refusal.Found, test.found)
			requireWords(t, refusal.Remedy, test.remedy)
			requireWords(t, err.Error(), []string{refusal.Found, refusal.Remedy})
			if strings.Contains(err.Error(), "%!") {
				t.Errorf("arguments do not fit: %s", err)
			}
			named := namedFlags.FindString(refusal.Remedy)
			if want := "--" + test.says; test.accept != nil && named != want {
				t.Errorf("remedy names %q, want %q", named, want)
			}
			if test.accept == nil && named != "" {
				t.Errorf("remedy names %q, but nothing can be accepted", named)
			}
		})
	}
}

func requireWords(t *testing.T, text string, words []string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}

// An answer fits the situation it was given for, and no other one of the list,
// nor the same one a little later.
func TestCompareAcceptsOnce(t *testing.T) {
	for _, asked := range refusals {
		for _, given := range refusals {
			if given.accept == nil {
				continue
			}
			decision, err := asked.compare(*given.accept)
			if asked.accept == nil || *asked.accept != *given.accept {
				if err == nil {
					t.Errorf("%s: went on with the answer to: %s", asked.name, given.name)
				}
				continue
			}
			want := Decision{Verdict: Continue, Start: asked.start, Accepted: asked.says, Moved: asked.moved()}
			if err != nil || decision != want {
				t.Errorf("%s: %+v, error %v; want %+v", asked.name, decision, err, want)
			}
		}
	}
}

// Answers move with the situation: a slot that went on needs another one.
func TestCompareAnswerIsExact(t *testing.T) {
	for name, test := range map[string]struct {
		situation
		accept Accept
	}{
		"adopted slot moved on":     {with(func(s *situation) { s.record, s.slot.Confirmed = nil, 9*mib+1 }), Accept{AdoptSlot: 9 * mib}},
		"gap grew":                  {with(func(s *situation) { s.slot.Confirmed = 14 * mib }), Accept{GapFrom: 10 * mib, GapTo: 13 * mib}},
		"gap begins elsewhere":      {with(func(s *situation) { s.slot.Confirmed = 13 * mib }), Accept{GapFrom: 9 * mib, GapTo: 13 * mib}},
		"a third server":            {with(func(s *situation) { s.server.SystemID = "7003" }), Accept{Server: "7002"}},
		"another switch point":      {with(func(s *situation) { s.server.Timeline, s.server.SwitchPoint = 4, 7*mib+1 }), Accept{LostTail: 7 * mib}},
		"switch point is not known": {with(func(s *situation) { s.server.Timeline, s.server.SwitchPoint, s.server.SwitchUnknown = 4, 7*mib, true }), Accept{LostTail: 7 * mib}},
	} {
		var asked, refused *Refusal
		_, err := test.compare(Accept{})
		decision, errThen := test.compare(test.accept)
		if !errors.As(err, &asked) || !errors.As(errThen, &refused) || *refused != *asked {
			t.Errorf("%s: %+v, error %v; want %v", name, decision, errThen, err)
		}
	}
}

// A switch point of 0 is nobody's answer.
func TestCompareAcceptsNoZero(t *testing.T) {
	_, err := with(func(s *situation) { s.server.Timeline, s.server.SwitchPoint = 4, 0 }).compare(Accept{})
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Kind != RefuseTimeline {
		t.Errorf("error %v", err)
	}
}

// Answers that nothing asks for change nothing, and the decision does not claim
// that they were used.
func TestCompareIgnoresUnneededAnswers(t *testing.T) {
	everything := Accept{AdoptSlot: 9 * mib, GapFrom: 10 * mib, GapTo: 9 * mib, Server: "7001", LostTail: 7 * mib}
	got, err := healthy().compare(everything)
	if want := (Decision{Verdict: Continue, Start: streaming().Edge()}); err != nil || got != want {
		t.Errorf("%+v, error %v; want %+v", got, err, want)
	}
}

// A tail that was lost, and a slot that somebody moved on the new timeline, are
// two situations: each needs its own answer.
func TestCompareLostTailAndGap(t *testing.T) {
	s := with(func(s *situation) { s.server.Timeline, s.server.SwitchPoint, s.slot.Confirmed = 4, 7*mib, 8*mib })
	_, err := s.compare(Accept{LostTail: 7 * mib})
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Kind != RefuseGap {
		t.Fatalf("error %v, want a gap", err)
	}
	requireWords(t, refusal.Remedy, []string{"--accept-gap=0/700000..0/800000"})
	got, err := s.compare(Accept{LostTail: 7 * mib, GapFrom: 7 * mib, GapTo: 8 * mib})
	want := Decision{
		Verdict: Continue, Start: Edge{Covered: 8 * mib},
		Accepted: "accept-lost-tail=0/700000, accept-gap=0/700000..0/800000", Moved: true,
	}
	if err != nil || got != want {
		t.Errorf("%+v, error %v; want %+v", got, err, want)
	}
}

// What was accepted becomes the checkpoint; with it the next start asks nothing,
// and the answer, still given, is not used again.
func TestCompareAfterAccepting(t *testing.T) {
	for _, test := range refusals {
		if test.accept == nil {
			continue
		}
		s := test.situation
		decision, err := s.compare(*test.accept)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		record := Record{
			Pipeline: "bank.outbox", SystemID: s.server.SystemID, Timeline: s.server.Timeline,
			Database: s.server.Database, Slot: "outbox_slot",
		}.With(decision.Start)
		s.record = &record
		again, err := s.compare(*test.accept)
		if want := (Decision{Verdict: Continue, Start: decision.Start}); err != nil || again != want {
			t.Errorf("%s: then %+v, error %v; want %+v", test.name, again, err, want)
		}
	}
}

// Where nobody knows what was published last, an idle position beyond the switch
// point may be of published rows.
func TestCompareLostTailOfUnknownRows(t *testing.T) {
	_, err := with(func(s *situation) {
		s.record.CommitLSN, s.record.XID = 0, 0
		s.server.Timeline, s.server.SwitchPoint, s.slot.Confirmed = 4, 7*mib, 6*mib
	}).compare(Accept{})
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Kind != RefuseTimeline {
		t.Errorf("error %v", err)
	}
}

// CompareIdentity refuses what Compare refuses of it, before the slot is held.
func TestCompareIdentity(t *testing.T) {
	for _, test := range refusals {
		err := CompareIdentity(test.record, test.server, "outbox_slot", Accept{})
		var refusal *Refusal
		identity := test.kind == RefuseOtherPipeline || test.kind == RefuseOtherServer || test.kind == RefuseOldPrimary
		if identity != errors.As(err, &refusal) || identity && refusal.Kind != test.kind {
			t.Errorf("%s: error %v", test.name, err)
		}
	}
	if err := CompareIdentity(healthy().record, Server{SystemID: "7002", Database: "bank"}, "outbox_slot", Accept{Server: "7002"}); err != nil {
		t.Errorf("accepted server: %v", err)
	}
}

// A start never lies below the slot: the rows between are not sent, and the
// ledger refuses it.
func TestCompareStartIsNotBelowTheSlot(t *testing.T) {
	for _, test := range refusals {
		if test.accept == nil {
			continue
		}
		decision, err := test.compare(*test.accept)
		if err == nil && decision.Start.Covered < test.slot.Confirmed {
			t.Errorf("%s: starts at %s, the slot is at %s", test.name, decision.Start.Covered, test.slot.Confirmed)
		}
	}
}
