package sink

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/outbox"
)

// ensureHistoryTopic makes the topic, or proves that the existing one keeps what is
// written to it.
func (k *Kafka) ensureHistoryTopic(ctx context.Context) error {
	if k.cfg.HistoryRetention == 0 {
		return nil
	}
	topic := k.cfg.historyTopic()
	const doing = "prepare the history topic (--history-retention 0s does without it)"
	meta, found, err := k.lookUpOne(ctx, topic)
	if err != nil {
		return k.explain(err, doing, rightDescribe, topicResource(topic))
	}
	if !found {
		replicas, inSync, err := k.replication(ctx)
		if err == nil {
			err = k.create(ctx, historySpec(topic, replicas, inSync, k.cfg.HistoryRetention))
		}
		return k.explain(err, doing, rightCreate, topicResource(topic))
	}
	if n := len(meta.Partitions); n != 1 {
		return errHistoryPartitions(topic, n)
	}
	values, denied, err := k.configs(ctx, []string{topic}, settingCleanup, settingRetention)
	if err == nil {
		err = denied[topic]
	}
	if err != nil {
		return k.explain(err, doing, rightConfigs, topicResource(topic))
	}
	if policy := values[topic][settingCleanup]; policy != cleanupDelete {
		return k.errThinsHistory(topic, policy)
	}
	if off := k.historyRetentionOff(values[topic]); off != nil && k.cfg.Seen.tell(off.Found) {
		k.log.Warn().Str("topic", topic).Str("remedy", off.Remedy).Msg(off.Found)
	}
	return nil
}

const (
	settingRetention = "retention.ms"
	cleanupDelete    = "delete"
)

func historySpec(topic string, replicas int16, inSync string, retention time.Duration) topicSpec {
	return topicSpec{
		name: topic, partitions: 1, replicas: replicas,
		configs: map[string]string{
			settingCleanup:    cleanupDelete,
			settingRetention:  milliseconds(retention),
			"retention.bytes": "-1", // the broker's default may be another
			settingMinISR:     inSync,
			settingUnclean:    "false",
			// Only closed segments are deleted.
			"segment.ms": milliseconds(min(retention, 24*time.Hour)),
		},
	}
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

func errHistoryPartitions(topic string, n int) error {
	return &SetupError{
		Found:  fmt.Sprintf("topic %q has %d partitions, history needs exactly one", topic, n),
		Remedy: "the topic was made or changed by somebody else: delete it if it holds nothing of value, and the next start makes it anew; or do without, by --history-retention 0s",
	}
}

func (k *Kafka) errThinsHistory(topic, policy string) error {
	return &SetupError{
		Found:  fmt.Sprintf("topic %q has cleanup.policy=%s: all of its records have one key, so Kafka would keep only the newest", topic, policy),
		Remedy: k.cfg.command("kafka-configs", "--alter --topic %s --add-config cleanup.policy=delete", topic) + "; or do without history, by --history-retention 0s",
	}
}

// historyRetentionOff: the topic's own is another than the setting says.
func (k *Kafka) historyRetentionOff(values map[string]string) *SetupError {
	topic, want := k.cfg.historyTopic(), milliseconds(k.cfg.HistoryRetention)
	if have := values[settingRetention]; have != want {
		return &SetupError{
			Found:  fmt.Sprintf("topic %q has retention.ms=%s, and history-retention asks for %s", topic, have, want),
			Remedy: k.cfg.command("kafka-configs", "--alter --topic %s --add-config retention.ms=%s", topic, want) + ", or set --history-retention to what it has",
		}
	}
	return nil
}

// keepsHistory: of the stream only. The pages of a snapshot have no LSNs.
func (c *Claim) keepsHistory(record *checkpoint.Record) bool {
	return c.k.cfg.HistoryRetention > 0 && record.Phase != checkpoint.PhaseSetup && record.Phase != checkpoint.PhaseSnapshot && record.Phase != checkpoint.PhaseRecover
}

// record begins history at the position of a checkpoint to be written, or goes on
// with that of the one loaded. A base of checkpoints has no position: its sink goes
// on where the loaded one stands.
func (c *Claim) record(record *checkpoint.Record) {
	if c.recorder != nil || !c.keepsHistory(record) {
		return
	}
	id, was := c.identity(record), c.loaded
	if was == nil {
		was = &checkpoint.Record{}
	}
	start := record.Covered
	if start == 0 {
		start = was.Covered
	}
	switch open := was.History; {
	case open != nil && start == was.Covered:
		c.recorder = history.NewRecorder(id, start)
		c.recorder.Continue(open)
	default:
		if was.Ordinal > 0 { // a part of that transaction is not counted: nothing is known of it
			start = max(start, was.CommitLSN+1)
		}
		c.recorder = history.NewRecorder(id, start)
		if open != nil {
			c.recorder.Finish(c.identity(was), open, was.Covered)
		}
	}
}

func (c *Claim) identity(r *checkpoint.Record) history.Identity {
	return history.Identity{Pipeline: r.Pipeline, SystemID: r.SystemID, Timeline: r.Timeline, Database: r.Database, Version: c.k.cfg.Version}
}

// recorded are the buckets that end with the checkpoint; what stands open behind them
// goes into it.
func (c *Claim) recorded(record *checkpoint.Record) (records []*kgo.Record, err error) {
	if c.recorder == nil || !c.keepsHistory(record) {
		return nil, nil
	}
	buckets, open := c.recorder.At(record.Covered, record.Complete, time.Now())
	for i := range buckets {
		value, err := buckets[i].Encode()
		if err != nil {
			return nil, fmt.Errorf("encode history: %w", err)
		}
		records = append(records, &kgo.Record{Topic: c.k.cfg.historyTopic(), Partition: 0, Key: []byte(c.k.cfg.Pipeline), Value: value})
	}
	record.History = open
	return records, nil
}

// HistoryBuckets counts those written.
func (c *Claim) HistoryBuckets() uint64 { return c.buckets.Load() }

// tally counts the rows of Kafka transactions, as they are produced: what is counted
// at a checkpoint is what that covers.
type tally struct {
	recorder *history.Recorder
	begun    *checkpoint.Edge
}

func (c *Claim) newTally(base *checkpoint.Record) *tally {
	if c.record(base); c.recorder == nil || !c.keepsHistory(base) {
		return nil
	}
	return &tally{recorder: c.recorder}
}

func (t *tally) take(r *row) {
	open := t.recorder.Open()
	if t.begun != r.begun {
		t.begun = r.begun
		open.Commit(r.begun.CommitLSN, r.begun.CommitTime)
	}
	if r.letterOf != nil {
		r = r.letterOf
	}
	open.Add(&history.Row{Table: r.table, ID: r.id, Numbered: r.numbered, Created: r.record.Timestamp, Timed: r.timed, Bytes: r.weight})
}

// ended are the transactions that no checkpoint covers yet. In at-least-once rows go
// out before it is known which checkpoint will cover them.
type ended struct {
	recorder *history.Recorder // the committer's

	// The loop's own: the transaction at hand.
	rows history.Tally

	mu    sync.Mutex
	queue []endedRange
	head  int
}

// endedRange is one table of a transaction.
type endedRange struct {
	edge  checkpoint.Edge
	bytes uint64
	rows  history.Range
}

func (c *Claim) newEnded(base *checkpoint.Record) *ended {
	if c.record(base); c.recorder == nil || !c.keepsHistory(base) {
		return nil
	}
	return &ended{recorder: c.recorder}
}

func (d *ended) take(e *outbox.Event) {
	d.rows.Add(&history.Row{Table: e.Table, ID: e.ID, Numbered: e.Numbered, Created: e.Timestamp, Timed: e.Timed, Bytes: e.Size()})
}

// end queues what the transaction had.
func (d *ended) end(edge checkpoint.Edge) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.head > len(d.queue)/2 { // most of it is covered
		d.queue = d.queue[:copy(d.queue, d.queue[d.head:])]
		d.head = 0
	}
	bytes := d.rows.Bytes
	for i := range d.rows.Tables {
		if r := &d.rows.Tables[i]; r.Rows > 0 {
			d.queue = append(d.queue, endedRange{edge: edge, bytes: bytes, rows: *r})
			bytes = 0
		}
		d.rows.Tables[i] = history.Range{Table: d.rows.Tables[i].Table}
	}
	d.rows.Bytes = 0
}

// covered counts what the checkpoint at edge covers.
func (d *ended) covered(edge checkpoint.Edge) {
	d.mu.Lock()
	defer d.mu.Unlock()
	open := d.recorder.Open()
	for ; d.head < len(d.queue) && d.queue[d.head].edge.Covered <= edge.Covered; d.head++ {
		r := &d.queue[d.head]
		open.Commit(r.edge.CommitLSN, r.edge.CommitTime)
		open.Bytes += r.bytes
		open.AddRange(&r.rows)
	}
}
