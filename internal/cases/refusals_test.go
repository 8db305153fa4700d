package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// What a start or a stream stops on for the sake of "nothing lost": each refusal of
// docs/refusals.md, provoked on real servers. Its message must hold the gap, in
// LSNs, bytes and time, and the ways out; these are then taken, word by word, and
// the flow is there again with the promised result.

// refused waits until walstream has ended with code, and returns what it said.
func (r *rig) refused(s *service.Service, code int, says ...string) string {
	r.t.Helper()
	if got := r.ends(s, 30*time.Second); got != code {
		r.t.Fatalf("exit code %d, want %d\n%s", got, code, s.Log())
	}
	lines := strings.Split(s.Log(), "\n")
	message := strings.ReplaceAll(lines[len(lines)-1], `\"`, `"`)
	for _, part := range says {
		if !strings.Contains(message, part) {
			r.t.Errorf("the refusal does not say %q:\n%s", part, message)
		}
	}
	return message
}

var (
	gapLSN   = regexp.MustCompile(`\b[0-9A-F]+/[0-9A-F]+\b`)
	gapBytes = regexp.MustCompile(`\b[0-9.]+ ([KMG]i)?B\b`)
	gapTime  = regexp.MustCompile(`of 2\d{3}-[0-9-]+T[0-9:]+Z, ([0-9]+h)?([0-9]+m)?[0-9]+s ago`)
)

// namesGap holds a refusal against what a person needs to judge it.
func (r *rig) namesGap(message string) {
	r.t.Helper()
	for what, wanted := range map[string]*regexp.Regexp{"LSNs": gapLSN, "bytes": gapBytes, "time": gapTime} {
		if !wanted.MatchString(message) {
			r.t.Errorf("the refusal does not tell the gap in %s:\n%s", what, message)
		}
	}
}

var (
	saidSQL  = regexp.MustCompile(`(?:SELECT|ALTER|GRANT|BEGIN|DROP)\b[^;]*;(?: ALTER [^;]*;)*(?: COMMIT;)?`)
	saidFlag = regexp.MustCompile(`--(adopt-slot|accept-[a-z-]+|pipeline|slot|publication)=([^\s;,"]+)`)
)

// takeSQL runs the statements that a message prints, and fails when there are none.
func (r *rig) takeSQL(message string) {
	r.t.Helper()
	found := saidSQL.FindAllString(message, -1)
	if len(found) == 0 {
		r.t.Fatalf("no statement in\n%s", message)
	}
	for _, sql := range found {
		if _, err := r.db.Exec(r.ctx, sql); err != nil {
			r.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// flags that a message names with a value, as start takes them.
func (r *rig) flags(message string) (args []string) {
	r.t.Helper()
	for _, m := range saidFlag.FindAllStringSubmatch(message, -1) {
		args = append(args, "--"+m[1], m[2])
		if m[1] == "pipeline" {
			r.pipeline = m[2] // now and from now on
		}
	}
	if len(args) == 0 {
		r.t.Fatalf("no flag in\n%s", message)
	}
	return args
}

var saidAudit = regexp.MustCompile(`walstream (audit(?: --[a-z-]+=[^\s;,"]+(?:,[^\s;,"]+)*)+)`)

// sendAgain runs the audit that a message names, and on what it lists the statement
// of docs/refusals.md. It returns how many rows were sent again.
func (r *rig) sendAgain(message string) (rows int) {
	r.t.Helper()
	found := saidAudit.FindStringSubmatch(message)
	if found == nil {
		r.t.Fatalf("no audit in\n%s", message)
	}
	r.untilConfirmed()
	file := filepath.Join(r.t.TempDir(), "missing.txt")
	out, code := r.command(strings.Fields(strings.Replace(found[1], "missing.txt", file, 1)))
	if code != 0 && code != 9 {
		r.t.Fatalf("audit: exit code %d\n%s", code, out)
	}
	listed, err := os.ReadFile(file)
	r.check(err)
	ids := strings.Fields(string(listed))
	r.exec(`CREATE TEMP TABLE IF NOT EXISTS missing (id text); `)
	r.exec(`TRUNCATE missing`)
	_, err = r.db.CopyFrom(r.ctx, pgx.Identifier{"missing"}, []string{"id"}, pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i]}, nil }))
	r.check(err)
	r.exec(resend(r.t))
	r.untilConfirmed()
	return len(ids)
}

// resend is the statement of docs/refusals.md, for the rig's table.
func resend(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/refusals.md")
	if err != nil {
		t.Fatal(err)
	}
	statement := regexp.MustCompile(`(?s)WITH again AS.*?;`).FindString(string(text))
	if statement == "" {
		t.Fatal("docs/refusals.md has no statement that sends rows again")
	}
	return strings.NewReplacer("public.outbox", "bank_outbox", "event_id", "id", "ORDER BY id", "ORDER BY seq").Replace(statement)
}

// onceEach holds that every row of the table is in Kafka once. Other records may be
// there: of rows that the server has lost.
func (r *rig) onceEach() {
	r.t.Helper()
	rows, err := r.db.Query(r.ctx, `SELECT id::text FROM bank_outbox`)
	r.check(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	r.check(err)
	r.markersWritten(r.topic)
	seen := map[string]int{}
	for _, rec := range r.published() {
		seen[header(rec, "walstream-event-id")]++
	}
	for _, id := range ids {
		if seen[id] != 1 {
			r.t.Errorf("row %s is in Kafka %d times", id, seen[id])
		}
	}
}

// goesOn holds that the stream is well, without any of the answers.
func (r *rig) goesOn(s *service.Service) {
	r.t.Helper()
	r.check(s.WaitStreaming(r.ctx))
	r.put(2)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	s = r.stream()
	r.put(1)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
}

// onceRig is a rig in the default delivery, in which a duplicate is a failure.
func onceRig(t *testing.T) *rig {
	t.Helper()
	r := sharedRig(t)
	r.delivery = exactlyOnce
	return r
}

func proxiedOnceRig(t *testing.T) (*rig, *testenv.Proxy) {
	t.Helper()
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	r.delivery = exactlyOnce
	return r, proxy
}

// whileRunning does what needs a slot that nobody holds, under a stream: the
// walsender is ended, and the statement is faster than the next start.
func (r *rig) whileRunning(sql string, args ...any) {
	r.t.Helper()
	r.until("the slot to be free for a moment", func() bool {
		r.exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, r.slot)
		_, err := r.db.Exec(r.ctx, sql, args...)
		return err == nil
	})
}

const (
	advanceSlot = `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`
	dropOnly    = `SELECT pg_drop_replication_slot($1)`
	createSlot  = `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`
)

// The slot stands beyond what was published: somebody moved it, or made it anew.
func TestRefusalSlotAhead(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{"moved": advanceSlot, "replaced": dropOnly} {
		t.Run(name+" while down", func(t *testing.T) {
			r := onceRig(t)
			s := r.warm()
			r.check(s.Stop(20 * time.Second))
			r.put(5)
			r.exec(sql, r.slot)
			if name == "replaced" {
				r.exec(createSlot, r.slot)
			}
			r.put(3)
			r.overTheGap(r.start(), 5)
		})
		t.Run(name+" while running", func(t *testing.T) {
			r, proxy := proxiedOnceRig(t) // rows that are not published yet: Kafka does not answer
			s := r.warm()
			proxy.Blackhole()
			r.put(5)
			r.whileRunning(sql, r.slot)
			if name == "replaced" {
				r.exec(createSlot, r.slot)
			}
			proxy.Restore()
			r.put(3)
			r.overTheGap(s, 5)
		})
	}
}

// overTheGap takes the way out of a slot that is ahead.
func (r *rig) overTheGap(s *service.Service, lost int) {
	r.t.Helper()
	message := r.refused(s, 4, "ahead of the checkpoint", r.slot, "--accept-gap=")
	r.namesGap(message)
	r.asTold(message, lost)
}

// asTold does what a refusal says, sends again what its gap lacks, and goes on with
// each row once.
func (r *rig) asTold(message string, lost int) {
	r.t.Helper()
	s := r.stream(r.flags(message)...)
	if sent := r.sendAgain(message); sent != lost {
		r.t.Errorf("%d rows were sent again, want %d", sent, lost)
	}
	r.goesOn(s)
	r.onceEach()
}

// The slot is gone.
func TestRefusalSlotMissing(t *testing.T) {
	t.Parallel()
	t.Run("while down", func(t *testing.T) {
		r := onceRig(t)
		r.check(r.warm().Stop(20 * time.Second))
		r.put(5)
		r.exec(dropOnly, r.slot)
		r.anew(r.start(), "does not exist on this server", 5)
	})
	t.Run("while running", func(t *testing.T) {
		r, proxy := proxiedOnceRig(t)
		s := r.warm()
		proxy.Blackhole()
		r.put(5)
		r.whileRunning(dropOnly, r.slot)
		proxy.Restore()
		r.anew(s, "does not exist on this server", 5)
	})
}

// anew takes the way out that begins with another pipeline.
func (r *rig) anew(s *service.Service, says string, lost int) {
	r.t.Helper()
	message := r.refused(s, 5, says, r.slot, "--pipeline="+r.pipeline+"-2", "--earlier-pipelines="+r.pipeline)
	r.namesGap(message)
	if strings.Contains(message, "pg_drop_replication_slot") {
		r.slotFree(10 * time.Second) // a walsender outlives its client by a moment
		r.takeSQL(message)
	}
	r.asTold(message, lost)
}

// A slot that nobody knows: walstream did not make it, or Kafka forgot.
func TestRefusalNoCheckpoint(t *testing.T) {
	t.Parallel()
	t.Run("made by hand", func(t *testing.T) {
		r := onceRig(t)
		r.exec(`CREATE PUBLICATION ` + r.publication() + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
		r.exec(createSlot, r.slot)
		r.put(5)
		message := r.refused(r.start(), 4, "Kafka holds no checkpoint", r.slot, "pg_drop_replication_slot")
		r.untimedGap(message)
		r.goesOn(r.stream(r.flags(message)...))
		r.onceEach()
	})
	t.Run("Kafka was wiped", func(t *testing.T) {
		r := onceRig(t)
		r.check(r.warm().Stop(20 * time.Second))
		_, err := r.admin.DeleteTopic(r.ctx, "walstream.checkpoints."+r.pipeline)
		r.check(err)
		r.put(5)
		message := r.refused(r.start(), 4, "Kafka holds no checkpoint", r.slot)
		r.untimedGap(message)
		r.goesOn(r.stream(r.flags(message)...))
		r.onceEach()
	})
	t.Run("begun anew", func(t *testing.T) {
		r := onceRig(t)
		r.check(r.warm().Stop(20 * time.Second))
		_, err := r.admin.DeleteTopic(r.ctx, "walstream.checkpoints."+r.pipeline)
		r.check(err)
		message := r.refused(r.start(), 4, "Kafka holds no checkpoint")
		r.slotFree(10 * time.Second)
		r.takeSQL(message)
		r.goesOn(r.stream()) // rows from before are not in it: it says so
		r.onceEach()
	})
}

// untimedGap: no checkpoint, no time of the last row.
func (r *rig) untimedGap(message string) {
	r.t.Helper()
	if !gapLSN.MatchString(message) || !gapBytes.MatchString(message) {
		r.t.Errorf("the refusal does not tell the gap:\n%s", message)
	}
}

// A pipeline's name that is taken.
func TestRefusalOtherPipeline(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	s := r.warm()
	message := r.refused(r.start("--slot", "other_slot"), 4, "is for slot", r.slot, "other_slot", "--pipeline")
	if strings.Contains(message, "--accept") {
		t.Errorf("nothing can be accepted here: %s", message)
	}
	r.put(1) // nobody was disturbed
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	r.onceEach()
}

func (r *rig) publication() string { return strings.TrimSuffix(r.slot, "_slot") + "_pub" }

// Slots that are no use to anybody here, each with its reason and way out.
func TestRefusalUnusableSlot(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	other := r.dsn[strings.LastIndex(r.dsn, "/")+1:]
	other, _, _ = strings.Cut(other, "?")
	for name, c := range map[string]struct {
		sql  string
		says []string
	}{
		"physical":       {`SELECT pg_create_physical_replication_slot($1)`, []string{"it is a physical slot", "--slot"}},
		"another plugin": {`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, []string{"its plugin is test_decoding", "--slot"}},
		"temporary":      {`SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)`, []string{"it is temporary", "--slot"}},
	} {
		t.Run(name, func(t *testing.T) {
			slot := fmt.Sprintf("s_%d", time.Now().UnixNano())
			r.exec(c.sql, slot)
			defer func() { _, _ = r.db.Exec(r.ctx, dropOnly, slot) }()
			r.refused(r.start("--slot", slot, "--pipeline", slot), 3, append(c.says, slot)...)
			var confirmed int
			r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND NOT (active AND NOT temporary)`, slot).Scan(&confirmed))
			if confirmed != 1 {
				t.Error("the slot is not as it was")
			}
		})
	}
	t.Run("another database", func(t *testing.T) {
		there := onceRig(t)
		there.exec(createSlot, there.slot)
		r.refused(r.start("--slot", there.slot, "--pipeline", there.pipeline), 3, "it belongs to database", other, "--slot")
	})
	t.Run("no name for a slot", func(t *testing.T) {
		r.refused(r.start("--slot", "Bank-Outbox"), 2, "Bank-Outbox", "is no slot name")
	})
}

// A publication that no longer brings the table: preflight has the statement, and
// what was committed meanwhile is found by the audit.
func TestRefusalPublication(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"table taken out": `ALTER PUBLICATION %s DROP TABLE bank_outbox`,
		"row filter":      `ALTER PUBLICATION %s SET TABLE bank_outbox WHERE (event_type <> 'deposited')`,
		"columns":         `ALTER PUBLICATION %s SET TABLE bank_outbox (id, aggregate_id)`,
		"no inserts":      `ALTER PUBLICATION %s SET (publish = 'update')`,
	} {
		t.Run(name, func(t *testing.T) {
			r := onceRig(t)
			r.check(r.warm().Stop(20 * time.Second))
			r.exec(fmt.Sprintf(change, r.publication()))
			r.put(5)
			message := r.refused(r.start(), 3, r.publication())
			r.takeSQL(message)
			r.put(1)
			message = r.refused(r.start(), 4, "was changed since the checkpoint", "--accept-publication=")
			r.namesGap(message)
			s := r.start(r.flags(message)...)
			if name == "columns" { // what was written meanwhile comes without what is mapped
				passed := r.refused(s, 3, `column "payload"`, "pg_replication_slot_advance")
				r.slotFree(10 * time.Second) // a walsender outlives its client by a moment
				r.takeSQL(passed)
				gap := r.refused(r.start(), 4, "ahead of the checkpoint")
				r.namesGap(gap)
				s = r.start(r.flags(gap)...)
			}
			r.check(s.WaitStreaming(r.ctx))
			if sent := r.sendAgain(message); sent != 5 {
				t.Errorf("%d rows were sent again, want 5", sent)
			}
			r.goesOn(s)
			r.onceEach()
		})
	}
}
