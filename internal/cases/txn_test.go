package cases

import (
	"strconv"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Messages that are not rows: types, truncates, logical messages, origins.
func TestC32MessagesNobodyExpected(t *testing.T) { inBothAtOnce(t, messagesNobodyExpected) }

func messagesNobodyExpected(t *testing.T) {
	r := sharedRig(t)
	r.exec(`CREATE TYPE mood AS ENUM ('calm', 'busy');
		CREATE DOMAIN short AS text CHECK (length(value) < 20);
		ALTER TABLE bank_outbox ADD COLUMN mood mood DEFAULT 'calm', ADD COLUMN note short DEFAULT 'n'`)
	s := r.stream("--header-columns", "mood,note")
	r.put(3)
	r.exec(`SELECT pg_logical_emit_message(true, 'walstream', 'hello')`)
	r.exec(`SELECT pg_logical_emit_message(false, 'walstream', 'hello')`)
	r.exec(`BEGIN; INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'b', 'c', '1');
		SELECT pg_logical_emit_message(true, 'walstream', 'in between'); COMMIT`)
	r.exec(`SELECT pg_replication_origin_create($1)`, r.slot)
	r.exec(`SELECT pg_replication_origin_session_setup('` + r.slot + `')`)
	r.put(2)
	r.exec(`SELECT pg_replication_origin_session_reset()`)
	r.exec(`SELECT pg_replication_origin_drop($1)`, r.slot)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	for _, rec := range r.published() {
		if header(rec, "mood") != "calm" || header(rec, "note") != "n" {
			t.Errorf("headers %v", rec.Headers)
		}
	}
	r.markersWritten(r.topic)
	before := len(r.published())
	r.exec(`TRUNCATE bank_outbox`)
	r.exec(`TRUNCATE bank_outbox, noise CASCADE`)
	r.put(1)
	r.untilConfirmed()
	r.markersWritten(r.topic)
	if got := len(r.published()); got != before+1 {
		t.Errorf("%d records after the truncates, want %d", got, before+1)
	}
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v)", status.Restarts, err)
	}
}
