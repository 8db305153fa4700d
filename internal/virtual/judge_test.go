package virtual

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// kafkaTransaction names one: with every commit the broker gives a producer
// another epoch.
type kafkaTransaction struct {
	producer int64
	epoch    int16
}

// published is what a read_committed reader sees in the end.
type published struct {
	rows        []*kgo.Record
	checkpoints []durable
	markers     map[kafkaTransaction]time.Time // of commits, on the checkpoint topic
}

// durable is a checkpoint that was committed.
type durable struct {
	checkpoint.Record
	in kafkaTransaction
	at time.Time
}

// judge holds what arrived against what was committed.
func (w *world) judge() {
	p, err := w.readAll()
	if err != nil {
		w.fail("read the topics: %v", err)
		return
	}
	w.judgeCheckpoints(p)
	arrivals := w.judgeRows(p)
	if w.exactly {
		w.judgeWhole(p, arrivals)
	}
}

// readAll reads both topics to their ends.
func (w *world) readAll() (*published, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	host := w.network.Host("reader")
	checkpoints := "walstream.checkpoints." + pipelineID
	client, err := kgo.NewClient(kgo.SeedBrokers(brokerAddresses...), kgo.Dialer(host.DialContext), kgo.DisableClientMetrics(),
		kgo.ConsumeTopics(topicName, checkpoints), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topicName, checkpoints)
	if err != nil {
		return nil, err
	}
	left := 0
	for _, of := range ends {
		for _, end := range of {
			if end.Offset > 0 {
				left++
			}
		}
	}
	p := &published{markers: map[kafkaTransaction]time.Time{}}
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%d partitions are not read to their ends: %w", left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			p.take(r)
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset == end.Offset-1 {
				left--
			}
		})
	}
	for i := range p.checkpoints {
		p.checkpoints[i].at = p.markers[p.checkpoints[i].in]
	}
	return p, nil
}

func (p *published) take(r *kgo.Record) {
	in := kafkaTransaction{r.ProducerID, r.ProducerEpoch}
	switch {
	case r.Attrs.IsControl():
		if r.Topic != topicName {
			p.markers[in] = r.Timestamp
		}
	case r.Topic == topicName:
		p.rows = append(p.rows, r)
	default:
		record, err := checkpoint.DecodeRecord(r.Value)
		if err != nil {
			panic(err)
		}
		p.checkpoints = append(p.checkpoints, durable{Record: record, in: in})
	}
}

// judgeCheckpoints: they only move on, and no position was confirmed before one
// that covers it was committed.
func (w *world) judgeCheckpoints(p *published) {
	w.counts.KafkaCommits += len(p.checkpoints)
	for i, c := range p.checkpoints {
		if c.at.IsZero() {
			w.fail("the checkpoint at %s has no commit marker", c.Covered)
		}
		if i > 0 && c.Covered < p.checkpoints[i-1].Covered {
			w.fail("a checkpoint at %s stands behind one at %s", c.Covered, p.checkpoints[i-1].Covered)
		}
	}
	next, covered := 0, pglogrepl.LSN(0)
	for _, confirmed := range w.confirms {
		for ; next < len(p.checkpoints) && !p.checkpoints[next].at.After(confirmed.at); next++ {
			covered = max(covered, p.checkpoints[next].Covered)
		}
		if confirmed.lsn > covered {
			w.fail("%s was confirmed at %s, when the newest checkpoint covered %s", confirmed.lsn, confirmed.at.Sub(w.began), covered)
			return
		}
	}
}

// coveredAt is how far the checkpoints went that were committed before a moment.
func (p *published) coveredAt(at time.Time) (covered pglogrepl.LSN) {
	for _, c := range p.checkpoints {
		if c.at.Before(at.Truncate(time.Millisecond)) { // which is how fine a marker tells
			covered = c.Covered
		}
	}
	return covered
}

// slotStart is where the slot was made: what was committed before is not ours.
func (p *published) slotStart() pglogrepl.LSN {
	for _, c := range p.checkpoints {
		if c.Phase == checkpoint.PhaseStream {
			return c.Covered
		}
	}
	return 0
}

// arrivals of a transaction's rows: in which Kafka transactions, by row.
type arrivals [][]kafkaTransaction

// judgeRows: none is missing or foreign; first appearances are in order; copies
// only where the delivery allows them.
func (w *world) judgeRows(p *published) map[int]arrivals {
	all := map[int]arrivals{}
	newest := map[string]int{}
	for _, r := range p.rows {
		var number, index, size, seq int
		if _, err := fmt.Sscan(string(r.Value), &number, &index, &size, &seq); err != nil || number >= len(w.committed) || index >= len(w.committed[number].keys) {
			w.fail("a record of nobody: %.60q", r.Value)
			continue
		}
		t := w.committed[number]
		if string(r.Key) != t.keys[index] || size != t.Rows || seq != t.seqs[index] {
			w.fail("row %d of transaction %d arrived as %q %.60q", index, number, r.Key, r.Value)
		}
		if all[number] == nil {
			all[number] = make(arrivals, t.Rows)
		}
		if since, known := w.producers.began[r.ProducerID]; known && t.EndLSN <= p.coveredAt(since) {
			w.fail("row %d of transaction %d at %s was sent by an instance that began behind a checkpoint at %s", index, number, t.CommitLSN, p.coveredAt(since))
		}
		before := all[number][index]
		all[number][index] = append(before, kafkaTransaction{r.ProducerID, r.ProducerEpoch})
		if len(before) > 0 {
			w.again(before, r)
			continue
		}
		if seq <= newest[t.keys[index]] {
			w.fail("row %d of transaction %d, the %dth of %s, arrived behind the %dth", index, number, seq, r.Key, newest[t.keys[index]])
		}
		newest[t.keys[index]] = seq
	}
	start, missing := p.slotStart(), []string{}
	for number, t := range w.committed {
		if t.CommitLSN < start {
			continue
		}
		w.counts.Transactions++
		for index := range t.Rows {
			if all[number] == nil || len(all[number][index]) == 0 {
				missing = append(missing, fmt.Sprintf("%d of transaction %d at %s", index, number, t.CommitLSN))
			} else {
				w.counts.Rows++
			}
		}
	}
	if len(missing) > 0 {
		w.fail("%d rows are missing: %s", len(missing), strings.Join(missing[:min(len(missing), 5)], ", "))
	}
	return all
}

// again is a copy: never in exactly-once, and in at-least-once only behind a
// fault, by another producer.
func (w *world) again(before []kafkaTransaction, r *kgo.Record) {
	w.counts.Duplicates++
	switch {
	case w.exactly:
		w.fail("%.40q arrived twice", r.Value)
	case w.counts.Faults == 0:
		w.fail("%.40q arrived twice, and nothing had happened", r.Value)
	}
	for _, b := range before {
		if b.producer == r.ProducerID && !w.mixed {
			w.fail("%.40q was written twice by one producer", r.Value)
		}
	}
}

// judgeWhole: each PostgreSQL transaction lies in one Kafka transaction, or the
// checkpoints of its parts say that it was split.
func (w *world) judgeWhole(p *published, all map[int]arrivals) {
	of := map[kafkaTransaction]checkpoint.Record{}
	for _, c := range p.checkpoints {
		if _, twice := of[c.in]; twice {
			w.fail("two checkpoints in one Kafka transaction, at %s", c.Covered)
		}
		of[c.in] = c.Record
	}
	for number, rows := range all {
		t := w.committed[number]
		parts := map[kafkaTransaction]uint32{} // rows up to which
		for index, in := range rows {
			for _, in := range in {
				parts[in] = max(parts[in], uint32(index)+1)
			}
		}
		if len(parts) > 1 {
			w.counts.Splits++
		}
		for in, upTo := range parts {
			record, found := of[in]
			switch {
			case !found:
				w.fail("rows of transaction %d were committed without a checkpoint", number)
			case record.CommitLSN < t.CommitLSN:
				w.fail("rows of transaction %d at %s were committed with a checkpoint at %s", number, t.CommitLSN, record.CommitLSN)
			case upTo < uint32(t.Rows) && (record.CommitLSN != t.CommitLSN || record.Complete || record.Ordinal != upTo):
				w.fail("torn: transaction %d of %d rows, up to row %d in one Kafka transaction, whose checkpoint says %s, ordinal %d, complete %v",
					number, t.Rows, upTo, record.CommitLSN, record.Ordinal, record.Complete)
			}
		}
	}
}
