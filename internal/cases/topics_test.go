package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The topic is deleted and made anew under load, with more and with fewer
// partitions: it goes on by itself, or ends with a clear line and goes on at the
// next start. Whatever is committed afterwards is there, in order.
func TestC51TopicMadeAnew(t *testing.T) {
	inBoth(t, topicMadeAnew)
}

func topicMadeAnew(t *testing.T) {
	r := sharedRig(t)
	args := []string{"--create-topics", unset, "--topic-partitions", unset}
	r.makeTopic(r.topic, 3)
	s := r.warm(args...)
	// At once, with more partitions: it goes on by itself.
	stop := r.load()
	r.until("rows to flow", func() bool { return len(r.published()) > 100 })
	_, err := r.admin.DeleteTopic(r.ctx, r.topic)
	r.check(err)
	r.makeTopic(r.topic, 6)
	since := r.lastSeq()
	r.untilConfirmed()
	time.Sleep(200 * time.Millisecond)
	stop()
	r.untilConfirmed()
	r.verifySince(since)
	for _, said := range []string{`"before":3,"now":6`, "keys go to other partitions from here on"} {
		if !strings.Contains(s.Log(), said) {
			t.Errorf("the log does not say %s:\n%s", said, s.Log())
		}
	}
	// Later, with fewer: it has said what is missing, and ended.
	stop = r.load()
	r.until("rows to flow", func() bool { return len(r.published()) > 100 })
	_, err = r.admin.DeleteTopic(r.ctx, r.topic)
	r.check(err)
	if code := r.ends(s, 30*time.Second); code != 6 || !strings.Contains(s.Log(), "does not exist") {
		t.Errorf("exit code %d, want 6\n%s", code, s.Log())
	}
	r.makeTopic(r.topic, 3)
	since = r.lastSeq()
	r.start(args...)
	stop()
	r.untilConfirmed()
	r.verifySince(since)
}

func (r *rig) makeTopic(name string, partitions int32) {
	r.t.Helper()
	r.until("the topic to be made", func() bool { // a deletion takes a moment
		resp, err := r.admin.CreateTopics(r.ctx, partitions, 1, nil, name)
		return err == nil && resp[name].Err == nil
	})
}

func (r *rig) lastSeq() (seq int64) {
	r.t.Helper()
	r.check(r.db.QueryRow(r.ctx, `SELECT max(seq) FROM bank_outbox`).Scan(&seq))
	return seq
}

// verifySince is verify for the rows behind seq of a topic whose number of
// partitions has changed: the order of a key is that within each partition.
func (r *rig) verifySince(seq int64) {
	r.t.Helper()
	r.markersWritten(r.topic)
	r.verifyRecords(seq, r.published())
}

func (r *rig) verifyRecords(seq int64, records []*kgo.Record) {
	r.t.Helper()
	missing := map[string]bool{}
	rows, err := r.db.Query(r.ctx, `SELECT id::text FROM bank_outbox WHERE seq > $1`, seq)
	r.check(err)
	for rows.Next() {
		var id string
		r.check(rows.Scan(&id))
		missing[id] = true
	}
	r.check(rows.Err())
	wanted, duplicates := len(missing), 0
	seen, last := map[string]bool{}, map[string]string{}
	for _, rec := range records {
		id, position := header(rec, "walstream-event-id"), header(rec, "walstream-position")
		if seen[id] {
			duplicates++
			continue
		}
		seen[id] = true
		delete(missing, id)
		place := fmt.Sprint(rec.Partition, " ", string(rec.Key))
		if position <= last[place] {
			r.t.Errorf("partition and key %s: position %s first appears after %s", place, position, last[place])
		}
		last[place] = position
	}
	if len(missing) > 0 {
		r.t.Errorf("%d of %d rows are not in Kafka", len(missing), wanted)
	}
	if duplicates > 0 && r.delivery == exactlyOnce {
		r.t.Errorf("%d duplicates for a read_committed consumer", duplicates)
	}
	if duplicates > 0 {
		r.t.Logf("%d duplicates among %d records", duplicates, len(records))
	}
}

// Partitions are added while rows flow: none is lost or doubled, and that keys go
// elsewhere from then on is told, within a minute.
func TestC51PartitionsAdded(t *testing.T) {
	inBoth(t, partitionsAdded)
}

func partitionsAdded(t *testing.T) {
	r := sharedRig(t)
	s := r.warm()
	stop := r.load()
	r.until("rows to flow", func() bool { return len(r.published()) > 100 })
	_, err := r.admin.UpdatePartitions(r.ctx, 7, r.topic)
	r.check(err)
	time.Sleep(scaled(10 * time.Second))
	if full() {
		r.until("the change to be told", func() bool {
			return strings.Contains(s.Log(), `"before":3,"now":7`) && strings.Contains(s.Log(), "keys go to other partitions")
		})
	}
	stop()
	r.untilConfirmed()
	r.verifySince(0)
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v)", status.Restarts, err)
	}
}

// The first that a topic sees is a burst of rows, in requests that overtake each
// other: many times over.
func TestC51BurstIntoANewTopic(t *testing.T) {
	inBoth(t, burstIntoANewTopic)
}

func burstIntoANewTopic(t *testing.T) {
	topics := 10 // in each delivery
	if full() {
		topics = 100
	}
	const rows = 5000
	r := sharedRig(t)
	s := r.stream("--topic", unset, "--topic-column", "aggregate_type")
	for n := range topics {
		topic := fmt.Sprintf("%s_%d", r.topic, n)
		since := int64(n * rows)
		r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT $2, 'acc-' || i % 7, 'deposited', '{}' FROM generate_series(1, $1::int) i`, rows, topic)
		r.untilConfirmed()
		r.markersWritten(topic)
		r.verifyRecords(since, readTopic(t, r.ctx, r.brokers, topic))
		_, err := r.admin.DeleteTopic(r.ctx, topic) // hundreds of topics are a burden
		r.check(err)
	}
	if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
		t.Errorf("restarts %v (%v)", status.Restarts, err)
	}
}
