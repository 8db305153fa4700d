package connect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/verdict"
	"github.com/walstream/walstream/pkg/outbox"
)

// written is a row of the table.
type written struct {
	id, key, value, xid string
	number              int
}

// sent is a record, and who sent it.
type sent struct {
	id, key, value string
	headers        string // but for those of the sender itself
	partition      int32
	offset         int64
	walstream      bool
}

func newSent(r *kgo.Record) sent {
	s := sent{key: string(r.Key), value: string(r.Value), partition: r.Partition, offset: r.Offset}
	var headers []string
	for _, h := range r.Headers {
		switch {
		case h.Key == outbox.HeaderPosition:
			s.walstream = true
		case strings.HasPrefix(h.Key, "walstream-"), strings.HasPrefix(h.Key, "__debezium.context."):
		default:
			headers = append(headers, fmt.Sprintf("%s=%q", h.Key, h.Value))
		}
		if h.Key == "id" {
			s.id = string(h.Value)
		}
	}
	s.headers = strings.Join(headers, " ")
	return s
}

// records returns what is in the topic; what was read before is not read again.
func (r *rig) records() []sent {
	r.t.Helper()
	r.check(verdict.EachRecord(r.ctx, r.brokers, r.read, []string{r.topic}, func(k *kgo.Record) error {
		r.seen = append(r.seen, newSent(k))
		r.read[verdict.Place{Topic: k.Topic, Partition: k.Partition}] = k.Offset + 1
		return nil
	}))
	return r.seen
}

// by counts the records of one sender.
func by(records []sent, walstream bool) (count int) {
	for _, s := range records {
		if s.walstream == walstream {
			count++
		}
	}
	return count
}

// untilMore waits for so many records more of one sender.
func (r *rig) untilMore(walstream bool, more int) {
	r.t.Helper()
	want := -1
	r.until("more records", func() bool {
		count := by(r.records(), walstream)
		if want < 0 {
			want = count + more
		}
		return count >= want
	})
}

// rows reads the table.
func (r *rig) rows() (rows []written) {
	r.t.Helper()
	found, err := r.db.Query(r.ctx, `SELECT id::text, aggregateid, payload::text, xmin::text, (payload->>'n')::int FROM outboxevent ORDER BY 5`)
	r.check(err)
	for found.Next() {
		var w written
		r.check(found.Scan(&w.id, &w.key, &w.value, &w.xid, &w.number))
		rows = append(rows, w)
	}
	r.check(found.Err())
	return rows
}

// seam says which rows were sent more than once: by whom first, by whom again.
type seam struct {
	firstWalstream, againWalstream bool
}

// moved is what the topic shows of a move.
type moved struct {
	rows         int
	byDebezium   int
	byWalstream  int
	duplicates   map[seam][]written
	transactions map[seam]map[string]bool // of the duplicates
}

// untilAll waits until every row has come, and judges the topic.
func (r *rig) untilAll() moved {
	r.t.Helper()
	rows := r.rows()
	r.until("all rows in the topic", func() bool {
		ids := map[string]bool{}
		for _, s := range r.records() {
			ids[s.id] = true
		}
		missing := slices.DeleteFunc(slices.Clone(rows), func(w written) bool { return ids[w.id] })
		return len(missing) == 0
	})
	return r.judge(rows, r.records())
}

// judge: each record is what its row says, whoever sent it, in the partition that
// its key has; first appearances of a key come in order.
func (r *rig) judge(rows []written, records []sent) moved {
	r.t.Helper()
	m := moved{
		rows: len(rows), byDebezium: by(records, false), byWalstream: by(records, true),
		duplicates: map[seam][]written{}, transactions: map[seam]map[string]bool{},
	}
	byID := map[string]written{}
	for _, w := range rows {
		byID[w.id] = w
	}
	first := map[string]sent{}
	partitions, last := map[string]int32{}, map[string]int{}
	for _, s := range records {
		w, known := byID[s.id]
		if !known {
			r.t.Errorf("a record of no row: %+v", s)
			continue
		}
		if want := fmt.Sprintf("id=%q", w.id); s.key != w.key || s.value != w.value || s.headers != want {
			r.t.Errorf("row %d: by walstream %v: key %q value %q headers %s; the row says %q %q %s", w.number, s.walstream, s.key, s.value, s.headers, w.key, w.value, want)
		}
		if p, seen := partitions[s.key]; seen && p != s.partition {
			r.t.Errorf("key %q is in partitions %d and %d", s.key, p, s.partition)
		}
		partitions[s.key] = s.partition
		before, again := first[s.id]
		if !again {
			first[s.id] = s
			if w.number < last[s.key] {
				r.t.Errorf("key %q: row %d comes after row %d", s.key, w.number, last[s.key])
			}
			last[s.key] = w.number
			continue
		}
		at := seam{before.walstream, s.walstream}
		m.duplicates[at] = append(m.duplicates[at], w)
		if m.transactions[at] == nil {
			m.transactions[at] = map[string]bool{}
		}
		m.transactions[at][w.xid] = true
	}
	return m
}

func (m moved) String() string {
	text, _ := json.Marshal(map[string]int{
		"rows": m.rows, "by_debezium": m.byDebezium, "by_walstream": m.byWalstream,
		"debezium_then_walstream": len(m.duplicates[seam{false, true}]), "walstream_then_debezium": len(m.duplicates[seam{true, false}]),
		"debezium_twice": len(m.duplicates[seam{false, false}]), "walstream_twice": len(m.duplicates[seam{true, true}]),
	})
	return string(text)
}
