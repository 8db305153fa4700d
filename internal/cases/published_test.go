package cases

import (
	"testing"
	"time"
)

// A publication or table that no longer brings all rows, or not under the name of
// the outbox, is noticed within a minute, also when no row comes; and the next
// start does not go on as if nothing had been.
func TestC26EveryChangeIsNoticed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"row filter":                 `ALTER PUBLICATION pub SET TABLE bank_outbox WHERE (event_type <> 'loan')`,
		"columns taken out":          `ALTER PUBLICATION pub SET TABLE bank_outbox (id, aggregate_id)`,
		"empty":                      `ALTER PUBLICATION pub DROP TABLE bank_outbox`,
		"another table in its place": `ALTER PUBLICATION pub SET TABLE noise`,
		"gone":                       `DROP PUBLICATION pub`,
		"under another name":         `ALTER PUBLICATION pub RENAME TO other`,
		"without the root":           `ALTER PUBLICATION pub SET TABLE bank_outbox; ALTER PUBLICATION pub SET (publish_via_partition_root = false)`,
		"table in another schema":    `CREATE SCHEMA elsewhere; ALTER TABLE bank_outbox SET SCHEMA elsewhere`,
		"table gone":                 `DROP TABLE bank_outbox`,
		"an unlogged partition":      `CREATE UNLOGGED TABLE quick PARTITION OF bank_outbox FOR VALUES IN ('quick')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sharedRig(t)
			r.exec(`DROP TABLE bank_outbox; CREATE TABLE bank_outbox (id uuid DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text,
				event_type text, payload jsonb, headers jsonb) PARTITION BY LIST (event_type); CREATE TABLE rest PARTITION OF bank_outbox DEFAULT`)
			s := r.warm("--publication", "pub")
			r.exec(change)
			if code := r.ends(s, time.Minute); code != 4 {
				t.Errorf("exit code %d, want 4\n%s", code, s.Log())
			}
			s = r.start("--publication", "pub")
			if code := r.ends(s, time.Minute); code != 3 && code != 4 {
				t.Errorf("exit code %d at the next start, want 3 or 4\n%s", code, s.Log())
			}
		})
	}
}
