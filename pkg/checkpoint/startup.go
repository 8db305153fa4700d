package checkpoint

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pglogrepl"
)

// Slot is what the server says about the replication slot.
type Slot struct {
	Exists      bool
	Confirmed   pglogrepl.LSN // confirmed_flush_lsn
	Invalidated string        // why it can no longer be used; empty when it can
	Inactive    time.Time     // since when nobody has read it; zero: not known
}

// Server is what IDENTIFY_SYSTEM and the timeline history say.
type Server struct {
	SystemID string
	Timeline uint32
	Database string
	Flushed  pglogrepl.LSN // flushed WAL
	Now      time.Time     // by its clock; zero: not known
	// SwitchPoint is where the server's history left the checkpoint's timeline;
	// 0 when it is on the same one. Meaningless without a checkpoint.
	SwitchPoint pglogrepl.LSN
	// SwitchUnknown: the server's timeline history does not mention the
	// checkpoint's timeline at all.
	SwitchUnknown bool
	// Rows is the fingerprint of what the stream carries; a record's OptionsHash
	// is the one it was written under.
	Rows string
}

// Accept holds an operator's answers to refusals. Each fits one situation.
type Accept struct {
	AdoptSlot pglogrepl.LSN // adopt-slot: the confirmed LSN of a slot without checkpoint
	GapFrom   pglogrepl.LSN // accept-gap: the covered LSN ...
	GapTo     pglogrepl.LSN // ... and the slot's position
	Server    string        // accept-server: the new system identifier
	LostTail  pglogrepl.LSN // accept-lost-tail: the switch point
	Rows      string        // accept-publication: the new fingerprint of what the stream carries
	// Recover: what lies in a gap, or a tail that was lost, is compared with the
	// topics, so neither is a reason to stop.
	Recover bool
}

// Verdict of Compare.
type Verdict int

const (
	// Fresh: neither slot nor checkpoint, or a set-up that was cut short before
	// it made the slot: make them.
	Fresh Verdict = iota
	// Continue: stream from the slot, dropping what Start covers.
	Continue
)

// Decision is how to start.
type Decision struct {
	Verdict Verdict
	// Start is the edge everything up to which counts as published.
	Start Edge
	// Accepted says in words which answer of the operator was used; empty when
	// none was needed. The caller logs it and makes a new checkpoint at once, so
	// that the answer does not fit again.
	Accepted string
	// Moved: the server is on another timeline than the checkpoint, which the caller
	// makes durable at once: from then on an old primary is known for one.
	Moved bool
}

// RefusalKind tells refusals apart, for exit codes and tests.
type RefusalKind string

const (
	RefuseOtherPipeline RefusalKind = "other-pipeline" // checkpoint names another slot or database
	RefuseOtherServer   RefusalKind = "other-server"
	RefuseNoCheckpoint  RefusalKind = "slot-without-checkpoint"
	RefuseNoSlot        RefusalKind = "checkpoint-without-slot"
	RefuseSlotLost      RefusalKind = "slot-lost"
	RefuseGap           RefusalKind = "slot-ahead"
	RefuseRestored      RefusalKind = "server-restored"
	RefuseTimeline      RefusalKind = "other-timeline"
	RefuseOldPrimary    RefusalKind = "old-primary"
	RefuseOtherRows     RefusalKind = "other-rows"
)

// Refusal is a start that would lose or double rows, or might. It says what was
// found, how large the gap is, and the ways out.
type Refusal struct {
	Kind   RefusalKind
	Found  string
	Remedy string
}

func (r *Refusal) Error() string { return r.Found + "; " + r.Remedy }

// Compare decides from the durable checkpoint (nil: none), the slot and the
// server how to start. It changes nothing. An error is of type *Refusal.
func Compare(record *Record, slot Slot, server Server, slotName string, accept Accept) (Decision, error) {
	if record == nil {
		return compareWithoutRecord(slot, server, slotName, accept)
	}
	if err := CompareIdentity(record, server, slotName, accept); err != nil {
		return Decision{}, err
	}
	var accepted []string
	newServer := record.SystemID != server.SystemID
	if newServer {
		accepted = append(accepted, "accept-server="+server.SystemID)
	}
	if record.Phase == PhaseSetup {
		return compareSetup(slot, slotName, accepted)
	}
	if d, err := compareSlotHealth(record, slot, server); err != nil {
		return d, err
	}
	edge := record.Edge()
	if record.Unmade() { // the slot was, when that was cut short
		edge.Covered = slot.Confirmed
		accepted = append(accepted, "recover")
	}
	if newServer {
		// Its LSNs have nothing to do with the checkpoint's; the slot it was given
		// with the data says where to go on.
		edge = Edge{Covered: slot.Confirmed}
	} else {
		word, err := compareHistory(record, server, accept)
		if err != nil {
			return Decision{}, err
		}
		if record.Timeline != server.Timeline && !record.InRecovery && edge.Ordinal == 0 {
			edge.Covered = min(edge.Covered, server.SwitchPoint) // beyond it nothing was published, or somebody answers for it
		}
		if word != "" {
			// What lies below the switch point is on both sides, and published.
			accepted = append(accepted, word)
			edge = Edge{Covered: server.SwitchPoint, CommitLSN: server.SwitchPoint}
		}
	}
	if slot.Confirmed > edge.Covered {
		if !accept.Recover && (accept.GapFrom != edge.Covered || accept.GapTo != slot.Confirmed) {
			return refuse(RefuseGap, "slot %q is at %s, ahead of the checkpoint at %s: rows in these %s were confirmed by somebody else and never published by this pipeline; %s",
				fmt.Sprintf("find out who moved the slot (or dropped it and made it anew); then %s; or start once with --accept-gap=%s..%s, and publish the rows between from the outbox table: %s",
					record.recover(false), edge.Covered, slot.Confirmed, record.missing(false)),
				slotName, slot.Confirmed, edge.Covered, size(edge.Covered, slot.Confirmed), record.last(server))
		}
		accepted = append(accepted, fmt.Sprintf("accept-gap=%s..%s", edge.Covered, slot.Confirmed))
		if edge.Ordinal == 0 || edge.CommitLSN < slot.Confirmed { // else the gap ends before a split transaction: its rest comes yet
			edge = Edge{}
		}
		edge.Covered = slot.Confirmed
	}
	if !newServer && record.OptionsHash != "" && record.OptionsHash != server.Rows {
		if !accept.Recover && (accept.Rows == "" || accept.Rows != server.Rows) {
			return refuse(RefuseOtherRows, "publication %q, or a table behind it, was changed since the checkpoint at %s, %s before the end of the WAL: rows committed while it was may not be in the stream; %s",
				fmt.Sprintf("start once with --accept-publication=%s, and publish what is missing from the outbox table: %s", server.Rows, record.missing(false)),
				record.Publication, record.Covered, size(record.Covered, server.Flushed), record.last(server))
		}
		accepted = append(accepted, "accept-publication="+server.Rows)
		if edge.Ordinal > 0 { // its rows can no longer be counted: rather some twice than some not at all
			edge = Edge{Covered: edge.Covered}
		}
	}
	if record.Snapshot != nil { // what the stream will not carry from there on is still to be published
		page := *record.Snapshot
		if page.From = edge.Covered; record.Unmade() {
			page.Recovery = page.Recovery.settled(page.From)
		}
		edge = Edge{Covered: edge.Covered, Page: &page}
	}
	moved := !newServer && record.Timeline != server.Timeline
	return Decision{Verdict: Continue, Start: edge, Accepted: strings.Join(accepted, ", "), Moved: moved}, nil
}

// CompareIdentity is the part of Compare that may be asked before the slot is
// held: does the checkpoint belong to this slot, database and server? A nil
// record fits everything.
func CompareIdentity(record *Record, server Server, slotName string, accept Accept) error {
	var err error
	switch {
	case record == nil:
	case record.Slot != slotName || record.Database != server.Database:
		_, err = refuse(RefuseOtherPipeline, "the checkpoint of pipeline %q is for slot %q of database %q, not for slot %q of database %q",
			"give this pipeline another name with --pipeline",
			record.Pipeline, record.Slot, record.Database, slotName, server.Database)
	case record.SystemID != server.SystemID && accept.Server != server.SystemID:
		_, err = refuse(RefuseOtherServer, "the checkpoint was written for server %s, at %s; this is server %s, whose WAL ends at %s: LSNs of the two cannot be compared; %s",
			"connect to the server of the checkpoint; if this is the same data after pg_upgrade, start once with --accept-server="+server.SystemID,
			record.SystemID, record.Covered, server.SystemID, server.Flushed, record.last(server))
	case record.SystemID == server.SystemID && record.Phase != PhaseSetup && record.Timeline > server.Timeline && server.SwitchUnknown:
		_, err = refuse(RefuseOldPrimary, "the checkpoint was written on timeline %d at %s, and this server is on timeline %d: it is a primary of before a failover, or a copy of one, and what it takes in is on no other server; %s",
			"stop it, or take it out of the address, which is to lead to the server of the checkpoint; if this one stays, "+record.Anew(true),
			record.Timeline, record.Covered, server.Timeline, record.last(server))
	}
	return err
}

func compareWithoutRecord(slot Slot, server Server, slotName string, accept Accept) (Decision, error) {
	switch {
	case !slot.Exists:
		return Decision{Verdict: Fresh}, nil
	case slot.Invalidated != "":
		return refuse(RefuseSlotLost, "slot %q is invalidated (%s) and has no checkpoint; it had confirmed %s, %s before the end of the WAL",
			"drop the slot: "+dropSlot(slotName)+" and start anew, with the rows committed from then on",
			slotName, slot.Invalidated, slot.Confirmed, size(slot.Confirmed, server.Flushed))
	case accept.AdoptSlot != 0 && accept.AdoptSlot == slot.Confirmed:
		return Decision{
			Verdict: Continue, Start: Edge{Covered: slot.Confirmed},
			Accepted: fmt.Sprintf("adopt-slot=%s", slot.Confirmed),
		}, nil
	}
	return refuse(RefuseNoCheckpoint, "slot %q exists at %s, but Kafka holds no checkpoint of this pipeline: either the slot is not walstream's, or Kafka was wiped; behind its position lie %s of WAL%s",
		fmt.Sprintf("to publish everything from the slot's position on, start once with --adopt-slot=%s (walstream recover with that answer publishes also the older rows of the table that are in no topic); to begin anew, drop the slot: %s", slot.Confirmed, dropSlot(slotName)),
		slotName, slot.Confirmed, size(slot.Confirmed, server.Flushed), slot.unread(server))
}

// compareSetup: the set-up was cut short. Nothing is covered yet, so a missing
// slot is made and an existing one is taken at its position.
func compareSetup(slot Slot, slotName string, accepted []string) (Decision, error) {
	if !slot.Exists {
		return Decision{Verdict: Fresh, Accepted: strings.Join(accepted, ", ")}, nil
	}
	if slot.Invalidated != "" {
		return refuse(RefuseSlotLost, "slot %q was invalidated (%s) before anything was published",
			"drop the slot: "+dropSlot(slotName)+" and start anew", slotName, slot.Invalidated)
	}
	return Decision{Verdict: Continue, Start: Edge{Covered: slot.Confirmed}, Accepted: strings.Join(accepted, ", ")}, nil
}

func compareSlotHealth(record *Record, slot Slot, server Server) (Decision, error) {
	gap := func() string {
		return fmt.Sprintf("the rows in the %s of WAL since the checkpoint can no longer be had from it; %s", size(record.Covered, server.Flushed), record.last(server))
	}
	switch {
	case !slot.Exists:
		if record.Unmade() {
			return refuse(RefuseNoSlot, "a recovery was begun, and slot %q does not exist on this server yet",
				"finish it: "+record.recover(false), record.Slot)
		}
		return refuse(RefuseNoSlot, "the checkpoint stands at %s (last commit %s), but slot %q does not exist on this server, whose WAL ends at %s: %s",
			record.Anew(false), record.Covered, record.CommitLSN, record.Slot, server.Flushed, gap())
	case slot.Invalidated != "":
		return refuse(RefuseSlotLost, "slot %q is invalidated (%s) with the checkpoint at %s and the slot last confirmed at %s, and the WAL ends at %s: %s",
			record.Anew(true), record.Slot, slot.Invalidated, record.Covered, slot.Confirmed, server.Flushed, gap())
	}
	return Decision{}, nil
}

// Anew is the way out where this pipeline cannot go on: a new one, with a slot of
// its own, and what lies before that from the table.
func (r *Record) Anew(slotExists bool) string {
	drop := ""
	if slotExists {
		drop = "run " + dropSlot(r.Slot) + " then "
	}
	return fmt.Sprintf("%s; or %sstart with --pipeline=%s, now and from now on, which makes a new slot, and publish the rows before that slot from the outbox table: %s",
		r.recover(slotExists), drop, successor(r.Pipeline), r.missing(true))
}

// recover is the command that does all of it by itself.
func (r *Record) recover(newSlot bool) string {
	anew := ""
	if newSlot {
		anew = " --new-slot"
	}
	return fmt.Sprintf("walstream recover%s --slot %s --pipeline %s, with the settings of the service, shows which rows are in doubt, and with --execute publishes those that are in no topic",
		anew, r.Slot, r.Pipeline)
}

// missing is how the rows of a gap are found and published. A row is older than
// its commit, by as long as its transaction was open.
func (r *Record) missing(anew bool) string {
	audit := "walstream audit --missing-to=missing.txt"
	if !r.CommitTime.IsZero() {
		audit += " --from-time=" + r.CommitTime.Add(-time.Hour).UTC().Format(time.RFC3339)
	}
	if anew {
		audit += " --earlier-pipelines=" + strings.Join(lineage(r.Pipeline), ",")
	}
	return audit + " lists what is in no topic, and docs/refusals.md has the statement that sends it again"
}

// Stands says how far the checkpoint and the server have come.
func (r *Record) Stands(server Server) string {
	return fmt.Sprintf("the checkpoint stands at %s, and the WAL ends at %s, %s further; %s",
		r.Covered, server.Flushed, size(r.Covered, server.Flushed), r.last(server))
}

// last says when this pipeline published last: the gap in time.
func (r *Record) last(server Server) string {
	if r.CommitTime.IsZero() {
		return "nothing has been published yet"
	}
	text := "the last commit published is of " + r.CommitTime.UTC().Format(time.RFC3339)
	if age := server.Now.Sub(r.CommitTime); !server.Now.IsZero() && age >= 0 {
		text += fmt.Sprintf(", %s ago", age.Round(time.Second))
	}
	return text
}

func (s Slot) unread(server Server) string {
	if s.Inactive.IsZero() || server.Now.Before(s.Inactive) {
		return ""
	}
	return fmt.Sprintf(", and nobody has read it for %s", server.Now.Sub(s.Inactive).Round(time.Second))
}

func dropSlot(name string) string { return "SELECT pg_drop_replication_slot('" + name + "');" }

var numbered = regexp.MustCompile(`^(.*)-(\d{1,6})$`)

// successor is the name of the pipeline after this one.
func successor(pipeline string) string {
	if m := numbered.FindStringSubmatch(pipeline); m != nil {
		if n, err := strconv.Atoi(m[2]); err == nil {
			return m[1] + "-" + strconv.Itoa(n+1)
		}
	}
	return pipeline + "-2"
}

// lineage is this pipeline's name behind those it had before, where each followed
// from the one before by successor: rows that they published are not missing. A
// number that is too large for that is a part of the name.
func lineage(pipeline string) []string {
	const most = 20
	if m := numbered.FindStringSubmatch(pipeline); m != nil {
		if n, err := strconv.Atoi(m[2]); err == nil && n >= 2 && n <= most && successor(m[1]+"-"+strconv.Itoa(n-1)) == pipeline {
			if n == 2 {
				return []string{m[1], pipeline}
			}
			return append(lineage(m[1]+"-"+strconv.Itoa(n-1)), pipeline)
		}
	}
	return []string{pipeline}
}

// Reach is the least LSN that a WAL with all that was published ends beyond: a
// transaction that was split lies beyond what is covered.
func (r *Record) Reach() pglogrepl.LSN {
	if r.Ordinal > 0 {
		return max(r.Covered, r.CommitLSN+1)
	}
	return r.Covered
}

// kept reports that nothing published was lost where the server left the timeline.
func (r *Record) kept(server Server) bool {
	return r.InRecovery || r.CommitLSN != 0 && r.CommitLSN < server.SwitchPoint
}

// compareHistory looks for a server that was restored or promoted away. accepted
// is not empty when the operator's accept-lost-tail fits.
//
// Idle positions reach beyond a switch point wherever the lost WAL is of other
// tables: what counts is the last commit published. A standby server that was
// promoted goes on sending to whoever streams from it: its slot is its own, and
// Resume holds its history against the checkpoint.
func compareHistory(record *Record, server Server, accept Accept) (accepted string, err error) {
	reach := record.Reach()
	kept := record.kept(server)
	if record.Timeline != server.Timeline && (server.SwitchUnknown || server.SwitchPoint < reach && !kept) {
		if !server.SwitchUnknown && (accept.Recover || accept.LostTail != 0 && accept.LostTail == server.SwitchPoint) {
			return fmt.Sprintf("accept-lost-tail=%s", server.SwitchPoint), nil
		}
		if server.SwitchUnknown {
			_, err = refuse(RefuseTimeline, "the checkpoint was written on timeline %d, which the history of this server (timeline %d) does not contain: LSNs of the two cannot be compared; %s",
				"connect to the server of the checkpoint; if this one stays, "+record.Anew(true), record.Timeline, server.Timeline, record.last(server))
			return "", err
		}
		_, err = refuse(RefuseTimeline, "the server left timeline %d at %s, before the checkpoint at %s: Kafka holds events of these %s that PostgreSQL has lost, and their LSNs and ids are in use again; %s",
			fmt.Sprintf("tell the consumers, then start once with --accept-lost-tail=%s", server.SwitchPoint),
			record.Timeline, server.SwitchPoint, reach, size(server.SwitchPoint, reach), record.last(server))
		return "", err
	}
	if record.Timeline != server.Timeline && !record.InRecovery {
		reach = min(reach, server.SwitchPoint)
	}
	if reach > server.Flushed {
		_, err = refuse(RefuseRestored, "the checkpoint stands at %s, but the server's WAL ends at %s: the server was restored from an older state, and %s of published history are gone from it; %s",
			"connect to the server of the checkpoint; if the older state stays, "+record.Anew(true),
			reach, server.Flushed, size(server.Flushed, reach), record.last(server))
	}
	return "", err
}

func refuse(kind RefusalKind, found, remedy string, args ...any) (Decision, error) {
	return Decision{}, &Refusal{Kind: kind, Found: fmt.Sprintf(found, args...), Remedy: remedy}
}

// size of the WAL between two LSNs; the end of the WAL may have been read first.
func size(from, to pglogrepl.LSN) string { return humanize.IBytes(uint64(max(to, from) - from)) }
