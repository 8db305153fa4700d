package cases

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// standsBy waits until an instance waits for the slot, and holds what it says
// against the server: which PID, from where, since when.
func (r *rig) standsBy(s *service.Service) (pid int, reason string) {
	r.t.Helper()
	status, err := s.WaitFor(r.ctx, "standing by", func(st service.Status) bool { return st.State == "standby" })
	r.check(err)
	var since time.Time
	var address string
	r.check(r.db.QueryRow(r.ctx, `SELECT a.pid, host(a.client_addr), a.backend_start FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
		WHERE slot_name = $1`, r.slot).Scan(&pid, &address, &since))
	for _, part := range []string{fmt.Sprintf("PID %d", pid), " at " + address, " since " + since.UTC().Format(time.RFC3339)} {
		if !strings.Contains(status.Reason, part) {
			r.t.Errorf("standing by does not say %q: %s", part, status.Reason)
		}
	}
	return pid, status.Reason
}

// The holder's machine is gone without a word, and the server has no time-out of its
// own: the one that walstream sets on its session frees the slot.
func TestC12HolderVanishes(t *testing.T) {
	t.Parallel()
	pg := testenv.NewPostgres(t, testenv.PGOptions{Params: map[string]string{"wal_sender_timeout": "0"}})
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	r.delivery = exactlyOnce
	way := newWay(t, addressOf(r))
	first := r.warm("--postgres", replaceOnce(t, r.dsn, addressOf(r), way.addr))
	second := r.start()
	held, reason := r.standsBy(second)
	if strings.Contains(reason, "pg_terminate_backend") {
		t.Errorf("an instance of its own pipeline is to be ended: %s", reason)
	}
	way.vanish()
	r.put(5)
	first.Kill()
	began := time.Now()
	for st := (service.Status{}); st.State != "streaming"; time.Sleep(50 * time.Millisecond) {
		var err error
		if st, err = second.Status(r.ctx); err != nil || restarts(st) > 1 { // one, to take over
			t.Fatalf("no calm wait: %+v (%v)\n%s", st, err, second.Log())
		}
		if time.Since(began) > 25*time.Second {
			t.Fatalf("not taken over after %s: %+v", time.Since(began), st)
		}
	}
	t.Logf("taken over after %s", time.Since(began).Round(100*time.Millisecond))
	if now := r.holder(); now == held || now == 0 {
		t.Errorf("the slot is held by %d, as before by %d", now, held)
	}
	if n := strings.Count(second.Log(), "standing by"); n != 1 {
		t.Errorf("%d lines about standing by, want 1", n)
	}
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// holder is the PID that has the slot; 0: none.
func (r *rig) holder() (pid int) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, `SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&pid))
	return pid
}

// A client that is no walstream holds the slot, and no time-out will ever free it: it
// is named with the way out, is not ended by us, and after that it goes on by itself.
func TestC12ForeignHolder(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	r.check(r.warm().Stop(20 * time.Second))
	foreign, err := pgconn.Connect(r.ctx, r.dsn+"&replication=database&application_name=pg_recvlogical&options=-c%20wal_sender_timeout%3D0")
	r.check(err)
	t.Cleanup(func() { _ = foreign.Close(context.Background()) })
	r.check(pglogrepl.StartReplication(r.ctx, foreign, r.slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + r.publication() + "'"},
	}))
	r.put(5)
	s := r.start()
	pid, reason := r.standsBy(s)
	wayOut := fmt.Sprintf("SELECT pg_terminate_backend(%d);", pid)
	if !strings.Contains(reason, "(pg_recvlogical)") || !strings.Contains(reason, wayOut) {
		t.Errorf("standing by does not name the holder and the way out: %s", reason)
	}
	r.during(scaled(20*time.Second), func() {
		if now := r.holder(); now != pid {
			t.Errorf("the slot is held by %d, and not by %d: whoever it was is not ours to end", now, pid)
		}
	})
	if status, err := s.Status(r.ctx); err != nil || status.State != "standby" || restarts(status) > 0 {
		t.Errorf("%+v (%v)", status, err)
	}
	r.exec(wayOut)
	r.check(s.WaitStreaming(r.ctx))
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

// An instance that was left under the pipeline's earlier name stands by for one that
// it will never take over from, and says so wherever somebody looks.
func TestC12LeftBehind(t *testing.T) {
	t.Parallel()
	r := onceRig(t)
	r.check(r.warm().Stop(20 * time.Second))
	r.slotFree(10 * time.Second)
	r.exec(dropOnly, r.slot)
	newer := r.pipeline + "-2"
	r.check(r.stream("--pipeline", newer).WaitStreaming(r.ctx))
	left := r.start()
	_, reason := r.standsBy(left)
	code, ready, err := left.Get(r.ctx, "/readyz")
	r.check(err)
	if code != 200 {
		t.Errorf("/readyz answers %d: a rolling change of the name would never end", code)
	}
	_, status, err := left.Get(r.ctx, "/status")
	r.check(err)
	for where, text := range map[string]string{"reason": reason, "/readyz": string(ready), "log": left.Log(), "/status": string(status)} {
		if !strings.Contains(text, "--pipeline="+newer) || !strings.Contains(text, "left behind") {
			t.Errorf("%s does not name the newer pipeline: %s", where, text)
		}
	}
	if !strings.Contains(left.Log(), `"level":"warn"`) || !strings.Contains(string(status), "give this instance that name") {
		t.Errorf("no warning, or no remedy:\n%s\n%s", left.Log(), status)
	}
	out, _ := r.command([]string{"status"}, "--pipeline", r.pipeline)
	if !strings.Contains(out, "held by another program") {
		t.Errorf("walstream status:\n%s", out)
	}
}
