package cases

import (
	"fmt"
	"testing"
	"time"
)

// JSON that any parser on the way would have changed, nested a hundred levels deep,
// and of 10 MB, as jsonb, json and text: the record's value is the column's text byte
// for byte.
func TestC40JSONAsItStands(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		for _, kind := range []string{"jsonb", "json", "text"} {
			t.Run(kind, func(t *testing.T) { jsonAsItStands(t, kind) })
		}
	})
}

// oddJSON are expressions of type text.
var oddJSON = []string{
	`'{"n":12345678901234567890.0001,"b":9007199254740993,"f":1.0,"s":"<>&\u2028"}'`,
	`'{"b": 1, "a": 2,   "b": 3, "e": 1e400, "z": -0.0, "t": "\ud83d\ude00\u0001"}'`,
	`'  [ 1.10, 1e2 , 0.1e-7 ]  '`,
	`repeat('{"a":[', 50) || '1.00' || repeat(']}', 50)`,
	`repeat('[', 100) || '"' || repeat('x', 3000) || '"' || repeat(']', 100)`,
	`(SELECT '{"all": [' || string_agg('{"k":"' || md5(i::text) || '","n":' || i || '.50}', ',') || ']}' FROM generate_series(1, 200000) i)`, // 10.5 MB
}

func jsonAsItStands(t *testing.T, kind string) {
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox ALTER payload TYPE ` + kind + ` USING NULL`)
	r.makeTopic(r.topic, 1)
	r.alter(r.topic, "max.message.bytes", fmt.Sprint(16<<20))
	s := r.stream()
	for _, text := range oddJSON {
		r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'odd', 'k', 'x', (` + text + `)::` + kind)
		r.put(3)
	}
	r.untilConfirmed()
	r.check(s.Stop(20 * time.Second))
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	values := map[string][]byte{}
	for _, rec := range r.published() {
		values[header(rec, "walstream-event-id")] = rec.Value
	}
	rows, err := r.db.Query(r.ctx, `SELECT id::text, payload::text FROM bank_outbox ORDER BY octet_length(payload::text)`)
	r.check(err)
	longest := 0
	for rows.Next() {
		var id, want string
		r.check(rows.Scan(&id, &want))
		if got := string(values[id]); got != want {
			t.Errorf("row %s: %d bytes, want %d: %.100s, want %.100s", id, len(got), len(want), got, want)
		}
		longest = len(want)
	}
	r.check(rows.Err())
	if longest < 10_000_000 {
		t.Errorf("the longest has %d bytes only", longest)
	}
}
