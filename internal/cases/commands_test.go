package cases

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
)

// standing is what walstream status --json says, as far as tests ask.
type standing struct {
	State      string
	Holder     *struct{ PID int }
	Instances  *[]struct{ PID int }
	Pause      *struct{ By, Reason string }
	Slot       *struct{ Exists, Failover, Synced bool }
	Checkpoint *struct {
		Covered, Phase, Delivery string
	}
	LagBytes   *int64   `json:"lag_bytes"`
	LagSeconds *float64 `json:"lag_seconds_at_most"`
	Problems   []string
	ExitCode   int `json:"exit_code"`
}

func (r *rig) standing(extra ...string) (s standing) {
	r.t.Helper()
	cmd := exec.CommandContext(r.ctx, r.binary, append([]string{"status", "--json"}, r.args(extra...)...)...)
	out, _ := cmd.Output() // the exit code is in it
	if err := json.Unmarshal(out, &s); err != nil {
		r.t.Fatalf("%v in %s", err, out)
	}
	if code := cmd.ProcessState.ExitCode(); code != s.ExitCode {
		r.t.Errorf("exit code %d, and it says %d", code, s.ExitCode)
	}
	return s
}

// walstream status tells how the pipeline stands in each state of its life, and
// takes nothing from whoever is at work.
func TestStatusFromAnywhere(t *testing.T) { inBothAtOnce(t, statusFromAnywhere) }

func statusFromAnywhere(t *testing.T) {
	r := sharedRig(t)
	if s := r.standing(); s.State != "not set up" || s.ExitCode != 11 || s.Checkpoint != nil || s.LagBytes != nil {
		t.Errorf("before the first start: %+v", s)
	}
	first := r.warm()
	second := r.start()
	_, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	before, err := first.Status(r.ctx)
	r.check(err)
	r.until("status to see both instances, and lag", func() bool {
		r.put(5)
		s := r.standing()
		return s.State == "active" && s.ExitCode == 0 && s.Holder != nil && len(*s.Instances) == 2 && s.LagBytes != nil && s.LagSeconds != nil &&
			*s.LagSeconds < 60 && s.Checkpoint.Phase == "stream" && s.Checkpoint.Delivery == r.delivery
	})
	if out, code := r.command([]string{"status"}); code != 0 || !strings.Contains(out, "active: PID") || !strings.Contains(out, "1 standing by") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	after, err := first.Status(r.ctx)
	r.check(err)
	if len(after.Restarts) != len(before.Restarts) || after.State != "streaming" {
		t.Errorf("status disturbed the active instance: %+v", after)
	}
	r.untilConfirmed()
	r.check(second.Stop(10 * time.Second))
	r.check(first.Stop(10 * time.Second))
	r.put(10)
	s := r.standing()
	if s.State != "idle" || s.ExitCode != 11 || s.LagBytes == nil || *s.LagBytes == 0 || s.LagSeconds == nil || len(*s.Instances) != 0 {
		t.Errorf("with nobody at work and rows waiting: %+v", s)
	}
	time.Sleep(20 * time.Millisecond)
	if later := r.standing(); *later.LagSeconds <= *s.LagSeconds {
		t.Errorf("lag of %v s grew to %v s only", *s.LagSeconds, *later.LagSeconds)
	}
	r.statusOfFaults()
}

// statusOfFaults: what cannot be read is unknown, and what a start would refuse is
// said.
func (r *rig) statusOfFaults() {
	t := r.t
	t.Helper()
	if s := r.standing("--kafka-brokers", "127.0.0.1:1"); s.ExitCode != 3 || s.Checkpoint != nil || s.LagBytes != nil || s.Slot == nil || len(s.Problems) == 0 {
		t.Errorf("without Kafka: %+v", s)
	}
	if s := r.standing("--postgres", "postgres://nobody@127.0.0.1:1/none"); s.State != "unknown" || s.ExitCode != 3 || s.Slot != nil || s.LagBytes != nil || s.Checkpoint == nil {
		t.Errorf("without PostgreSQL: %+v", s)
	}
	r.exec(`ALTER PUBLICATION ` + r.publication() + ` DROP TABLE bank_outbox`)
	if s := r.standing(); s.ExitCode != 3 || !strings.Contains(strings.Join(s.Problems, " "), "does not carry table public.bank_outbox -> ALTER PUBLICATION") {
		t.Errorf("without the table in the publication: %+v", s)
	}
	r.exec(`ALTER PUBLICATION ` + r.publication() + ` ADD TABLE bank_outbox (id, aggregate_id, payload, headers)`)
	r.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.slot)
	if s := r.standing(); s.ExitCode != 4 || s.LagBytes != nil || !strings.Contains(strings.Join(s.Problems, " "), "ahead of the checkpoint") {
		t.Errorf("with a slot that somebody moved: %+v", s)
	}
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	if s := r.standing(); s.ExitCode != 5 || !strings.Contains(strings.Join(s.Problems, " "), "does not exist") {
		t.Errorf("without the slot: %+v", s)
	}
}

// lockedBuffer is written by a child while the test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// walstream status --watch goes on until it is told to stop.
func TestStatusWatches(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.warm()
	cmd := exec.CommandContext(r.ctx, r.binary, append([]string{"status", "--watch", "--every", "200ms"}, r.args()...)...)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	r.check(cmd.Start())
	r.until("three readings", func() bool { return strings.Count(out.String(), "state") >= 3 })
	r.check(cmd.Process.Signal(syscall.SIGTERM))
	r.check(cmd.Wait())
	if text := out.String(); strings.Contains(text, "\x1b") {
		t.Errorf("it draws where there is no terminal:\n%q", text)
	}
}

// The pause takes hold of the active and of the standby instance, outlives both,
// and its end brings them back: nothing is lost, and in exactly-once nothing comes
// twice.
func TestPauseAndResume(t *testing.T) { inBothAtOnce(t, pauseAndResume) }

func pauseAndResume(t *testing.T) {
	r := sharedRig(t)
	first := r.warm()
	second := r.start()
	_, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.put(200)
	out, code := r.command([]string{"pause", "--reason", "moving the volume"})
	if code != 0 || !strings.Contains(out, "is free at") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	isPaused := func(st service.Status) bool { return st.State == "paused" }
	for _, s := range []*service.Service{first, second} {
		status, err := s.WaitFor(r.ctx, "paused", isPaused)
		r.check(err)
		if !strings.Contains(status.Reason, "moving the volume") || !status.Healthy {
			t.Errorf("paused, and says %q, healthy %v", status.Reason, status.Healthy)
		}
		for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/healthz": 200} {
			if code, body, err := s.Get(r.ctx, path); err != nil || code != want {
				t.Errorf("%s while paused: %d %s (%v)", path, code, body, err)
			}
		}
	}
	confirmed, _ := r.confirmed()
	r.put(100)
	r.wal(1)
	r.until("the slot's health while paused", func() bool {
		_, body, err := first.Get(r.ctx, "/metrics")
		text := string(body)
		return err == nil && strings.Contains(text, `state="paused"} 1`) && strings.Contains(text, "walstream_slot_retained_bytes{") && !strings.Contains(text, "walstream_lag_bytes{")
	})
	if s := r.standing(); s.State != "paused" || s.ExitCode != 11 || s.Pause == nil || s.Pause.Reason != "moving the volume" {
		t.Errorf("status: %+v", s)
	}
	first.Kill()
	first = r.start()
	_, err = first.WaitFor(r.ctx, "paused", isPaused)
	r.check(err)
	if now, _ := r.confirmed(); now != confirmed {
		t.Errorf("the slot went from %s to %s while paused", confirmed, now)
	}
	if out, code := r.command([]string{"skip", "--yes", "--position", "0/1#1"}); code != 3 || !strings.Contains(out, "walstream resume") {
		t.Errorf("skip while paused: exit code %d\n%s", code, out)
	}
	if out, code := r.command([]string{"check"}); code != 0 || !strings.Contains(out, "paused since") {
		t.Errorf("check while paused: exit code %d\n%s", code, out)
	}
	if out, code = r.command([]string{"resume"}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates > 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	if out, code = r.command([]string{"resume"}); code != 0 || !strings.Contains(out, "is not paused") {
		t.Errorf("a second time: exit code %d\n%s", code, out)
	}
}

// A pause for a while ends by itself; one before the first start holds for it.
func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	if out, code := r.command([]string{"pause", "--for", "4s"}); code != 0 || !strings.Contains(out, "does not exist") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	s := r.start()
	_, err := s.WaitFor(r.ctx, "paused", func(st service.Status) bool { return st.State == "paused" })
	r.check(err)
	r.check(s.WaitStreaming(r.ctx))
}

// A DBA runs what walstream setup --print prints, and walstream streams with the
// role made there and no further right, from the slot made there.
func TestPrintedSetUpIsEnough(t *testing.T) { inBothAtOnce(t, printedSetUpIsEnough) }

func printedSetUpIsEnough(t *testing.T) {
	r := sharedRig(t)
	r.exec(`CREATE SCHEMA "Billing"; ALTER TABLE bank_outbox SET SCHEMA "Billing"`)
	r.exec(`SET search_path = "Billing", public`)
	role := "ws_" + r.slot[max(0, len(r.slot)-30):]
	own := []string{"--table", `"Billing".bank_outbox`}
	print := exec.CommandContext(r.ctx, r.binary, append([]string{"setup", "--print", "--role", role}, r.args(own...)...)...)
	sql, err := print.Output()
	r.check(err)
	// All of it, as a DBA's tool sends it.
	results, err := r.connect().PgConn().Exec(r.ctx, string(sql)).ReadAll()
	if err != nil {
		t.Fatalf("%v in\n%s", err, sql)
	}
	lsn := string(results[len(results)-1].Rows[0][0])
	r.exec(`ALTER ROLE ` + role + ` PASSWORD 'secret'`)
	t.Cleanup(func() { // the database goes first
		_, _ = r.db.Exec(t.Context(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
	})
	r.put(20)
	cfg, err := pgx.ParseConfig(r.dsn)
	r.check(err)
	as := append(own, "--postgres", fmt.Sprintf("host=%s port=%d dbname=%s user=%s password=secret", cfg.Host, cfg.Port, cfg.Database, role))
	s := r.start(as...)
	if code := r.ends(s, 30*time.Second); code != 4 || !strings.Contains(s.Log(), "--adopt-slot="+lsn) {
		t.Fatalf("without the answer: exit code %d\n%s", code, s.Log())
	}
	s = r.stream(append(as, "--adopt-slot", lsn)...)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.check(s.Stop(10 * time.Second))
	if out, code := r.command([]string{"check"}, as...); code != 0 || strings.Contains(out, "carries columns that nothing maps") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if s := r.standing(as...); s.State != "idle" || s.LagBytes == nil {
		t.Errorf("status with the same rights: %+v", s)
	}
	// For whom the publication is not: it stays, and is named.
	if out, code := r.command([]string{"drop", "--confirm", r.pipeline}, as...); code != 0 || !strings.Contains(out, "stays: it belongs to") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// walstream setup makes what a first start makes, twice if need be, and streams
// nothing.
func TestSetUpWithoutStreaming(t *testing.T) { inBothAtOnce(t, setUpWithoutStreaming) }

func setUpWithoutStreaming(t *testing.T) {
	r := sharedRig(t)
	if out, code := r.command([]string{"setup"}); code != 0 || !strings.Contains(out, "is set up") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	confirmed, _ := r.confirmed()
	r.put(20)
	if out, code := r.command([]string{"setup"}); code != 0 || !strings.Contains(out, "was set up before") {
		t.Errorf("again: exit code %d\n%s", code, out)
	}
	if s := r.standing(); s.State != "idle" || s.Checkpoint == nil || s.Checkpoint.Phase != "setup" || s.LagBytes != nil || len(s.Problems) > 0 {
		t.Errorf("status: %+v", s)
	}
	if now, _ := r.confirmed(); now != confirmed {
		t.Errorf("the slot moved from %s to %s", confirmed, now)
	}
	r.stream()
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	if out, code := r.command([]string{"setup"}, "--slot", r.slot[:len(r.slot)-5]+"_b_slot"); code != 4 || !strings.Contains(out, "slot") {
		t.Errorf("another slot under this pipeline: exit code %d\n%s", code, out)
	}
}

// walstream drop refuses beside an instance, takes the name, finishes what was cut
// short, and leaves nothing that a new start minds.
func TestDropAndBeginAnew(t *testing.T) { inBothAtOnce(t, dropAndBeginAnew) }

func dropAndBeginAnew(t *testing.T) {
	r := sharedRig(t)
	first := r.warm()
	confirm := []string{"drop", "--confirm", r.pipeline}
	if out, code := r.command(confirm); code != 3 || !strings.Contains(out, "is held by") {
		t.Errorf("beside the active instance: exit code %d\n%s", code, out)
	}
	if out, code := r.command([]string{"drop", "--dry-run"}); code != 3 || !strings.Contains(out, "topic walstream.checkpoints."+r.pipeline) || !strings.Contains(out, "is held by") {
		t.Errorf("--dry-run beside the active instance: exit code %d\n%s", code, out)
	}
	second := r.start()
	_, err := second.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	r.check(first.Stop(10 * time.Second))
	r.check(second.WaitStreaming(r.ctx))
	r.put(7)
	r.untilConfirmed()
	r.check(second.Stop(10 * time.Second))
	if out, code := r.command([]string{"drop", "--confirm", "another"}); code != 2 {
		t.Errorf("another name: exit code %d\n%s", code, out)
	}
	if out, code := r.command([]string{"drop"}); code != 2 || !strings.Contains(out, "not confirmed") || !strings.Contains(out, "slot "+r.slot) {
		t.Errorf("without the name: exit code %d\n%s", code, out)
	}
	if out, code := r.command([]string{"drop", "--dry-run"}); code != 0 || !strings.Contains(out, "topic walstream.checkpoints."+r.pipeline) || !strings.Contains(out, "publication ") {
		t.Errorf("--dry-run: exit code %d\n%s", code, out)
	}
	if s := r.standing(); s.Slot == nil || !s.Slot.Exists || s.Checkpoint == nil {
		t.Fatalf("something was dropped already: %+v", s)
	}
	// Cut short behind the slot: no start goes on, another drop finishes.
	r.exec(`SELECT pg_drop_replication_slot($1)`, r.slot)
	s := r.start()
	if code := r.ends(s, 30*time.Second); code != 5 {
		t.Errorf("exit code %d\n%s", code, s.Log())
	}
	if out, code := r.command(confirm); code != 0 || strings.Contains(out, "dropped slot") || !strings.Contains(out, "dropped checkpoint") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if out, code := r.command(confirm); code != 0 || !strings.Contains(out, "nothing of pipeline") {
		t.Errorf("a second time: exit code %d\n%s", code, out)
	}
	if s := r.standing(); s.State != "not set up" {
		t.Errorf("status: %+v", s)
	}
	r.exec(`DELETE FROM bank_outbox`)
	before := len(r.published())
	r.stream()
	r.put(11)
	r.untilConfirmed()
	if n := len(r.published()); n != before+11 {
		t.Errorf("%d rows are published by the new pipeline, want 11", n-before)
	}
}

// A paused instance holds nothing on the server, so nobody sees it: drop would be
// undone by it within a second, the pause being dropped, too.
func TestDropRefusesWhilePaused(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	s := r.warm()
	if out, code := r.command([]string{"pause"}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	out, code := r.command([]string{"drop", "--confirm", r.pipeline})
	if code != 3 || !strings.Contains(out, "paused since") || !strings.Contains(out, "walstream resume --slot "+r.slot) {
		t.Errorf("while paused: exit code %d\n%s", code, out)
	}
	if now := r.standing(); now.Slot == nil || !now.Slot.Exists || now.Checkpoint == nil || now.Pause == nil {
		t.Fatalf("something was dropped: %+v", now)
	}
	r.check(s.Stop(10 * time.Second))
	for _, command := range [][]string{{"resume"}, {"drop", "--confirm", r.pipeline}} {
		if out, code := r.command(command); code != 0 {
			t.Errorf("%s: exit code %d\n%s", command[0], code, out)
		}
	}
}

// walstream check names several faults at once, as JSON too.
func TestCheckNamesAllFaults(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox SET UNLOGGED`)
	cmd := exec.CommandContext(r.ctx, r.binary, append([]string{"check", "--json"}, r.args("--value-column", "nothing", "--create-topics", "false", "--topic-partitions", "0")...)...)
	out, _ := cmd.Output()
	var answer struct {
		OK       bool
		ExitCode int `json:"exit_code"`
		Findings []struct{ Name, Status, Detail, Remedy string }
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	faults := ""
	for _, f := range answer.Findings {
		if f.Status == "fail" {
			faults += f.Detail + "\n"
			if f.Remedy == "" {
				t.Errorf("%s has no remedy: %s", f.Name, f.Detail)
			}
		}
	}
	for _, want := range []string{"unlogged", `no column "nothing"`, "does not exist"} {
		if !strings.Contains(faults, want) {
			t.Errorf("%s is not among the faults:\n%s", want, faults)
		}
	}
	if answer.OK || answer.ExitCode != 3 || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("ok %v, exit codes %d and %d", answer.OK, answer.ExitCode, cmd.ProcessState.ExitCode())
	}
	out, _ = exec.CommandContext(r.ctx, r.binary, append([]string{"check", "--json"}, r.args("--postgres", "postgres://nobody@127.0.0.1:1/none", "--kafka-brokers", "127.0.0.1:1")...)...).Output()
	if err := json.Unmarshal(out, &answer); err != nil || answer.OK {
		t.Fatalf("%v in %s", err, out)
	}
	for _, f := range answer.Findings {
		if f.Status == "fail" && f.Remedy == "" {
			t.Errorf("%s has no remedy: %s", f.Name, f.Detail)
		}
	}
}
