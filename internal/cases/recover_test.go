package cases

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/testenv"
)

// recovered is the report of walstream recover, as a machine reads it.
type recovered struct {
	Executed  bool   `json:"executed"`
	SlotNow   string `json:"slot_state"`
	NewSlot   bool   `json:"new_slot"`
	Switch    string `json:"timeline_left_at"`
	Read      int    `json:"rows_read"`
	Found     int    `json:"rows_found"`
	Left      int    `json:"rows_left_to_stream"`
	Published int    `json:"rows_published"`
	Reused    int    `json:"ids_in_use_again"`
	Lost      int    `json:"events_lost"`
	Window    struct {
		All   bool      `json:"all_rows"`
		Since time.Time `json:"since"`
	} `json:"window"`
	Tables []struct {
		Outside int `json:"rows_outside"`
	} `json:"tables"`
	PublishedIDs []string `json:"published_ids"`
	ReusedIDs    []string `json:"reused_ids"`
	LostIDs      []string `json:"lost_ids"`
	NotCovered   []string `json:"not_covered"`
}

// recover runs the command; the report is the last line that is JSON.
func (r *rig) recover(extra ...string) recovered {
	r.t.Helper()
	var report recovered
	r.until("the slot to be free", func() bool {
		var active bool
		r.check(r.db.QueryRow(r.ctx, `SELECT coalesce((SELECT active FROM pg_replication_slots WHERE slot_name = $1), false)`, r.slot).Scan(&active))
		return !active
	})
	out, code := r.command([]string{"recover", "--json"}, extra...)
	if code != 0 {
		r.t.Fatalf("exit code %d\n%s", code, out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `{"pipeline"`) {
			r.check(json.Unmarshal([]byte(line), &report))
			return report
		}
	}
	r.t.Fatalf("no report in\n%s", out)
	return report
}

func (r *rig) execute(extra ...string) recovered {
	r.t.Helper()
	return r.recover(append([]string{"--execute", "true", "--confirm", r.pipeline}, extra...)...)
}

// held holds a report against what was done to the rows.
func (r *rig) held(got recovered, want recovered) {
	r.t.Helper()
	a := fmt.Sprintf("read %d found %d left %d published %d reused %d lost %d", got.Read, got.Found, got.Left, got.Published, got.Reused, got.Lost)
	b := fmt.Sprintf("read %d found %d left %d published %d reused %d lost %d", want.Read, want.Found, want.Left, want.Published, want.Reused, want.Lost)
	if a != b {
		r.t.Errorf("reported: %s\nthe truth: %s\n%+v", a, b, got)
	}
}

// The slot is dropped: the refusal names the command, which looks, and then makes
// the slot anew and publishes what is in no topic, in the order of positions.
func TestC10RecoverSlotDropped(t *testing.T) {
	inBothAtOnce(t, func(t *testing.T) {
		r := sharedRig(t)
		s := r.warm()
		r.put(20)
		r.untilConfirmed()
		r.check(s.Stop(20 * time.Second))
		r.put(5)
		r.exec(dropOnly, r.slot)
		r.refused(r.start(), 5, "walstream recover --slot "+r.slot+" --pipeline "+r.pipeline, "--execute")
		want := recovered{Read: 26, Found: 21, Published: 5}
		found := r.recover()
		r.held(found, want)
		if found.Executed || !found.NewSlot || found.SlotNow != "missing" || len(found.PublishedIDs) != 5 {
			t.Errorf("%+v", found)
		}
		r.refused(r.start(), 5, "does not exist") // looking does nothing
		r.held(r.execute(), want)
		r.goesOn(r.stream())
		r.onceEach()
		r.verify()
		if out, code := r.command([]string{"audit"}); code != 0 {
			t.Errorf("audit: exit code %d\n%s", code, out)
		}
		out, code := r.command([]string{"recover"}, "--confirm", "another")
		if code != 2 || !strings.Contains(out, "nothing was done") {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
}

// The slot was moved by somebody: what lies in the gap is published, and the slot
// stays.
func TestRecoverSlotAhead(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	r.check(r.warm().Stop(20 * time.Second))
	r.put(5)
	r.exec(advanceSlot, r.slot)
	r.put(3)
	r.refused(r.start(), 4, "ahead of the checkpoint", "walstream recover")
	want := recovered{Read: 9, Found: 1, Left: 3, Published: 5}
	r.held(r.recover(), want)
	r.held(r.execute(), want)
	r.goesOn(r.stream())
	r.onceEach()
	r.verify()
}

// The slot is invalidated.
func TestC10RecoverSlotInvalidated(t *testing.T) {
	t.Parallel()
	r, _ := ownServer(t, testenv.PGOptions{Params: map[string]string{
		"max_slot_wal_keep_size": "32MB", "min_wal_size": "32MB", "max_wal_size": "48MB",
	}})
	r.check(r.warm().Stop(20 * time.Second))
	r.put(7)
	r.until("the slot to be lost", func() bool {
		r.wal(20_000)
		r.exec(`CHECKPOINT`)
		var status string
		r.check(r.db.QueryRow(r.ctx, `SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&status))
		return status == "lost"
	})
	r.refused(r.start(), 5, "is invalidated", "walstream recover")
	want := recovered{Read: 8, Found: 1, Published: 7}
	if found := r.recover(); !strings.HasPrefix(found.SlotNow, "invalidated") || !found.NewSlot {
		t.Errorf("%+v", found)
	}
	r.held(r.execute(), want)
	r.goesOn(r.stream())
	r.verify()
}

// A standby that had not received everything is promoted, and has no slot. What Kafka
// holds and no server does is named; an id that is given out again is a new event.
func TestC10RecoverFailover(t *testing.T) {
	inBothAtOnce(t, func(t *testing.T) {
		r, pg := ownServer(t, testenv.PGOptions{})
		r.delivery = deliveryOf(t)
		standby := testenv.NewStandby(t, pg, testenv.StandbyOptions{})
		both := r.hosts(pg, standby)
		s := r.warm("--postgres", both)
		r.put(10)
		r.untilConfirmed()
		r.received(pg, standby)
		r.check(standby.Exec(r.ctx, "", `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`))
		r.until("the standby to be cut off", func() bool {
			var senders int
			r.check(r.db.QueryRow(r.ctx, `SELECT count(*) FROM pg_stat_replication WHERE application_name <> $1`, r.pipeline).Scan(&senders))
			return senders == 0
		})
		again := "00000000-0000-4000-8000-000000000001"
		r.put(4)
		r.exec(`INSERT INTO bank_outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'account', 'acc-1', 'deposited', '{"i": 1}')`, again)
		r.untilConfirmed() // in Kafka, and on no server soon
		r.check(pg.Kill())
		r.promote(standby, both)
		r.exec(`INSERT INTO bank_outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'account', 'acc-1', 'deposited', '{"i": 2}')`, again)
		r.put(3)
		r.refused(s, 5, "does not exist on this server", "walstream recover")
		want := recovered{Read: 15, Found: 11, Published: 4, Reused: 1, Lost: 5}
		found := r.recover()
		r.held(found, want)
		if found.Switch == "" || len(found.ReusedIDs) != 1 || !strings.HasSuffix(found.ReusedIDs[0], again) || len(found.LostIDs) != 5 {
			t.Errorf("%+v", found)
		}
		r.held(r.execute(), want)
		r.goesOn(r.stream())
		counts := map[string]int{}
		r.markersWritten(r.topic)
		for _, rec := range r.published() {
			counts[header(rec, "walstream-event-id")+" "+string(rec.Value)]++
		}
		if counts[again+` {"i": 1}`] != 1 || counts[again+` {"i": 2}`] != 1 || len(counts) != 11+5+4+3 {
			t.Errorf("%d events, of them of the id in use again: %v", len(counts), counts)
		}
	})
}

// A recovery that is killed goes on where it was: by the command, or by the service.
func TestRecoverKilled(t *testing.T) {
	inBothAtOnce(t, func(t *testing.T) {
		r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
		proxy.Bandwidth(4096) // slow enough to be killed in its middle
		s := r.warm()
		r.put(3000)
		r.untilConfirmed()
		r.check(s.Stop(20 * time.Second))
		r.exec(dropOnly, r.slot)
		r.exec(putSQL, 60_000)
		begin := func() *exec.Cmd {
			cmd := exec.CommandContext(r.ctx, r.binary, append([]string{"recover"}, r.args("--execute", "true", "--confirm", r.pipeline)...)...)
			r.check(cmd.Start())
			return cmd
		}
		for range 3 {
			before := len(r.published())
			cmd := begin()
			r.until("pages to be published", func() bool { return len(r.published()) > before+2000 || cmd.ProcessState != nil })
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			proxy.Cut() // what is on its way would arrive behind the next one's look at the topic
			proxy.Restore()
			proxy.Bandwidth(4096)
			r.until("the slot to be free", func() bool {
				var active bool
				r.check(r.db.QueryRow(r.ctx, `SELECT coalesce((SELECT active FROM pg_replication_slots WHERE slot_name = $1), false)`, r.slot).Scan(&active))
				return !active
			})
		}
		s = r.stream()
		if !strings.Contains(s.Log(), "recovery: complete") {
			t.Errorf("the service finished none:\n%s", s.Log())
		}
		r.put(5)
		r.untilConfirmed()
		r.onceEach() // also in at-least-once: what was published is found
		if r.delivery == exactlyOnce {
			r.verify()
		}
	})
}

// What a transaction commits late: where it wrote later than the last one published,
// it is found whatever its rows say; where it had written before, by a window that
// reaches so far.
func TestRecoverLateCommit(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	s := r.warm()
	const insert = `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		VALUES ('account', 'acc-1', 'deposited', '{}', now() - $1::interval)`
	late := r.connect()
	_, err := late.Exec(r.ctx, `BEGIN`)
	r.check(err)
	_, err = late.Exec(r.ctx, insert, "3 hours")
	r.check(err)
	r.put(10)
	r.until("the rows to be published", func() bool { return len(r.published()) == 11 })
	r.check(s.Stop(20 * time.Second))
	_, err = late.Exec(r.ctx, `COMMIT`)
	r.check(err)
	r.exec(insert, "5 hours") // wrote later than the checkpoint's
	r.exec(dropOnly, r.slot)
	found := r.recover()
	r.held(found, recovered{Read: 12, Found: 11, Published: 1})
	if found.Tables[0].Outside != 1 || !strings.Contains(strings.Join(found.NotCovered, "\n"), "open for longer than the window") {
		t.Errorf("%+v", found)
	}
	want := recovered{Read: 13, Found: 11, Published: 2}
	r.held(r.recover("--window", "4h"), want)
	r.held(r.recover("--all-rows", "true"), want)
	r.held(r.execute("--window", "4h"), want)
	r.goesOn(r.stream())
	r.onceEach()
}

// Kafka has lost the topics, with or without the checkpoint, and the slot is well: all
// rows are published again, and the stream goes on where it was.
func TestRecoverKafkaWiped(t *testing.T) {
	inBothAtOnce(t, func(t *testing.T) {
		for _, checkpoint := range []bool{true, false} {
			r := sharedRig(t)
			s := r.warm()
			r.put(20)
			r.untilConfirmed()
			r.check(s.Stop(20 * time.Second))
			r.put(4)
			wiped := []string{r.topic}
			if !checkpoint {
				wiped = append(wiped, "walstream.checkpoints."+r.pipeline)
			}
			_, err := r.admin.DeleteTopics(r.ctx, wiped...)
			r.check(err)
			r.until("the topic to be gone", func() bool {
				topics, err := r.admin.ListTopics(r.ctx, wiped...)
				return err == nil && len(topics.TopicsList()) == 0 || topicsGone(topics, err)
			})
			args := []string{"--all-rows", "true"}
			if !checkpoint {
				message := r.refused(r.start(), 4, "Kafka holds no checkpoint", "walstream recover")
				args = append(args, r.flags(message)...)
			}
			want := recovered{Read: 25, Left: 4, Published: 21}
			r.held(r.recover(args...), want)
			r.held(r.execute(args...), want)
			r.goesOn(r.stream())
			r.onceEach()
		}
	})
}

// The server was restored from a backup, and uses LSNs again that were used: the
// refusals name the command with the new slot.
func TestRecoverRestored(t *testing.T) {
	t.Parallel()
	r, pg := ownServer(t, testenv.PGOptions{})
	r.check(r.warm().Stop(20 * time.Second))
	backup := r.copied(pg)
	s := r.stream()
	r.put(5)
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	r.restoredFrom(pg, backup)
	r.wal(2000)
	r.put(2)
	r.refused(r.start(), 4, "the server's history is not the one that was published", "walstream recover --new-slot")
	want := recovered{Read: 3, Found: 1, Published: 2}
	found := r.recover("--new-slot", "true")
	r.held(found, want)
	if !found.NewSlot || !strings.Contains(strings.Join(found.NotCovered, "\n"), "cannot be named") {
		t.Errorf("%+v", found)
	}
	r.held(r.execute("--new-slot", "true"), want)
	r.goesOn(r.stream())
	r.onceEach()
}

// The publication lacked the table for a while: what the stream does not carry is
// published, and what it does is left to it.
func TestRecoverPublication(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	r.check(r.warm().Stop(20 * time.Second))
	r.exec(fmt.Sprintf(`ALTER PUBLICATION %s SET (publish = 'update')`, r.publication()))
	r.put(5)
	r.exec(fmt.Sprintf(`ALTER PUBLICATION %s SET (publish = 'insert')`, r.publication()))
	r.put(2)
	r.exec(fmt.Sprintf(`ALTER PUBLICATION %s SET TABLE bank_outbox (id, aggregate_id, event_type, payload, headers)`, r.publication()))
	r.refused(r.start(), 4, "was changed since the checkpoint", "--accept-publication=")
	want := recovered{Read: 8, Found: 1, Left: 2, Published: 5}
	r.held(r.recover(), want)
	r.held(r.execute(), want)
	r.goesOn(r.stream())
	r.onceEach()
}

func topicsGone(topics kadm.TopicDetails, err error) bool {
	if err != nil {
		return false
	}
	for _, t := range topics {
		if t.Err == nil {
			return false
		}
	}
	return true
}

// Nothing is recovered where there is nothing to, or somebody is at work.
func TestRecoverRefuses(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	for _, step := range []struct {
		do   func()
		code int
		says string
	}{
		{func() {}, 3, "--snapshot initial"},
		{func() { r.warm() }, 3, "stop it first"},
	} {
		step.do()
		out, code := r.command([]string{"recover"}, "--execute", "true", "--confirm", r.pipeline)
		if code != step.code || !strings.Contains(out, step.says) {
			t.Errorf("exit code %d\n%s", code, out)
		}
	}
}
