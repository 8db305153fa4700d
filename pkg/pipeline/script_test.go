package pipeline

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
	"github.com/walstream/walstream/pkg/outbox"
)

// TestScripts runs the stories in testdata/core: what comes in, one command a
// line, and below it what the core does about it. Write the expected part anew
// with -rewrite, and read it before it is committed.
//
//	start [slot=L] [covered=L] [split=L] [events=N] [bytes=N] [timeout=D]
//	                 a new pipeline whose slot stands at L; limits of the window
//	begin commit=L [xid=N]   row KEY [value=V] [lsn=L]   other-row   commit end=L
//	keepalive L [reply]      bytes HEX           what PostgreSQL sends
//	ack N... | all           Kafka answers the N-th event
//	durable [L]              the checkpoint asked for (or an earlier one, at L) is durable
//	refuse                   the sink fails
//	tick [D]                 time passes (100ms)
//	stop                     no more frames are taken; then, when drained, the last status
//	crash [slot=L] [flushed=L]
//	                         all but slot and checkpoint is gone; a new start
//	state                    where everything stands
//
// Each status is held against what it may never confirm: more than is durable,
// or a transaction with a row that Kafka has not answered.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "core"), runScript)
}

func runScript(t *testing.T, path string) {
	s := &script{t: t}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		s.out.Reset()
		s.run(d)
		if s.out.Len() == 0 {
			return "ok\n"
		}
		return s.out.String()
	})
}

// script is a core between a PostgreSQL and a Kafka that do what they are told.
type script struct {
	t    *testing.T
	out  strings.Builder
	now  time.Time
	core *Core

	// PostgreSQL
	slot      pglogrepl.LSN // confirmed_flush_lsn
	sent      pglogrepl.LSN // end of what was sent
	commitLSN pglogrepl.LSN // of the open transaction
	timeout   time.Duration
	described bool
	whole     bool // the sink may hold rows back until their transaction ends

	// Kafka
	events    []submitted
	waiting   map[decode.Position]bool // not answered
	report    checkpoint.Report
	requested checkpoint.Edge
	durable   checkpoint.Record
	limits    checkpoint.Limits
}

func (s *script) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *script) run(d *datadriven.TestData) {
	wasFull := s.core != nil && s.core.Full()
	var err error
	switch d.Cmd {
	case "start":
		err = s.start(d)
	case "crash":
		err = s.crash(d)
	case "begin", "row", "other-row", "commit", "keepalive", "bytes":
		if wasFull {
			s.t.Fatalf("%s: the window is full, no frame is taken", d.Pos)
		}
		err = s.frame(d)
	case "ack":
		err = s.ack(d)
	case "durable":
		err = s.makeDurable(d)
	case "refuse":
		s.report.Err = errors.New("the broker refused a record")
		err = s.core.OnAcks(s.now)
	case "tick":
		step := tick
		if len(d.CmdArgs) > 0 {
			step, err = time.ParseDuration(d.CmdArgs[0].Key)
		}
		s.now = s.now.Add(step)
		err = errors.Join(err, s.core.OnTick(s.now))
	case "stop":
		s.core.OnStop()
		if s.say("drained: %v", s.core.Drained()); s.core.Drained() {
			err = s.core.FinalStatus(s.now)
		}
	case "state":
		events, bytes := s.core.ledger.InFlight()
		s.say("in flight %d (%d bytes), published %s, durable %s, confirmed %s, slot %s", events, bytes,
			s.core.ledger.Published().Covered, s.durable.Covered, s.core.ledger.Confirmed(), s.slot)
	default:
		s.t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	if err != nil {
		s.say("error: %v", err)
	}
	if counted := s.core.counters.Events; counted != uint64(len(s.events)) {
		s.t.Errorf("%s: %d rows are counted, of %d that were taken", d.Pos, counted, len(s.events))
	}
	if full := s.core.Full(); full != wasFull {
		s.say("window full: %v", full)
	}
}

func (s *script) start(d *datadriven.TestData) error {
	*s = script{t: s.t, out: s.out, now: midnight, slot: 0x100, limits: checkpoint.Limits{Events: 1000, Bytes: 1 << 20}, timeout: 15 * time.Second}
	s.lsn(d, "slot", &s.slot)
	covered := s.slot
	s.lsn(d, "covered", &covered)
	s.whole = d.HasArg("whole")
	d.MaybeScanArgs(s.t, "events", &s.limits.Events)
	d.MaybeScanArgs(s.t, "bytes", &s.limits.Bytes)
	var timeout string
	if d.MaybeScanArgs(s.t, "timeout", &timeout) {
		s.timeout, _ = time.ParseDuration(timeout)
	}
	start := checkpoint.Edge{Covered: covered}
	if d.HasArg("split") { // one row of the transaction committed there is published
		start.CommitLSN, start.Ordinal, start.CommitTime = s.need(d, "split"), 1, midnight
		start.XID = uint32(start.CommitLSN)
	}
	s.durable = checkpoint.Record{Timeline: 1}.With(start)
	return s.newCore(start)
}

func (s *script) newCore(start checkpoint.Edge) error {
	s.events, s.waiting = nil, map[decode.Position]bool{}
	s.report.Reset()
	s.requested, s.described, s.sent, s.commitLSN = start, false, s.slot, 0
	s.core = NewCore(CoreConfig{
		Start: start, SlotConfirmed: s.slot, Limits: s.limits, Mapper: keyValueMapper{},
		Sink: s, Source: s, Pacer: NewPacer(5*time.Second, s.timeout, s.now), Whole: s.whole,
	})
	return nil
}

// crash starts anew from what is durable, the way every start goes.
func (s *script) crash(d *datadriven.TestData) error {
	flushed := max(s.sent, s.durable.Covered)
	s.lsn(d, "slot", &s.slot)
	s.lsn(d, "flushed", &flushed)
	decision, err := checkpoint.Compare(&s.durable, checkpoint.Slot{Exists: true, Confirmed: s.slot},
		checkpoint.Server{Timeline: 1, Flushed: flushed}, "", checkpoint.Accept{})
	if err != nil {
		return err
	}
	s.say("start at %s, slot %s", decision.Start.Covered, s.slot)
	return s.newCore(decision.Start)
}

func (s *script) frame(d *datadriven.TestData) error {
	switch d.Cmd {
	case "begin":
		s.commitLSN = s.need(d, "commit")
		xid := uint32(s.commitLSN)
		d.MaybeScanArgs(s.t, "xid", &xid)
		return s.send(beginFrame(s.sent, s.now, decode.Begin{CommitLSN: s.commitLSN, CommitTime: midnight, XID: xid}))
	case "commit":
		s.sent = s.need(d, "end")
		return s.send(commitFrame(s.now, decode.Commit{CommitLSN: s.commitLSN, EndLSN: s.sent, CommitTime: midnight}))
	case "keepalive":
		lsn := s.parse(d.CmdArgs[0].Key)
		s.sent = max(s.sent, lsn)
		return s.send(decodetest.Keepalive(lsn, s.now, d.HasArg("reply")))
	case "bytes":
		var raw []byte
		if _, err := fmt.Sscanf(d.CmdArgs[0].Key, "%x", &raw); err != nil {
			s.t.Fatal(err)
		}
		return s.send(raw)
	}
	if !s.described {
		s.described = true
		if err := errors.Join(s.send(relationFrame(s.now, outboxTable)), s.send(relationFrame(s.now, otherTable))); err != nil {
			return err
		}
	}
	if d.Cmd == "other-row" {
		return s.send(decodetest.XLogData(s.sent, s.now, decodetest.Insert(otherTable.ID, decodetest.Null())))
	}
	value, lsn := "v", s.sent
	d.MaybeScanArgs(s.t, "value", &value)
	s.lsn(d, "lsn", &lsn)
	return s.send(insertFrame(lsn, s.now, d.CmdArgs[0].Key, value))
}

func (s *script) send(payload []byte) error {
	s.core.pacer.Heard(s.now)
	return s.core.OnFrame(payload, s.now)
}

func (s *script) ack(d *datadriven.TestData) error {
	for _, arg := range d.CmdArgs {
		if arg.Key == "all" {
			for n := range s.events {
				s.answer(n)
			}
			continue
		}
		n, err := strconv.Atoi(arg.Key)
		if err != nil || n < 1 || n > len(s.events) {
			s.t.Fatalf("%s: no event %q", d.Pos, arg.Key)
		}
		s.answer(n - 1)
	}
	return s.core.OnAcks(s.now)
}

func (s *script) answer(n int) {
	if s.waiting[s.events[n].position] {
		delete(s.waiting, s.events[n].position)
		s.report.Acked = append(s.report.Acked, s.events[n].ticket)
	}
}

func (s *script) makeDurable(d *datadriven.TestData) error {
	edge := s.requested
	if len(d.CmdArgs) > 0 {
		edge.Covered = s.parse(d.CmdArgs[0].Key)
	}
	s.durable = s.durable.With(edge)
	s.report.Durable = edge
	return s.core.OnAcks(s.now)
}

func (s *script) parse(text string) pglogrepl.LSN {
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return lsn
}

func (s *script) lsn(d *datadriven.TestData, key string, dest *pglogrepl.LSN) bool {
	var text string
	if !d.MaybeScanArgs(s.t, key, &text) {
		return false
	}
	*dest = s.parse(text)
	return true
}

func (s *script) need(d *datadriven.TestData, key string) (lsn pglogrepl.LSN) {
	if !s.lsn(d, key, &lsn) {
		s.t.Fatalf("%s: %s is missing", d.Pos, key)
	}
	return lsn
}

// The script is the core's sink and source.

func (s *script) Submit(e *outbox.Event, ticket checkpoint.Ticket) {
	s.events = append(s.events, submittedOf(e, ticket))
	s.waiting[e.Position] = true
	s.say("event %d: %s key %s", len(s.events), e.Position, e.Key)
}

func (s *script) Reject(e *outbox.Event, _ *outbox.RowError, ticket checkpoint.Ticket) {
	s.events = append(s.events, submittedOf(e, ticket))
	s.waiting[e.Position] = true
	s.say("event %d: %s is rejected", len(s.events), e.Position)
}

func (s *script) Begin(checkpoint.Edge) {}

func (s *script) End(edge checkpoint.Edge) {}

func (s *script) Checkpoint(edge checkpoint.Edge) {
	s.requested = edge
	s.say("checkpoint %s (commit %s)", edge.Covered, edge.CommitLSN)
}

func (s *script) Drain(report *checkpoint.Report) {
	report.Acked = append(report.Acked, s.report.Acked...)
	report.Durable, report.Err = s.report.Durable, s.report.Err
	s.report.Reset()
}

func (s *script) Ready() <-chan struct{} { return neverReady }

func (s *script) SendStatus(received, confirmed pglogrepl.LSN, wantReply bool) error {
	probe := ""
	if wantReply {
		probe = ", probe"
	}
	s.say("status received %s, confirmed %s%s", received, confirmed, probe)
	if confirmed > s.durable.Covered {
		s.t.Errorf("confirmed %s beyond the durable checkpoint %s", confirmed, s.durable.Covered)
	}
	for position := range s.waiting {
		if position.CommitLSN < confirmed {
			s.t.Errorf("confirmed %s with row %s unanswered", confirmed, position)
		}
	}
	s.slot = max(s.slot, confirmed)
	return nil
}
