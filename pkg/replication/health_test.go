package replication

import (
	"fmt"
	"testing"
	"time"
)

// TestSlotDetail: what a slot costs, by each version's own views; counters move when
// the server spills, and the oldest transaction is named.
func TestSlotDetail(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		slot := e.name("slot")
		e.slot(slot, "'test_decoding'")
		version, err := ServerVersion(t.Context(), e.conn)
		if err != nil {
			t.Fatal(err)
		}
		session, err := OpenSession(t.Context(), Options{Postgres: e.dsn, ApplicationName: "x.y"})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		read := func() Health {
			t.Helper()
			session.detailAt = time.Time{} // now, not in ten seconds
			h, err := session.ReadSlot(t.Context(), slot)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		h := read()
		if h.Detail == nil || h.WALStatus != "reserved" || h.WALEnd == 0 || h.Restart == 0 || h.WalsenderActive || h.Detail.WalsenderState != "" || h.Detail.At.IsZero() {
			t.Fatalf("%+v %+v", h, h.Detail)
		}
		if since := h.Detail.InactiveSince; since.IsZero() != (version < 170000) {
			t.Errorf("inactive since %s on %d", since, version)
		}
		e.exec(`CREATE TABLE ` + e.name("big") + ` AS SELECT repeat('x', 500) AS filler FROM generate_series(1, 3000)`)
		e.exec(`SET logical_decoding_work_mem = '64kB'`)
		deadline := time.Now().Add(30 * time.Second) // the server reports its counters late
		for h = read(); h.Detail.Decoding.SpillBytes == 0 || h.Detail.Decoding.TotalBytes == 0; h = read() {
			if time.Now().After(deadline) {
				t.Fatalf("nothing was spilled: %+v", h.Detail.Decoding)
			}
			e.exec(fmt.Sprintf(`SELECT count(*) FROM pg_logical_slot_peek_changes('%s', NULL, NULL)`, slot))
		}
		if c := h.Detail.Decoding; c.SpillTxns < 1 || c.SpillCount < 1 || c.TotalTxns < 1 || c.StreamTxns != 0 {
			t.Errorf("%+v", c)
		}
		tx, err := e.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		var pid int32
		if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid() FROM txid_current()`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		for h = read(); h.Detail.Oldest == nil || h.Detail.Oldest.PID != pid; h = read() { // other tests' may be older
			if time.Now().After(deadline.Add(30 * time.Second)) {
				t.Fatalf("the oldest transaction is %v, not %d", h.Detail.Oldest, pid)
			}
		}
		if age := h.Detail.At.Sub(h.Detail.Oldest.Since); age < 0 || age > time.Minute {
			t.Errorf("it is %s old", age)
		}
	})
}
